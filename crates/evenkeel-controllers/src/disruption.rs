//! Condition `DisruptionTarget` of pods that a controller deletes (KEP-3329).

use crate::wire;
use evenkeel_api::{
    time::{Timestamp, seconds},
    views::Pod,
};
use evenkeel_runtime::plan::{OnError, Patch, PatchForm};
use serde_json::{Value, json};

const CONDITION: &str = "DisruptionTarget";

/// Reason and message of the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Why {
    /// Machine-readable reason in CamelCase.
    pub(crate) reason: &'static str,
    /// Message of the `DisruptionTarget` condition, for people.
    pub(crate) message: &'static str,
}

/// Returns the patch that adds the condition and, with `fails`, sets the phase `Failed`. `None` if the status
/// has both already. If the patch fails, later actions are skipped.
pub(crate) fn marked(pod: &Pod, why: Option<Why>, fails: bool, now: Timestamp) -> Option<Patch> {
    let mut status = json!({});
    if fails && !crate::pods::is_terminal(pod) {
        status["phase"] = json!("Failed");
        status["observedGeneration"] = json!(pod.meta.generation);
    }
    if let Some(condition) = why.and_then(|why| condition(pod, why, now)) {
        status["conditions"] = json!([condition]);
        status["$setElementOrder/conditions"] = order(pod);
    }
    if status.as_object().is_none_or(serde_json::Map::is_empty) {
        return None;
    }
    let body = json!({"metadata": {"uid": &*pod.meta.uid}, "status": status});
    Some(Patch {
        subresource: "status",
        on_error: OnError::SkipRest,
        ..Patch::new(wire::target(pod), PatchForm::Strategic, body.to_string())
    })
}

/// Keeps the order of existing conditions; by default a strategic merge patch puts new entries first.
fn order(pod: &Pod) -> Value {
    let types = pod.status.conditions.iter().map(|condition| &*condition.type_);
    let missing = types.clone().all(|type_| type_ != CONDITION).then_some(CONDITION);
    types.chain(missing).map(|type_| json!({"type": type_})).collect()
}

fn condition(pod: &Pod, why: Why, now: Timestamp) -> Option<Value> {
    let before = pod.status.conditions.iter().find(|condition| &*condition.type_ == CONDITION);
    let holds = before.filter(|before| &*before.status == "True");
    if holds.is_some_and(|held| &*held.reason == why.reason && &*held.message == why.message) {
        return None;
    }
    let since = holds.and_then(|held| held.last_transition_time).unwrap_or(now);
    Some(json!({
        "type": CONDITION, "status": "True", "reason": why.reason, "message": why.message,
        "lastTransitionTime": seconds(since), "observedGeneration": pod.meta.generation,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, pod};
    use evenkeel_api::views::PodCondition;

    const WHY: Why = Why { reason: "Because", message: "of it" };

    fn body(patch: &Patch) -> Value {
        serde_json::from_slice(&patch.body).expect("JSON")
    }

    #[test]
    fn disruption_target_condition_is_added_once() {
        let mut pod = pod("a", Some(T0));
        let patch = marked(&pod, Some(WHY), false, T0).expect("the condition is missing");
        let status = &body(&patch)["status"];
        assert_eq!(status["conditions"][0]["reason"], "Because");
        let order = json!([{"type": "Ready"}, {"type": CONDITION}]);
        assert_eq!(status["$setElementOrder/conditions"], order);
        assert!(status["phase"].is_null());
        pod.status.conditions = Box::new([PodCondition {
            type_: CONDITION.into(),
            status: "True".into(),
            reason: "Because".into(),
            message: "of it".into(),
            ..PodCondition::default()
        }]);
        assert_eq!(marked(&pod, Some(WHY), false, T0), None);
        assert_eq!(
            body(&marked(&pod, Some(WHY), true, T0).expect("not failed"))["status"]["phase"],
            "Failed"
        );
        pod.status.phase = "Succeeded".into();
        assert_eq!(marked(&pod, None, true, T0), None);
    }
}
