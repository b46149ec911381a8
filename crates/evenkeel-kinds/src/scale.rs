//! The `scale` sub-resource: an autoscaling/v1 Scale as a view of a workload.

use crate::rows::Row;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{self, at, int, list, object, set, text};
use serde_json::{Value, json};

/// The Scale of an object.
pub fn read(row: &Row, object: &Value) -> Value {
    let mut metadata = value::Object::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = at(object, &format!("metadata.{field}")) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = int(object, "spec.replicas").filter(|replicas| *replicas != 0) {
        set(&mut spec, "replicas", replicas);
    }
    let mut status = json!({"replicas": int(object, "status.replicas").unwrap_or_default()});
    let selector = if row.kind == "ReplicationController" {
        pairs(object, "spec.selector")
    } else {
        selector(at(object, "spec.selector"))
    };
    if !selector.is_empty() {
        set(&mut status, "selector", selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Writes a Scale's replicas into the object.
pub fn write(target: &mut Value, part: &Value) -> Result<(), StatusError> {
    let replicas = int(part, "spec.replicas").unwrap_or_default();
    let mut errors = Errors::default();
    errors.non_negative(&Path::new("spec.replicas"), Some(replicas));
    if !errors.is_empty() {
        let kind = evenkeel_apimachinery::group_version::GroupKind {
            group: "autoscaling".into(),
            kind: "Scale".into(),
        };
        return Err(StatusError::invalid(&kind, text(part, "metadata.name"), &errors.into_vec()));
    }
    set(target, "spec.replicas", replicas);
    let version = text(part, "metadata.resourceVersion");
    if !version.is_empty() {
        set(target, "metadata.resourceVersion", version);
    }
    Ok(())
}

fn pairs(target: &Value, path: &str) -> String {
    let pairs: Vec<String> = object(target, path)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.join(",")
}

/// A label selector in its string form, requirements in order of key.
pub(crate) fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in object(selector, "matchLabels").into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<&str> =
            list(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let text = match text(expression, "operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        parts.push((key.to_owned(), text));
    }
    parts.sort();
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::selector;
    use serde_json::json;

    #[test]
    fn selectors_as_text() {
        let object = json!({"matchLabels": {"b": "c"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "z", "operator": "DoesNotExist"}]});
        assert_eq!(selector(Some(&object)), "a in (x,y),b=c,!z");
        assert_eq!(selector(None), "");
    }
}
