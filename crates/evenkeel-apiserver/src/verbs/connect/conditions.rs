//! Conditions that the server itself sets.

use evenkeel_apimachinery::value::{list, set, text};
use serde_json::{Value, json};

/// Sets a condition of a pod. `lastTransitionTime` changes only with the condition's status.
pub(super) fn set_pod_condition(
    pod: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let mut condition =
        json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now});
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[field] = Value::from(text);
        }
    }
    set_condition(pod, condition);
}

/// Replaces the condition of the same type in an object, or adds the condition.
pub(super) fn set_condition(object: &mut Value, mut condition: Value) {
    let mut conditions = list(object, "status.conditions").to_vec();
    let kind = text(&condition, "type").to_owned();
    match conditions.iter_mut().find(|known| text(known, "type") == kind) {
        Some(known) => {
            if text(known, "status") == text(&condition, "status") {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
    set(object, "status.conditions", conditions);
}
