//! Condition `PodScheduled` of an unschedulable pod.

use crate::framework::NominatingInfo;
use evenkeel_api::{time::Timestamp, views::Pod};
use serde_json::{Value, json};

/// Maximum length of an event's message in bytes.
///
/// Upstream: `NoteLengthLimit`.
const NOTE_LENGTH_LIMIT: usize = 1024;
/// Condition type: the pod is assigned to a node.
const POD_SCHEDULED: &str = "PodScheduled";

/// Failure of a scheduling attempt, as reported in the pod's status.
pub(crate) struct FailureStatus<'a> {
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    pub(crate) nominating_info: &'a NominatingInfo,
    /// Whether the binding cycle set a nomination that this version of the pod may not show yet.
    pub(crate) has_nomination: bool,
}

/// Returns the patch that sets `PodScheduled=False` and the nomination, or `None` if the status is up to date. Like
/// upstream's patch, it contains only changed fields and the order of all conditions.
pub(crate) fn patch(pod: &Pod, failure: &FailureStatus<'_>, now: Timestamp) -> Option<String> {
    let condition = condition_patch(pod, failure, now);
    let current = &*pod.status.nominated_node_name;
    let nomination = failure.nominating_info.node_name();
    let nomination =
        nomination.filter(|node| *node != current || (node.is_empty() && failure.has_nomination));
    if condition.is_none() && nomination.is_none() {
        return None;
    }
    let mut status = json!({});
    if let Some(condition) = condition {
        let mut types: Vec<&str> =
            pod.status.conditions.iter().map(|condition| &*condition.type_).collect();
        if !types.contains(&POD_SCHEDULED) {
            types.push(POD_SCHEDULED);
        }
        let order: Vec<Value> = types.into_iter().map(|type_| json!({ "type": type_ })).collect();
        status["$setElementOrder/conditions"] = order.into();
        status["conditions"] = json!([condition]);
    }
    match nomination {
        Some("") => status["nominatedNodeName"] = Value::Null,
        Some(node) => status["nominatedNodeName"] = node.into(),
        None => {}
    }
    Some(json!({ "metadata": { "uid": pod.meta.uid }, "status": status }).to_string())
}

/// Returns the changed fields of the condition, or `None` if none changed.
fn condition_patch(pod: &Pod, failure: &FailureStatus<'_>, now: Timestamp) -> Option<Value> {
    let current = pod.status.conditions.iter().find(|condition| &*condition.type_ == POD_SCHEDULED);
    let now = json!(evenkeel_api::time::seconds(now));
    let generation = pod.meta.generation;
    let Some(current) = current else {
        let mut condition = json!({
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": failure.reason,
            "message": failure.message,
            "lastProbeTime": null,
            "lastTransitionTime": now,
        });
        if generation != 0 {
            condition["observedGeneration"] = generation.into();
        }
        return Some(condition);
    };
    let mut condition = json!({});
    if &*current.status != "False" {
        condition["status"] = "False".into();
        condition["lastTransitionTime"] = now;
    }
    if *current.reason != *failure.reason {
        condition["reason"] = failure.reason.into();
    }
    if *current.message != *failure.message {
        condition["message"] = failure.message.into();
    }
    if current.observed_generation != generation {
        condition["observedGeneration"] = generation.into();
    }
    let changed = condition.as_object().is_some_and(|condition| !condition.is_empty());
    changed.then(|| {
        condition["type"] = POD_SCHEDULED.into();
        condition
    })
}

