//! Condition `DisruptionTarget` of pods that a controller deletes (KEP-3329).

use crate::{pods::is_terminal, wire};
use evenkeel_api::{
    time::{Timestamp, seconds},
    views::Pod,
};
use evenkeel_runtime::plan::{OnError, Patch, PatchType};
use serde_json::{Value, json};

/// Condition of a pod that is about to be deleted by a disruption. Upstream: `DisruptionTarget`.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Reason and message of the condition `DisruptionTarget`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DisruptionReason {
    /// Machine-readable reason in CamelCase.
    pub(crate) reason: &'static str,
    /// Message for people.
    pub(crate) message: &'static str,
    /// Whether the condition has `observedGeneration`. Upstream's device taint eviction controller omits it.
    pub(crate) has_generation: bool,
}

/// Returns the patch that adds the condition with this reason, or `None` if the pod has the condition already. If the
/// patch fails, later actions are skipped.
pub(crate) fn add_condition(pod: &Pod, reason: DisruptionReason, now: Timestamp) -> Option<Patch> {
    let mut status = json!({});
    set_condition(&mut status, pod, reason, now);
    status_patch(pod, &status)
}

/// Returns the patch that sets the phase `Failed`, and adds the condition if `reason` is set. `None` if the pod is
/// terminal. If the patch fails, later actions are skipped.
pub(crate) fn mark_failed(
    pod: &Pod,
    reason: Option<DisruptionReason>,
    now: Timestamp,
) -> Option<Patch> {
    if is_terminal(pod) {
        return None;
    }
    let mut status = json!({ "phase": "Failed", "observedGeneration": pod.meta.generation });
    if let Some(reason) = reason {
        set_condition(&mut status, pod, reason, now);
    }
    status_patch(pod, &status)
}

/// Returns the patch of a pod's status, or `None` if it changes nothing.
fn status_patch(pod: &Pod, status: &Value) -> Option<Patch> {
    if status.as_object().is_none_or(serde_json::Map::is_empty) {
        return None;
    }
    let body = json!({"metadata": {"uid": &*pod.meta.uid}, "status": status});
    Some(Patch {
        subresource: "status",
        on_error: OnError::SkipRest,
        ..Patch::new(wire::target(pod), PatchType::Strategic, body.to_string())
    })
}

/// Adds the condition to a patch of the status, unless the pod has it.
fn set_condition(status: &mut Value, pod: &Pod, reason: DisruptionReason, now: Timestamp) {
    let conditions = pod.status.conditions.iter();
    let current = conditions.clone().find(|condition| &*condition.type_ == DISRUPTION_TARGET);
    let current_true = current.filter(|current| &*current.status == "True");
    let DisruptionReason { reason, message, has_generation } = reason;
    let is_set = current_true
        .is_some_and(|current| &*current.reason == reason && &*current.message == message);
    if is_set {
        return;
    }
    let since = current_true.and_then(|current| current.last_transition_time).unwrap_or(now);
    let mut condition = json!({
        "type": DISRUPTION_TARGET, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": seconds(since),
    });
    if has_generation {
        condition["observedGeneration"] = json!(pod.meta.generation);
    }
    status["conditions"] = json!([condition]);
    // Keep the order of the conditions: by default a strategic merge patch puts new entries first.
    let new = current.is_none().then_some(DISRUPTION_TARGET);
    let types = conditions.map(|condition| &*condition.type_).chain(new);
    status["$setElementOrder/conditions"] = types.map(|type_| json!({"type": type_})).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, pod};
    use evenkeel_api::views::PodCondition;

    const REASON: DisruptionReason =
        DisruptionReason { reason: "Because", message: "of it", has_generation: true };

    fn body(patch: &Patch) -> Value {
        serde_json::from_slice(&patch.body).expect("JSON")
    }

    #[test]
    fn disruption_target_condition_is_added_once() {
        let mut pod = pod("a", Some(T0));
        let patch = add_condition(&pod, REASON, T0).expect("the condition is missing");
        let status = &body(&patch)["status"];
        assert_eq!(status["conditions"][0]["reason"], "Because");
        let order = json!([{"type": "Ready"}, {"type": DISRUPTION_TARGET}]);
        assert_eq!(status["$setElementOrder/conditions"], order);
        assert_eq!(status["conditions"][0]["observedGeneration"], 1);
        assert!(status["phase"].is_null());
        let without = DisruptionReason { has_generation: false, ..REASON };
        let patch = add_condition(&pod, without, T0).expect("the condition is missing");
        assert!(body(&patch)["status"]["conditions"][0]["observedGeneration"].is_null());
        pod.status.conditions = Box::new([PodCondition {
            type_: DISRUPTION_TARGET.into(),
            status: "True".into(),
            reason: "Because".into(),
            message: "of it".into(),
            ..PodCondition::default()
        }]);
        assert_eq!(add_condition(&pod, REASON, T0), None);
        assert_eq!(
            body(&mark_failed(&pod, Some(REASON), T0).expect("not failed"))["status"]["phase"],
            "Failed"
        );
        pod.status.phase = "Succeeded".into();
        assert_eq!(mark_failed(&pod, None, T0), None);
    }
}
