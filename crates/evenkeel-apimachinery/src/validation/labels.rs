//! Validation of labels, annotations and label selectors within objects. [`super::metadata`] validates an object's
//! own metadata.

use super::errors::{Errors, Path};
use super::names;
use crate::value::{list, object, text};
use serde_json::Value;

/// Maximum total size in bytes of the annotations of an object.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Validates keys and values of a map of labels.
///
/// Upstream: `ValidateLabels`.
pub fn labels(labels: Option<&crate::value::Object>, path: &Path<'_>, errors: &mut Errors) {
    for (key, value) in labels.into_iter().flatten() {
        errors.invalid_for_each(path, key, &names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_for_each(path, value, &names::label_value(value));
    }
}

/// Validates the keys and the total size of the annotations in `meta`.
///
/// Upstream: `ValidateAnnotations`.
pub fn annotations(meta: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in object(meta, "annotations").into_iter().flatten() {
        size += key.len() + value.as_str().unwrap_or_default().len();
        errors.invalid_for_each(path, key, &names::qualified_name(&key.to_lowercase()));
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(path, ANNOTATIONS_LIMIT);
    }
}

/// Validates a label selector (`matchLabels`, `matchExpressions`).
///
/// Upstream: `ValidateLabelSelector`.
pub fn selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    labels(object(selector, "matchLabels"), &path.field("matchLabels"), errors);
    let expressions = path.field("matchExpressions");
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = expressions.index(index);
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(
                    &path.field("values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
                &path.field("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "Exists" | "DoesNotExist" => {}
            other => {
                errors.invalid(&path.field("operator"), other, "not a valid selector operator");
            }
        }
        let key = text(expression, "key");
        errors.invalid_for_each(&path.field("key"), key, &names::qualified_name(key));
        let values_path = path.field("values");
        for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
            errors.invalid_for_each(&values_path.index(index), value, &names::label_value(value));
        }
    }
}

/// Returns whether a label selector matches a set of labels. An absent selector matches nothing, an empty selector
/// matches everything.
pub fn selects(selector: Option<&Value>, labels: Option<&crate::value::Object>) -> bool {
    let Some(selector) = selector else { return false };
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    object(selector, "matchLabels")
        .into_iter()
        .flatten()
        .all(|(key, value)| label(key) == value.as_str())
        && list(selector, "matchExpressions").iter().all(|expression| {
            let value = label(text(expression, "key"));
            let is_listed =
                || list(expression, "values").iter().any(|wanted| wanted.as_str() == value);
            match text(expression, "operator") {
                "In" => value.is_some() && is_listed(),
                "NotIn" => value.is_none() || !is_listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_labels_and_expressions() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "NotIn", "values": ["d"]}, {"key": "e", "operator": "DoesNotExist"}]});
        let labels = |value: Value| selects(Some(&selector), value.as_object());
        assert!(labels(json!({"a": "b"})));
        assert!(!labels(json!({"a": "b", "c": "d"})));
        assert!(!labels(json!({"a": "b", "e": ""})));
        assert!(selects(Some(&json!({})), None));
        assert!(!selects(None, None));
    }
}
