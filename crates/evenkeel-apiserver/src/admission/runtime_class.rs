//! Admission plug-in RuntimeClass: sets the overhead, node selector and tolerations of a new pod from its RuntimeClass.

use crate::api::Context;
use crate::loopback;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{Object, get, int, list, object, set, text};
use serde_json::Value;

/// Sets fields of a pod from its RuntimeClass. Refuses the pod if the class does not exist, or if a field of the pod
/// conflicts with the class.
pub(super) fn admit(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    let class = class_of(cx, pod)?;
    apply_class(pod, &class).map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Refuses a new pod whose overhead differs from that of its RuntimeClass.
pub(super) fn check(cx: &Context<'_>, pod: &Value) -> Result<(), StatusError> {
    let class = class_of(cx, pod)?;
    check_overhead(pod, &class)
        .map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Returns the pod's RuntimeClass; null if the pod names none.
///
/// Upstream: `prepareObjects`.
fn class_of(cx: &Context<'_>, pod: &Value) -> Result<Value, StatusError> {
    let Some(name) = get(pod, "spec.runtimeClassName").and_then(Value::as_str) else {
        return Ok(Value::Null);
    };
    loopback::get(cx.api, "node.k8s.io/v1", "runtimeclasses", "", name)?.ok_or_else(|| {
        let why = format!("pod rejected: RuntimeClass {} not found", quote(name));
        StatusError::forbidden(&cx.resource.name, cx.name, why)
    })
}

const OVERHEAD_MISMATCH: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Returns an error unless the overhead of the pod is that of its RuntimeClass.
///
/// Upstream: `validateOverhead`.
fn check_overhead(pod: &Value, class: &Value) -> Result<(), String> {
    let pod_overhead = object(pod, "spec.overhead");
    let Some(overhead) = get(class, "overhead") else {
        return match pod_overhead {
            Some(_) => Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".into()),
            None => Ok(()),
        };
    };
    let none = Object::new();
    let class_overhead = object(overhead, "podFixed").unwrap_or(&none);
    if same_amounts(pod_overhead.unwrap_or(&none), class_overhead) {
        Ok(())
    } else {
        Err(OVERHEAD_MISMATCH.into())
    }
}

/// Sets fields of a pod from its RuntimeClass, which is null if the pod names none. Errors have upstream's message.
///
/// Upstream: `setOverhead`, `setScheduling`.
fn apply_class(pod: &mut Value, class: &Value) -> Result<(), String> {
    if let Some(overhead) = get(class, "overhead") {
        let class_overhead = object(overhead, "podFixed").cloned().unwrap_or_default();
        let pod_overhead = object(pod, "spec.overhead").filter(|overhead| !overhead.is_empty());
        if pod_overhead.is_some_and(|overhead| !same_amounts(overhead, &class_overhead)) {
            return Err(OVERHEAD_MISMATCH.into());
        }
        if !class_overhead.is_empty() {
            set(pod, "spec.overhead", class_overhead);
        }
    }
    if get(class, "scheduling").is_some() {
        let selector = merged_selector(pod, class)?;
        if !selector.is_empty() {
            set(pod, "spec.nodeSelector", selector);
        }
        let mut tolerations = list(pod, "spec.tolerations").to_vec();
        tolerations.extend_from_slice(list(class, "scheduling.tolerations"));
        if !tolerations.is_empty() {
            set(pod, "spec.tolerations", merged_tolerations(&tolerations));
        }
    }
    Ok(())
}

/// Returns whether both lists have equal quantities of the same resources.
fn same_amounts(a: &Object, b: &Object) -> bool {
    a.len() == b.len()
        && a.iter().all(|(name, amount)| {
            b.get(name).is_some_and(|other| Amount::of(amount) == Amount::of(other))
        })
}

/// Returns the node selectors of the pod and its RuntimeClass together, or an error if they conflict.
fn merged_selector(pod: &Value, class: &Value) -> Result<Object, String> {
    let mut merged = object(pod, "spec.nodeSelector").cloned().unwrap_or_default();
    for (key, value) in object(class, "scheduling.nodeSelector").into_iter().flatten() {
        if let Some(pod_value) = merged.get(key).filter(|pod_value| *pod_value != value) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(value),
                text(pod_value)
            ));
        }
        merged.insert(key.clone(), value.clone());
    }
    Ok(merged)
}

