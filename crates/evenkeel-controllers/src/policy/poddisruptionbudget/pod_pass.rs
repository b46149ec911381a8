//! Reconciliation of pods: resets stale conditions `DisruptionTarget` (Upstream: `syncStalePodDisruption`), and records
//! an event if several budgets select a pod (Upstream: `getPdbForPod`).

use crate::{disruption::DISRUPTION_TARGET, pods::is_terminal, wire};
use evenkeel_api::{
    condition,
    time::{SignedDuration, Timestamp, seconds},
    views::{Pod, PodDisruptionBudget},
};
use evenkeel_runtime::plan::{EventRecord, Patch, PatchType, Plan};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Time after which the condition of a pod without deletion timestamp is stale. Upstream: `stalePodDisruptionTimeout`.
pub(super) const STALE_POD_DISRUPTION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// Returns the transition time of a condition that is or will become stale. A condition set by the kubelet never
/// becomes stale. Upstream: `nonTerminatingPodHasStaleDisruptionCondition`.
pub(super) fn stale_condition_time(pod: &Pod) -> Option<Timestamp> {
    if pod.meta.deleting() || is_terminal(pod) {
        return None;
    }
    let condition = condition::find(&pod.status.conditions, DISRUPTION_TARGET)?;
    if &*condition.status != condition::TRUE || &*condition.reason == "TerminationByKubelet" {
        return None;
    }
    Some(condition.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH))
}

/// A pod and the budgets that select it.
pub(super) struct Observed {
    pub(super) pod: Arc<Pod>,
    /// The budgets that select the pod, sorted by name.
    pub(super) budgets: Vec<Arc<PodDisruptionBudget>>,
}

/// Returns the event and the patch of a pod. If its condition is not yet stale, requeues the pod for that time.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let pod = &*observed.pod;
    let mut plan = Plan::nothing();
    if let [first, _, ..] = &*observed.budgets {
        let namespace = &*pod.meta.namespace;
        let name = &*pod.meta.name;
        let first = &*first.meta.name;
        let message = format!(
            "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {first:?} arbitrarily."
        );
        plan.push(EventRecord::warning(wire::target(pod), "MultiplePodDisruptionBudgets", message));
    }
    let Some(since) = stale_condition_time(pod) else { return plan };
    let remaining = STALE_POD_DISRUPTION_TIMEOUT - now.duration_since(since);
    if let Ok(remaining) = Duration::try_from(remaining)
        && !remaining.is_zero()
    {
        plan.requeue_after(remaining);
        return plan;
    }
    // The patch clears reason and message together with the status.
    let reset_condition = json!({
        "type": DISRUPTION_TARGET, "status": "False", "reason": null, "message": null,
        "lastProbeTime": null, "lastTransitionTime": seconds(now),
        "observedGeneration": pod.meta.generation,
    });
    let body = json!({
        "metadata": {"uid": &*pod.meta.uid, "resourceVersion": &*pod.meta.resource_version},
        "status": {"conditions": [reset_condition]},
    });
    plan.push(Patch {
        subresource: "status",
        ..Patch::new(wire::target(pod), PatchType::Strategic, body.to_string())
    });
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, pod};
    use evenkeel_api::views::PodCondition;
    use evenkeel_runtime::plan::Action;

    fn disruption_target(reason: &str, since: Timestamp) -> Pod {
        let mut pod = pod("p", None);
        pod.status.conditions = Box::new([PodCondition {
            type_: DISRUPTION_TARGET.into(),
            status: "True".into(),
            reason: reason.into(),
            last_transition_time: Some(since),
            ..PodCondition::default()
        }]);
        pod
    }

    fn plan_of(pod: Pod, now: Timestamp) -> Plan {
        plan(&Observed { pod: Arc::new(pod), budgets: Vec::new() }, now)
    }

    #[test]
    fn stale_disruption_target_is_reset_after_two_minutes() {
        let early = plan_of(disruption_target("EvictionByEvictionAPI", T0), at(119));
        assert_eq!((early.actions.len(), early.requeue), (0, Some(Duration::from_secs(1))));
        let due = plan_of(disruption_target("EvictionByEvictionAPI", T0), at(120));
        let [Action::Patch(patch)] = &*due.actions else { panic!("{due:?}") };
        let body: serde_json::Value = serde_json::from_slice(&patch.body).expect("JSON");
        assert_eq!(body["status"]["conditions"][0]["status"], "False");
        assert_eq!(body["status"]["conditions"][0]["observedGeneration"], 1);
        assert_eq!(patch.subresource, "status");
    }

    #[test]
    fn other_disruption_targets_are_kept() {
        assert!(plan_of(disruption_target("TerminationByKubelet", T0), at(9999)).is_nothing());
        let mut terminating = disruption_target("PreemptionByScheduler", T0);
        terminating.meta.deletion = Some(T0);
        assert!(plan_of(terminating, at(9999)).is_nothing());
        let mut ended = disruption_target("PreemptionByScheduler", T0);
        ended.status.phase = "Failed".into();
        assert!(plan_of(ended, at(9999)).is_nothing());
        assert!(plan_of(pod("p", Some(T0)), at(9999)).is_nothing());
    }
}
