//! Condition `Ready` of pods on a node that is not ready. Upstream: `MarkPodsNotReady`.

use evenkeel_api::{
    time::{Timestamp, seconds},
    views::Pod,
};
use serde_json::{Value, json};

/// Whether the pod's condition `Ready` is not `False`.
pub(crate) fn claims_ready(pod: &Pod) -> bool {
    pod.status.conditions.iter().any(|one| &*one.type_ == "Ready" && &*one.status != "False")
}

/// Sets the condition `Ready` of a pod, as JSON, to `False`. Returns whether it changed.
pub(crate) fn mark_not_ready(pod: &mut Value, now: Timestamp) -> bool {
    let conditions = pod["status"]["conditions"].as_array_mut();
    let ready = conditions.and_then(|all| all.iter_mut().find(|one| one["type"] == "Ready"));
    let Some(ready) = ready.filter(|ready| ready["status"] != "False") else { return false };
    ready["status"] = json!("False");
    ready["lastTransitionTime"] = json!(seconds(now));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, pod};

    #[test]
    fn only_who_is_ready_is_changed() {
        assert!(claims_ready(&pod("a", Some(T0))) && !claims_ready(&pod("a", None)));
        let mut ready = json!({"status": {"phase": "Running", "conditions": [
            {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True", "reason": "x"},
        ]}});
        assert!(mark_not_ready(&mut ready, at(0)));
        let want = json!({"type": "Ready", "status": "False", "reason": "x", "lastTransitionTime": seconds(at(0))});
        assert_eq!(ready["status"]["conditions"][1], want);
        assert_eq!(ready["status"]["conditions"][0]["status"], "True");
        assert!(!mark_not_ready(&mut ready, at(1)), "once");
        assert!(!mark_not_ready(&mut json!({}), at(1)));
    }
}