/// Truncates an event's message to at most `NOTE_LENGTH_LIMIT` bytes.
///
/// Upstream: `truncateMessage`.
pub(crate) fn truncate_message(message: &str) -> String {
    const ELLIPSIS: &str = " ...";
    if message.len() <= NOTE_LENGTH_LIMIT {
        return message.to_owned();
    }
    let mut end = NOTE_LENGTH_LIMIT - ELLIPSIS.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ELLIPSIS}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    /// Checks the status that the patch sets for an unschedulable pod, nine seconds after the epoch of the fixtures.
    #[track_caller]
    fn check(pod: &Value, failure_status: &FailureStatus<'_>, expected: Option<Value>) {
        let patch = patch(&crate::fixtures::pod("p", pod), failure_status, at(9));
        let patch: Option<Value> = patch.map(|patch| serde_json::from_str(&patch).unwrap());
        let expected =
            expected.map(|status| json!({ "metadata": { "uid": "p" }, "status": status }));
        let FailureStatus { message, nominating_info, .. } = failure_status;
        assert_eq!(patch, expected, "{message} {nominating_info:?} over {pod}");
    }

    fn unschedulable<'a>(
        message: &'a str,
        nominating_info: &'a NominatingInfo,
    ) -> FailureStatus<'a> {
        FailureStatus { reason: "Unschedulable", message, nominating_info, has_nomination: false }
    }

    #[test]
    fn patches_contain_only_changed_fields() {
        let pod_scheduled = |status: &str| {
            json!({
                "type": "PodScheduled", "status": status, "reason": "Unschedulable", "message": "no room",
                "observedGeneration": 1, "lastTransitionTime": "2027-01-15T08:00:05Z",
            })
        };
        let ready = json!({ "type": "Ready", "status": "False" });
        let pod_with = |conditions: &[&Value], node: &str| {
            json!({ "status": {
            "conditions": conditions, "nominatedNodeName": node,
        } })
        };
        let without_pod_scheduled = pod_with(&[&ready], "");
        let now = "2027-01-15T08:00:09Z";
        check(
            &without_pod_scheduled,
            &unschedulable("no room", &NominatingInfo::Keep),
            Some(json!({
                "$setElementOrder/conditions": [{ "type": "Ready" }, { "type": "PodScheduled" }],
                "conditions": [{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room",
                    "lastProbeTime": null, "lastTransitionTime": now, "observedGeneration": 1,
                }],
            })),
        );
        let patched = pod_with(&[&pod_scheduled("False")], "a");
        check(&patched, &unschedulable("no room", &NominatingInfo::Keep), None);
        check(&patched, &unschedulable("no room", &NominatingInfo::Node("a".into())), None);
        check(
            &patched,
            &unschedulable("no room", &NominatingInfo::Node("b".into())),
            Some(json!({ "nominatedNodeName": "b" })),
        );
        check(
            &patched,
            &unschedulable("no room", &NominatingInfo::Clear),
            Some(json!({ "nominatedNodeName": null })),
        );
        check(
            &pod_with(&[&pod_scheduled("False")], ""),
            &unschedulable("no room", &NominatingInfo::Clear),
            None,
        );
        check(
            &pod_with(&[&pod_scheduled("False")], ""),
            &FailureStatus {
                has_nomination: true,
                ..unschedulable("no room", &NominatingInfo::Clear)
            },
            Some(json!({ "nominatedNodeName": null })),
        );
        let order = json!([{ "type": "PodScheduled" }]);
        check(
            &patched,
            &unschedulable("less room", &NominatingInfo::Keep),
            Some(json!({
                "$setElementOrder/conditions": order,
                "conditions": [{ "type": "PodScheduled", "message": "less room" }],
            })),
        );
        check(
            &pod_with(&[&pod_scheduled("True")], ""),
            &unschedulable("no room", &NominatingInfo::Keep),
            Some(json!({
                "$setElementOrder/conditions": order,
                "conditions": [{ "type": "PodScheduled", "status": "False", "lastTransitionTime": now }],
            })),
        );
    }

    #[test]
    fn long_messages_are_truncated_at_character_boundaries() {
        assert_eq!(truncate_message("short"), "short");
        let cut = truncate_message(&"ü".repeat(1000));
        assert!(cut.len() <= NOTE_LENGTH_LIMIT && cut.ends_with("..."));
    }
}
