//! Validation of the metadata in claim templates.

use evenkeel_apimachinery::validation::{Errors, Path, labels};
use evenkeel_apimachinery::value::{get, object};
use serde_json::Value;

/// Fields of a template's metadata that must not be set, in upstream's order.
const NOT_IN_TEMPLATES: [&str; 13] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Validates the metadata of a template, which may only have labels and annotations.
///
/// Upstream: `ValidateTemplateObjectMeta`.
pub(super) fn template_metadata(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    labels::annotations(metadata, &path.field("annotations"), errors);
    labels::labels(object(metadata, "labels"), &path.field("labels"), errors);
    for field in NOT_IN_TEMPLATES {
        let is_set = get(metadata, field).is_some_and(|value| {
            value.as_str() != Some("") && (field != "generation" || value.as_i64() != Some(0))
        });
        if is_set {
            // Upstream's path has the Go field's name with its first letter in lower case.
            let name = if field == "uid" { "uID" } else { field };
            errors.forbidden(&path.field(name), "cannot be set");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn template_metadata_has_only_labels_and_annotations() {
        for (metadata, expected) in [
            (
                json!({"labels": {"a": "b"}, "annotations": {"a": "b"}, "name": "", "generation": 0}),
                vec![],
            ),
            (json!({"labels": {"a b": "c"}}), vec!["m.labels"]),
            (json!({"uid": "x", "name": "y"}), vec!["m.name", "m.uID"]),
            (json!({"creationTimestamp": "2024-01-01T00:00:00Z"}), vec!["m.creationTimestamp"]),
        ] {
            let mut errors = Errors::default();
            template_metadata(&metadata, &Path::new("m"), &mut errors);
            let fields: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            assert_eq!(fields, expected, "{metadata}");
        }
    }
}
