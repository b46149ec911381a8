//! RuntimeClass: sets the overhead, node selector and tolerations of a new pod's class.

use crate::api::Context;
use crate::loopback;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{Object, get, int, list, object, set, text};
use serde_json::Value;

/// Completes `pod` from its class. Refuses it if the class does not exist or contradicts the pod.
pub(super) fn admit(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    let class = class_of(cx, pod)?;
    complete(pod, &class).map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Refuses a new pod whose overhead is not that of its class.
pub(super) fn check(cx: &Context<'_>, pod: &Value) -> Result<(), StatusError> {
    let class = class_of(cx, pod)?;
    check_overhead(pod, &class)
        .map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Returns the pod's class; null if it names none.
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

const OTHER_OVERHEAD: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Upstream: `validateOverhead`.
fn check_overhead(pod: &Value, class: &Value) -> Result<(), String> {
    let given = object(pod, "spec.overhead");
    let Some(overhead) = get(class, "overhead") else {
        return match given {
            Some(_) => Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".into()),
            None => Ok(()),
        };
    };
    let none = Object::new();
    let fixed = object(overhead, "podFixed").unwrap_or(&none);
    if same_amounts(given.unwrap_or(&none), fixed) { Ok(()) } else { Err(OTHER_OVERHEAD.into()) }
}

/// Completes `pod` from `class`, which is null if the pod names none. The errors are upstream's.
///
/// Upstream: `setOverhead`, `setScheduling`.
fn complete(pod: &mut Value, class: &Value) -> Result<(), String> {
    if let Some(overhead) = get(class, "overhead") {
        let fixed = object(overhead, "podFixed").cloned().unwrap_or_default();
        let given = object(pod, "spec.overhead").filter(|given| !given.is_empty());
        if given.is_some_and(|given| !same_amounts(given, &fixed)) {
            return Err(OTHER_OVERHEAD.into());
        }
        if !fixed.is_empty() {
            set(pod, "spec.overhead", fixed);
        }
    }
    if get(class, "scheduling").is_some() {
        let selector = merged_selector(pod, class)?;
        if !selector.is_empty() {
            set(pod, "spec.nodeSelector", selector);
        }
        let mut all = list(pod, "spec.tolerations").to_vec();
        all.extend_from_slice(list(class, "scheduling.tolerations"));
        if !all.is_empty() {
            set(pod, "spec.tolerations", merged_tolerations(&all));
        }
    }
    Ok(())
}

fn same_amounts(a: &Object, b: &Object) -> bool {
    a.len() == b.len()
        && a.iter().all(|(name, amount)| {
            b.get(name).is_some_and(|other| Amount::of(amount) == Amount::of(other))
        })
}

fn merged_selector(pod: &Value, class: &Value) -> Result<Object, String> {
    let mut merged = object(pod, "spec.nodeSelector").cloned().unwrap_or_default();
    for (key, value) in object(class, "scheduling.nodeSelector").into_iter().flatten() {
        if let Some(own) = merged.get(key).filter(|own| *own != value) {
            let plain = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                plain(value),
                plain(own)
            ));
        }
        merged.insert(key.clone(), value.clone());
    }
    Ok(merged)
}

/// Removes tolerations that another one covers. Of equal ones, the first stays.
fn merged_tolerations(all: &[Value]) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::with_capacity(all.len());
    for (index, toleration) in all.iter().enumerate() {
        let covered = kept.iter().any(|other| covers(other, toleration))
            || all[index + 1..]
                .iter()
                .any(|other| other != toleration && covers(other, toleration));
        if !covered {
            kept.push(toleration.clone());
        }
    }
    kept
}

/// Returns whether `wide` tolerates all taints that `narrow` tolerates.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let exists = text(wide, "operator") == "Exists";
    let key = text(wide, "key") == text(narrow, "key") || text(wide, "key").is_empty() && exists;
    let effect = text(wide, "effect").is_empty() || text(wide, "effect") == text(narrow, "effect");
    let lasts = text(wide, "effect") != "NoExecute"
        || int(wide, "tolerationSeconds").is_none_or(|wide| {
            int(narrow, "tolerationSeconds").is_some_and(|narrow| narrow <= wide)
        });
    let values = match text(wide, "operator") {
        "" | "Equal" => {
            text(narrow, "operator") == "Equal" && text(narrow, "value") == text(wide, "value")
        }
        _ => exists,
    };
    wide == narrow || key && effect && lasts && values
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
        assert_eq!(complete(&mut pod, &class), Ok(()));
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
            complete(&mut json!({"spec": spec}), class).expect_err("refused")
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
        assert_eq!(check(json!({"cpu": "2"}), &class), Err(OTHER_OVERHEAD.to_owned()));
        assert_eq!(check(Value::Null, &class), Err(OTHER_OVERHEAD.to_owned()));
        assert_eq!(check(Value::Null, &Value::Null), Ok(()));
        let mut plain = json!({"spec": {}});
        assert_eq!((complete(&mut plain, &Value::Null), plain), (Ok(()), json!({"spec": {}})));
    }
}
