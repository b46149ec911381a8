//! Validation of an object's metadata, except its name.
//!
//! Upstream: `k8s.io/apimachinery/pkg/api/validation/objectmeta.go`.

use serde_json::{Value, json};

use crate::go_text::{go_json, go_json_string};
use crate::status::{BadValue, FieldError};
use crate::validation::errors::{Errors, Path};
use crate::validation::{labels, names};
use crate::value::{list, object, text};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Maximum length of a field manager's name, in bytes.
const MAX_MANAGER: usize = 128;
/// Maximum length of a managed fields entry's subresource, in bytes.
const MAX_SUBRESOURCE: usize = 256;

/// Validates labels, annotations, owner references, finalizers and managed fields.
///
/// Upstream: `ValidateObjectMetaAccessor`.
pub fn validate(owner: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let path = Path::new("metadata");
    let Some(metadata) = owner.get("metadata") else { return Vec::new() };
    labels::labels(object(metadata, "labels"), &path.field("labels"), &mut errors);
    labels::annotations(metadata, &path.field("annotations"), &mut errors);
    owners(list(metadata, "ownerReferences"), &path.field("ownerReferences"), &mut errors);
    finalizers(list(metadata, "finalizers"), &path.field("finalizers"), &mut errors);
    managers(list(metadata, "managedFields"), &path.field("managedFields"), &mut errors);
    errors.into_vec()
}

/// Requires complete owner references, and at most one controller among them. An Event cannot be an owner.
///
/// Upstream: `ValidateOwnerReferences`.
fn owners(references: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    for (i, reference) in references.iter().enumerate() {
        let at = path.index(i);
        let api_version = text(reference, "apiVersion");
        if api_version.is_empty() {
            errors.required(&at.field("apiVersion"), "must not be empty");
        } else if api_version.matches('/').count() > 1 || api_version.ends_with('/') {
            errors.invalid(
                &at.field("apiVersion"),
                api_version,
                "must be <group>/<version> or <version>",
            );
        }
        for name in ["kind", "name", "uid"] {
            if text(reference, name).is_empty() {
                errors.required(&at.field(name), "must not be empty");
            }
        }
        if (api_version, text(reference, "kind")) == ("v1", "Event") {
            errors.invalid(
                &at,
                reference.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            );
        }
        if reference.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{}/{}", text(reference, "kind"), text(reference, "name"));
            match &controller {
                // Each of these errors contains a copy of the whole list.
                Some(_) if errors.is_full() => {}
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    errors.invalid(path, in_go_order(references), &detail);
                }
                None => controller = Some(this),
            }
        }
    }
}

/// Returns owner references with their fields in the order of Go's struct.
fn in_go_order(references: &[Value]) -> BadValue {
    const FIELDS: [&str; 6] =
        ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let one = |reference: &Value| {
        let fields = FIELDS.iter().filter_map(|field| {
            let value = reference.get(*field).filter(|value| !value.is_null());
            let required = || json!("");
            let value = match value {
                None if matches!(*field, "controller" | "blockOwnerDeletion") => return None,
                value => value.cloned().unwrap_or_else(required),
            };
            Some(format!("{}:{}", go_json_string(field), go_json(&value)))
        });
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    };
    let all: Vec<String> = references.iter().map(one).collect();
    BadValue::Encoded(format!("[{}]", all.join(",")))
}

/// Requires that finalizers are qualified names.
///
/// Upstream: `ValidateFinalizers`.
fn finalizers(finalizers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        errors.invalid_for_each(path, finalizer, &names::qualified_name(finalizer));
    }
    let has = |name: &str| finalizers.iter().any(|f| f == name);
    if has(ORPHAN) && has(FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.invalid(path, Value::from(finalizers.to_vec()), &detail);
    }
}

/// Requires known operations and field types, and managers and subresources of limited length.
///
/// Upstream: `ValidateManagedFields`.
fn managers(entries: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, entry) in entries.iter().enumerate() {
        let at = path.index(i);
        match text(entry, "operation") {
            "" => errors.required(&at.field("operation"), "must not be empty"),
            "Apply" | "Update" => {}
            other => errors.not_supported(&at.field("operation"), other, &["Apply", "Update"]),
        }
        match text(entry, "fieldsType") {
            "" | "FieldsV1" => {}
            other => errors.invalid(&at.field("fieldsType"), other, "must be `FieldsV1`"),
        }
        let manager = text(entry, "manager");
        if manager.len() > MAX_MANAGER {
            errors.too_long(&at.field("manager"), MAX_MANAGER);
        }
        for (position, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
            let detail =
                format!("invalid character U+{:04X} (at position {position})", u32::from(c));
            errors.invalid(&at.field("manager"), manager, &detail);
        }
        if text(entry, "subresource").len() > MAX_SUBRESOURCE {
            errors.too_long(&at.field("subresource"), MAX_SUBRESOURCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the fields with errors.
    fn invalid_fields(metadata: &Value) -> Vec<String> {
        validate(&json!({"metadata": metadata})).into_iter().map(|e| e.field).collect()
    }

    #[test]
    fn invalid_labels_owners_finalizers_and_managers_are_reported() {
        let valid = json!({"labels": {"example.com/K_1.x": "V_1.x", "e": ""}, "annotations": {"Some/Key": "ü\n"}});
        assert!(invalid_fields(&valid).is_empty());
        assert_eq!(
            invalid_fields(&json!({"labels": {"a/b/c": "v", "k": "x".repeat(64)}})),
            ["metadata.labels"; 2]
        );
        assert_eq!(
            invalid_fields(&json!({"annotations": {"k": "x".repeat(270_000)}})),
            ["metadata.annotations"]
        );
        assert_eq!(
            invalid_fields(&json!({"finalizers": ["orphan", "foregroundDeletion"]})),
            ["metadata.finalizers"]
        );
        let owner = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "name": "n", "uid": "u", "controller": true});
        assert_eq!(
            invalid_fields(&json!({"ownerReferences": [owner("A"), owner("B")]})),
            ["metadata.ownerReferences"]
        );
        assert_eq!(
            invalid_fields(
                &json!({"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "n"}]})
            ),
            ["metadata.ownerReferences[0].apiVersion", "metadata.ownerReferences[0].uid"]
        );
        assert_eq!(
            invalid_fields(&json!({"managedFields": [{"operation": "Nope"}]})),
            ["metadata.managedFields[0].operation"]
        );
    }
}
