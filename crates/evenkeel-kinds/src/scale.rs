//! The `scale` subresource of built-in workloads, an autoscaling/v1 Scale.

use crate::registry::KindStrategy;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{self, get, int, list, object, set, text};
use serde_json::{Value, json};

/// Returns the Scale of a workload.
///
/// Upstream: `scaleFromDeployment`.
pub fn scale_of(strategy: &KindStrategy, object: &Value) -> Value {
    let mut metadata = value::Object::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = get(object, &format!("metadata.{field}")) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = int(object, "spec.replicas").filter(|replicas| *replicas != 0) {
        set(&mut spec, "replicas", replicas);
    }
    let mut status = json!({"replicas": int(object, "status.replicas").unwrap_or_default()});
    let selector = if strategy.kind == "ReplicationController" {
        format_pairs(object, "spec.selector")
    } else {
        format_selector(get(object, "spec.selector"))
    };
    if !selector.is_empty() {
        set(&mut status, "selector", selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Sets the replicas of a workload to those of a Scale.
///
/// # Errors
/// When the Scale has negative replicas.
pub fn set_replicas(target: &mut Value, scale: &Value) -> Result<(), StatusError> {
    let replicas = int(scale, "spec.replicas").unwrap_or_default();
    let mut errors = Errors::default();
    errors.non_negative(&Path::new("spec.replicas"), Some(replicas));
    if !errors.is_empty() {
        let kind = evenkeel_apimachinery::group_version::GroupKind {
            group: "autoscaling".into(),
            kind: "Scale".into(),
        };
        return Err(StatusError::invalid(&kind, text(scale, "metadata.name"), &errors.into_vec()));
    }
    set(target, "spec.replicas", replicas);
    let version = text(scale, "metadata.resourceVersion");
    if !version.is_empty() {
        set(target, "metadata.resourceVersion", version);
    }
    Ok(())
}

fn format_pairs(target: &Value, path: &str) -> String {
    let pairs: Vec<String> = object(target, path)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.join(",")
}

/// Formats a label selector as a string, with requirements sorted by key.
///
/// Upstream: `LabelSelectorAsSelector`.
pub(crate) fn format_selector(selector: Option<&Value>) -> String {
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
    use super::format_selector;
    use serde_json::json;

    #[test]
    fn selectors_are_formatted_with_requirements_sorted_by_key() {
        let object = json!({"matchLabels": {"b": "c"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "z", "operator": "DoesNotExist"}]});
        assert_eq!(format_selector(Some(&object)), "a in (x,y),b=c,!z");
        assert_eq!(format_selector(None), "");
    }
}