/// Returns the tolerations without those that another one covers. Keeps the first of equal tolerations.
fn merged_tolerations(tolerations: &[Value]) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::with_capacity(tolerations.len());
    for (index, toleration) in tolerations.iter().enumerate() {
        let is_covered_before = kept.iter().any(|other| covers(other, toleration));
        let is_covered_later = tolerations[index + 1..]
            .iter()
            .any(|other| other != toleration && covers(other, toleration));
        if !is_covered_before && !is_covered_later {
            kept.push(toleration.clone());
        }
    }
    kept
}

/// Returns whether `wide` tolerates all taints that `narrow` tolerates.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let is_exists = text(wide, "operator") == "Exists";
    let covers_key =
        text(wide, "key") == text(narrow, "key") || text(wide, "key").is_empty() && is_exists;
    let covers_effect =
        text(wide, "effect").is_empty() || text(wide, "effect") == text(narrow, "effect");
    let lasts_as_long = text(wide, "effect") != "NoExecute"
        || int(wide, "tolerationSeconds").is_none_or(|wide| {
            int(narrow, "tolerationSeconds").is_some_and(|narrow| narrow <= wide)
        });
    let covers_values = match text(wide, "operator") {
        "" | "Equal" => {
            text(narrow, "operator") == "Equal" && text(narrow, "value") == text(wide, "value")
        }
        _ => is_exists,
    };
    wide == narrow || covers_key && covers_effect && lasts_as_long && covers_values
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_completes_its_pods() {
        let class = json!({
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {
                "nodeSelector": {"a": "1"},
                "tolerations": [{"key": "k", "operator": "Exists"}, {"key": "z", "operator": "Exists", "effect": "NoExecute"}],
            },
        });
        let mut pod = json!({"spec": {
            "overhead": {"cpu": "0.25"},
            "nodeSelector": {"b": "2"},
            "tolerations": [
                {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
                {"key": "z", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
                {"key": "y", "operator": "Exists"},
            ],
        }});
        assert_eq!(apply_class(&mut pod, &class), Ok(()));
        let tolerations = json!([
            {"key": "y", "operator": "Exists"},
            {"key": "k", "operator": "Exists"},
            {"key": "z", "operator": "Exists", "effect": "NoExecute"},
        ]);
        assert_eq!(
            pod["spec"],
            json!({"overhead": {"cpu": "250m"}, "nodeSelector": {"a": "1", "b": "2"}, "tolerations": tolerations})
        );
    }

    #[test]
    fn what_contradicts_is_refused() {
        let refused = |spec: Value, class: &Value| {
            apply_class(&mut json!({"spec": spec}), class).expect_err("refused")
        };
        let class = json!({"overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {"a": "1"}}});
        assert!(refused(json!({"overhead": {"cpu": "2"}}), &class).contains("doesn't match"));
        assert_eq!(
            refused(json!({"nodeSelector": {"a": "2"}}), &class),
            "conflict: runtimeClass.scheduling.nodeSelector[a] = 1; pod.spec.nodeSelector[a] = 2"
        );
        let check = |overhead: Value, class: &Value| {
            check_overhead(&json!({"spec": {"overhead": overhead}}), class)
        };
        let alone = check(json!({"cpu": "2"}), &Value::Null).expect_err("refused");
        assert!(alone.contains("without corresponding"));
        assert_eq!(check(json!({"cpu": "1000m"}), &class), Ok(()));
        assert_eq!(check(json!({"cpu": "2"}), &class), Err(OVERHEAD_MISMATCH.to_owned()));
        assert_eq!(check(Value::Null, &class), Err(OVERHEAD_MISMATCH.to_owned()));
        assert_eq!(check(Value::Null, &Value::Null), Ok(()));
        let mut plain = json!({"spec": {}});
        assert_eq!((apply_class(&mut plain, &Value::Null), plain), (Ok(()), json!({"spec": {}})));
    }
}
