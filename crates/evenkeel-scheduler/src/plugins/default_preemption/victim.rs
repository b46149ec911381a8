//! Event, condition and outcome of the preemption of a victim.

use evenkeel_api::{View as _, time::Timestamp, views::Pod};
use evenkeel_runtime::plan::{EventRecord, Target};
use serde_json::{Value, json};

/// Condition of a pod that is about to be deleted by a disruption.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Reason of the condition for victims of a preemption.
const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";

/// Outcome of the preemption of one victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreemptOutcome {
    /// The API server deleted the victim. The cache will report the deletion.
    Deleted,
    /// The scheduler cancelled the victim, which was only assumed. No event follows.
    CancelledInMemory,
    /// The victim no longer existed.
    NotFound,
}

/// Returns whether the executor must activate the preemptor, because no event will requeue it. If the last victim was
/// not found, the queue may have ignored its deletion while the preemptor was gated. If the cache still has the victim,
/// the event of its deletion will follow.
pub(super) fn needs_activation(last_outcome: PreemptOutcome, is_last_cached: bool) -> bool {
    match last_outcome {
        PreemptOutcome::Deleted => false,
        PreemptOutcome::CancelledInMemory => true,
        PreemptOutcome::NotFound => !is_last_cached,
    }
}

/// Returns the event `Preempted` of a victim. `in_memory` means that the victim was only assumed.
pub(super) fn preempted_event(
    victim: &Pod,
    preemptor_uid: &str,
    node: &str,
    in_memory: bool,
) -> EventRecord {
    let suffix = if in_memory { " (in kube-scheduler memory)." } else { "" };
    EventRecord {
        regarding: Target::of(Pod::kind(), &victim.meta),
        warning: false,
        reason: "Preempted".into(),
        message: format!("Preempted by pod {preemptor_uid} on node {node}{suffix}"),
    }
}

/// Returns the message of the condition `DisruptionTarget`.
pub(super) fn disruption_target_message(preemptor: &Pod) -> String {
    let scheduler = match &*preemptor.spec.scheduler_name {
        "" => crate::DEFAULT_SCHEDULER,
        name => name,
    };
    format!("{scheduler}: preempting to accommodate a higher priority pod")
}

/// Returns the status patch that sets `DisruptionTarget`, or `None` if the victim already has that condition.
pub(super) fn disruption_target_patch(
    victim: &Pod,
    message: &str,
    now: Timestamp,
) -> Option<Value> {
    let conditions = &victim.status.conditions;
    let current = conditions.iter().find(|condition| &*condition.type_ == DISRUPTION_TARGET);
    let is_up_to_date = current.is_some_and(|current| {
        &*current.status == "True"
            && &*current.reason == PREEMPTION_BY_SCHEDULER
            && *current.message == *message
    });
    if is_up_to_date {
        return None;
    }
    let current_true = current.filter(|current| &*current.status == "True");
    let last_transition = current_true.and_then(|current| current.last_transition_time);
    let mut types: Vec<&str> = conditions.iter().map(|condition| &*condition.type_).collect();
    if current.is_none() {
        types.push(DISRUPTION_TARGET);
    }
    let order: Vec<Value> = types.into_iter().map(|type_| json!({ "type": type_ })).collect();
    let mut condition = json!({
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTION_BY_SCHEDULER,
        "message": message,
        "lastTransitionTime": evenkeel_api::time::seconds(last_transition.unwrap_or(now)),
    });
    if current.is_none() {
        condition["lastProbeTime"] = Value::Null;
    }
    if victim.meta.generation != 0 {
        condition["observedGeneration"] = victim.meta.generation.into();
    }
    Some(json!({ "$setElementOrder/conditions": order, "conditions": [condition] }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, pod};

    #[test]
    fn disruption_target_is_set_once() {
        let ready = json!({ "type": "Ready", "status": "True" });
        let fresh = pod("v", &json!({ "status": { "conditions": [ready] } }));
        let status = disruption_target_patch(&fresh, "for another", at(9)).unwrap();
        assert_eq!(
            status["$setElementOrder/conditions"],
            json!([{ "type": "Ready" }, { "type": DISRUPTION_TARGET }])
        );
        let mut condition_json = status["conditions"][0].clone();
        assert_eq!(
            (&condition_json["reason"], &condition_json["observedGeneration"]),
            (&json!(PREEMPTION_BY_SCHEDULER), &json!(1))
        );
        condition_json["lastTransitionTime"] = "2027-01-15T08:00:05Z".into();
        let victim = pod("v", &json!({ "status": { "conditions": [condition_json] } }));
        assert_eq!(disruption_target_patch(&victim, "for another", at(9)), None);
        let other = disruption_target_patch(&victim, "for yet another", at(9)).unwrap();
        assert_eq!(other["conditions"][0]["lastTransitionTime"], "2027-01-15T08:00:05Z");
    }
}
