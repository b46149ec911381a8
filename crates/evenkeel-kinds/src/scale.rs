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
    // In a Scale, `spec.replicas` has `omitempty`, but `status.replicas` does not.
    if let Some(replicas) = int(object, "spec.replicas").filter(|replicas| *replicas != 0) {
        set(&mut spec, "replicas", replicas);
    }
    let mut status = json!({"replicas": int(object, "status.replicas").unwrap_or_default()});
    let selector = if strategy.kind == "ReplicationController" {
        format_map_selector(object, "spec.selector")
    } else {
        format_selector(get(object, "spec.selector"))
    };
    if !selector.is_empty() {
        set(&mut status, "selector", selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Sets the replicas of a workload to those of a Scale. Also copies the resource version of the Scale, if it has one, so
/// that the update fails if the workload has changed since the client read the Scale.
///
/// # Errors
/// Fails if the Scale has negative replicas.
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

/// Formats the map selector of a ReplicationController at `path`: `a=b,c=d`.
fn format_map_selector(controller: &Value, path: &str) -> String {
    let mut requirements = Vec::new();
    for (key, value) in object(controller, path).into_iter().flatten() {
        requirements.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    requirements.join(",")
}

/// Formats a label selector as a string, with requirements sorted by key.
///
/// Upstream: `LabelSelectorAsSelector`.
pub(crate) fn format_selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    // Key of each requirement, and the printed requirement.
    let mut requirements: Vec<(String, String)> = Vec::new();
    for (key, value) in object(selector, "matchLabels").into_iter().flatten() {
        let requirement = format!("{key}={}", value.as_str().unwrap_or_default());
        requirements.push((key.clone(), requirement));
    }
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<&str> =
            list(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let requirement = match text(expression, "operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            // `Exists` is the only other valid operator.
            _ => key.to_owned(),
        };
        requirements.push((key.to_owned(), requirement));
    }
    requirements.sort();
    let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
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
