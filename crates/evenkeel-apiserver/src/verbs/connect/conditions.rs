//! Conditions that the server itself writes.

use evenkeel_apimachinery::value::{list, set, text};
use serde_json::{Value, json};

/// Sets a condition of a pod; its time changes only with its status.
pub(super) fn pod(
    pod: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let mut condition =
        json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now});
    for (field, words) in [("reason", reason), ("message", message)] {
        if !words.is_empty() {
            condition[field] = Value::from(words);
        }
    }
    put(pod, condition);
}

/// Puts a condition among those of an object, in place of the one of its type.
pub(super) fn put(object: &mut Value, mut condition: Value) {
    let mut all = list(object, "status.conditions").to_vec();
    let kind = text(&condition, "type").to_owned();
    match all.iter_mut().find(|known| text(known, "type") == kind) {
        Some(known) => {
            if text(known, "status") == text(&condition, "status") {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => all.push(condition),
    }
    set(object, "status.conditions", all);
}
