//! Conditions of an unreachable node.

use evenkeel_api::time::{Timestamp, seconds};
use serde_json::{Value, json};

/// Conditions that the kubelet owns. (The route or cloud controller owns `NetworkUnavailable`.)
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Sets the kubelet's conditions to `Unknown`, and adds missing ones. Upstream: `tryUpdateNodeHealth`.
pub(crate) fn mark_unknown(node: &mut Value, now: Timestamp) {
    let now = seconds(now);
    let created = node["metadata"]["creationTimestamp"].clone();
    let conditions = &mut node["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    for type_ in KUBELET_CONDITIONS {
        match conditions.iter_mut().find(|condition| condition["type"] == type_) {
            None => conditions.push(json!({
                "type": type_, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": created, "lastTransitionTime": now,
            })),
            Some(condition) if condition["status"] == "Unknown" => {}
            Some(condition) => {
                condition["status"] = json!("Unknown");
                condition["reason"] = json!("NodeStatusUnknown");
                condition["message"] = json!("Kubelet stopped posting node status.");
                condition["lastTransitionTime"] = json!(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    #[test]
    fn kubelet_conditions_become_unknown() {
        let mut node = json!({
            "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"addresses": [], "conditions": [
                {"type": "NetworkUnavailable", "status": "False", "reason": "Up"},
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2026-01-02T00:00:00Z"},
                {"type": "DiskPressure", "status": "Unknown", "reason": "Before"},
            ]},
        });
        mark_unknown(&mut node, at(0));
        let condition = |type_: &str| {
            let all = node["status"]["conditions"].as_array().expect("conditions");
            all.iter().find(|condition| condition["type"] == type_).expect("a condition").clone()
        };
        assert_eq!(condition("Ready")["status"], "Unknown");
        assert_eq!(condition("Ready")["reason"], "NodeStatusUnknown");
        assert_eq!(condition("Ready")["message"], "Kubelet stopped posting node status.");
        assert_eq!(
            condition("Ready")["lastHeartbeatTime"],
            "2026-01-02T00:00:00Z",
            "as the kubelet left it"
        );
        assert_eq!(condition("DiskPressure")["reason"], "Before");
        for type_ in ["MemoryPressure", "PIDPressure"] {
            assert_eq!(condition(type_)["reason"], "NodeStatusNeverUpdated");
            assert_eq!(condition(type_)["message"], "Kubelet never posted node status.");
            assert_eq!(condition(type_)["lastHeartbeatTime"], "2026-01-01T00:00:00Z");
        }
        assert_eq!(condition("NetworkUnavailable")["status"], "False");
        assert_eq!(node["status"]["conditions"].as_array().map(Vec::len), Some(5));
    }

    #[test]
    fn node_without_status_gets_four_conditions() {
        let mut node = json!({"metadata": {"name": "n"}});
        mark_unknown(&mut node, at(0));
        assert_eq!(node["status"]["conditions"].as_array().map(Vec::len), Some(4));
    }
}
