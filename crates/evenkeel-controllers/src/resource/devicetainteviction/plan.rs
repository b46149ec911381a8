//! Eviction of a pod by taints of its devices. Upstream: `handlePod`, `maybeDeletePod`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | time of the eviction | `./taints.rs` |
//! | an eviction that is no longer necessary is cancelled, with an event | `plan` |
//! | condition `DisruptionTarget`: `DeletionByDeviceTaintManager` | `evict` |
//! | a pod is evicted once | `Memory`, `plan` |

use super::taints::{Eviction, ObservedPod, pod_eviction};
use crate::{
    disruption::{DisruptionReason, add_condition},
    resource::rules::Rule,
    wire,
};
use evenkeel_api::{
    Text, View,
    time::{Timestamp, seconds},
    views::Pod,
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Delete, EventRecord, LiveRead, OnError, Outcomes, Plan, Steps},
};
use std::{sync::Arc, time::Duration};

/// Reason and message of the condition of pods that a device taint evicts.
const DISRUPTION_CONDITION: DisruptionReason = DisruptionReason {
    reason: "DeletionByDeviceTaintManager",
    message: "Device Taint manager: deleting due to NoExecute taint",
    has_generation: false,
};
/// Reason of the events about evictions.
const EVENT_REASON: &str = "DeviceTaintManagerEviction";

/// A pod with its claims, and the rules that evict.
pub(super) struct Observed {
    pub(super) pod: ObservedPod,
    pub(super) rules: Vec<Arc<Rule>>,
}

/// Decision about a pod, for the pod's next pass. Upstream: `deletePodAt`, `evictedPods`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Memory {
    /// The pod stays.
    #[default]
    Stays,
    /// The pod with this uid is evicted when the eviction is due.
    Scheduled(Text, Eviction),
    /// The pod with this uid was evicted.
    Evicted(Text),
}

impl Memory {
    /// Returns the scheduled eviction of the pod with this uid.
    pub(super) fn scheduled(&self, uid: &str) -> Option<&Eviction> {
        match self {
            Self::Scheduled(pod_uid, eviction) if &**pod_uid == uid => Some(eviction),
            _ => None,
        }
    }

    /// Returns the eviction if it is due.
    fn due(&self, observed: &Observed, now: Timestamp) -> Option<&Eviction> {
        let scheduled = self.scheduled(&observed.pod.pod.meta.uid);
        scheduled.filter(|eviction| eviction.due <= now)
    }
}

/// Schedules, cancels or begins the eviction of a pod. Upstream: `handlePod`.
pub(super) fn plan(observed: &Observed, memory: &Memory, now: Timestamp) -> (Plan, Memory) {
    let pod = &*observed.pod.pod;
    let uid = &pod.meta.uid;
    if matches!(memory, Memory::Evicted(pod_uid) if pod_uid == uid) {
        return (Plan::nothing(), memory.clone());
    }
    let Some(eviction) = pod_eviction(&observed.pod, &observed.rules) else {
        let is_cancelled = memory.scheduled(uid).is_some();
        let event = is_cancelled.then(|| event(pod, "Cancelling deletion").into());
        return (Plan::of(event.into_iter().collect()), Memory::Stays);
    };
    let remaining = Duration::try_from(eviction.due.duration_since(now)).unwrap_or_default();
    let memory = Memory::Scheduled(uid.clone(), eviction);
    if remaining.is_zero() {
        let first = next(observed, &memory, &Outcomes::default(), now);
        return (first.unwrap_or_default(), memory);
    }
    (Plan { requeue: Some(remaining), ..Plan::nothing() }, memory)
}

/// Returns the next step of an eviction that is due.
pub(super) fn next(
    observed: &Observed,
    memory: &Memory,
    outcomes: &Outcomes,
    now: Timestamp,
) -> Option<Plan> {
    memory.due(observed, now)?;
    Steps::next(outcomes, |steps| evict(&observed.pod.pod, now, steps))
}

/// Reads the pod live, adds the condition and deletes it. Upstream: `addConditionAndDeletePod`.
fn evict(pod: &Pod, now: Timestamp, steps: &mut Steps<'_>) -> Result<Plan, Plan> {
    let read = LiveRead::get::<Pod>(&Pod::kind(), &pod.meta.namespace, &pod.meta.name);
    let outcome = steps.one(LiveRead { on_error: OnError::Abort, ..read })?;
    let live = match outcome.object::<Pod>() {
        Ok(live) => live.filter(|live| live.meta.uid == pod.meta.uid && !live.meta.deleting()),
        Err(error) => return Ok(Plan::failure(error.message)),
    };
    let Some(live) = live else { return Ok(Plan::nothing()) };
    let mut plan = Plan::one(event(&live, "Marking for deletion"));
    if let Some(patch) = add_condition(&live, DISRUPTION_CONDITION, now) {
        plan.push(patch);
    }
    plan.push(Delete::new(wire::target(&live)));
    Ok(plan)
}

fn event(pod: &Pod, message: &str) -> EventRecord {
    EventRecord::normal(wire::target(pod), EVENT_REASON, message)
}

/// Result of an eviction that ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The pod was deleted, by this controller or before.
    Deleted,
    /// No pod with the uid existed any longer. Upstream does not count this.
    Gone,
}

/// Returns the result of an eviction, or `None` if none was due, or if it failed.
pub(super) fn ended(
    observed: &Observed,
    memory: &Memory,
    outcomes: &Outcomes,
    now: Timestamp,
) -> Option<Ended> {
    memory.due(observed, now)?;
    let (read, writes) = outcomes.0.split_first()?;
    if writes.iter().any(|write| write.error.is_some()) {
        return None;
    }
    match read.object::<Pod>() {
        Ok(Some(live)) if live.meta.uid == observed.pod.pod.meta.uid => Some(Ended::Deleted),
        Ok(_) => Some(Ended::Gone),
        Err(_) => None,
    }
}

/// Describes the eviction and its causes.
pub(super) fn describe(observed: &Observed, now: Timestamp) -> Description {
    let mut description = Description::new();
    for claim in &observed.pod.claims {
        description.fact("claim", &claim.claim.meta().name);
    }
    if let Some(eviction) = pod_eviction(&observed.pod, &observed.rules) {
        for origin in &eviction.origins {
            description.fact("tainted by", origin);
        }
        if eviction.due > now {
            description.waits(format!("the taints are tolerated until {}", seconds(eviction.due)));
        }
    }
    description
}

#[cfg(test)]
mod tests {
    use super::super::{
        fixtures::{NEVER, claim, observed_pod, pod, rule, slice, toleration},
        taints::NO_EXECUTE,
    };
    use super::*;
    use crate::fixtures::{T0, at};
    use evenkeel_runtime::plan::{Action, Failure, Outcome, PatchType, Reply, lint};
    use serde_json::{Value, json};

    /// Returns the pod with a device that is tainted at `T0`.
    fn observed(tolerations: &Value) -> Observed {
        let slices = [slice("s", 1, &[("d", 0)])];
        Observed { pod: observed_pod(pod(), claim(tolerations), &slices), rules: Vec::new() }
    }

    fn live(meta: &Value) -> Outcome {
        let mut object =
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "status": {}});
        for (field, value) in meta.as_object().unwrap() {
            object["metadata"][field] = value.clone();
        }
        Outcome { reply: Some(Reply::json(object.to_string())), ..Outcome::success() }
    }

    fn messages(plan: &Plan) -> Vec<&str> {
        let events = plan.actions.iter().filter_map(|action| match action {
            Action::Event(event) => Some((event, &*event.message)),
            _ => None,
        });
        events
            .map(|(event, message)| {
                assert_eq!((&*event.reason, event.warning), (EVENT_REASON, false));
                assert_eq!((&*event.regarding.name, &*event.regarding.uid), ("p", "p"));
                message
            })
            .collect()
    }

    #[test]
    fn due_eviction_reads_the_pod_and_deletes_it() {
        let observed = observed(&json!([]));
        let (first, memory) = plan(&observed, &Memory::Stays, T0);
        assert!(
            matches!(&first.actions[..], [Action::Read(read)] if read.path() == "/api/v1/namespaces/ns/pods/p")
        );
        assert_eq!(memory.scheduled("p").map(|eviction| eviction.due), Some(T0));
        let mut outcomes = Outcomes(vec![live(&json!({}))]);
        let second = next(&observed, &memory, &outcomes, T0).unwrap();
        assert_eq!(messages(&second), ["Marking for deletion"]);
        let [_, Action::Patch(patch), Action::Delete(delete)] = &second.actions[..] else {
            panic!("{second:?}")
        };
        assert_eq!((patch.form, patch.subresource), (PatchType::Strategic, "status"));
        let body: Value = serde_json::from_slice(&patch.body).unwrap();
        let condition = &body["status"]["conditions"][0];
        assert_eq!(condition["reason"], "DeletionByDeviceTaintManager");
        assert_eq!(condition["message"], "Device Taint manager: deleting due to NoExecute taint");
        assert!(condition["observedGeneration"].is_null());
        assert_eq!((&*delete.target.uid, delete.grace_seconds), ("p", None));
        assert!(lint(&second).is_empty());
        // The outcomes of all steps: read, event, patch and delete.
        outcomes.0.extend([Outcome::default(), Outcome::success(), Outcome::success()]);
        assert_eq!(next(&observed, &memory, &outcomes, T0), None);
        assert_eq!(ended(&observed, &memory, &outcomes, T0), Some(Ended::Deleted));
        outcomes.0[3] = Outcome::failure(Failure::local("no"));
        assert_eq!(ended(&observed, &memory, &outcomes, T0), None);
    }

    #[test]
    fn replaced_and_deleted_pods_end_the_eviction() {
        let observed = observed(&json!([]));
        let (_, memory) = plan(&observed, &Memory::Stays, T0);
        let not_found = Outcome::failure(Failure { code: 404, ..Failure::local("gone") });
        let table = [
            (live(&json!({"uid": "other"})), Some(Ended::Gone)),
            (not_found, Some(Ended::Gone)),
            (live(&json!({"deletionTimestamp": seconds(T0)})), Some(Ended::Deleted)),
            (Outcome::failure(Failure { code: 500, ..Failure::local("no") }), None),
        ];
        for (read, want) in table {
            let outcomes = Outcomes(vec![read]);
            let plan = next(&observed, &memory, &outcomes, T0).unwrap_or_default();
            assert!(plan.actions.is_empty(), "{plan:?}");
            assert_eq!(ended(&observed, &memory, &outcomes, T0), want);
        }
    }

    #[test]
    fn tolerated_taint_delays_and_a_removed_one_cancels() {
        let tolerating = observed(&json!([toleration("k", 30)]));
        let (waiting, memory) = plan(&tolerating, &Memory::Stays, at(10));
        assert_eq!(waiting, Plan { requeue: Some(Duration::from_secs(20)), ..Plan::nothing() });
        assert_eq!(next(&tolerating, &memory, &Outcomes::default(), at(10)), None);
        assert_eq!(ended(&tolerating, &memory, &Outcomes::default(), at(10)), None);
        let untainted = observed(&json!([toleration("k", NEVER)]));
        let (cancelled, after) = plan(&untainted, &memory, at(11));
        assert_eq!(messages(&cancelled), ["Cancelling deletion"]);
        assert_eq!(after, Memory::Stays);
        // Another pod of that name was not scheduled.
        let Memory::Scheduled(_, eviction) = memory else { panic!("{memory:?}") };
        let of_other = Memory::Scheduled("other".into(), eviction);
        assert_eq!(plan(&untainted, &of_other, at(11)), (Plan::nothing(), Memory::Stays));
    }

    #[test]
    fn evicted_pod_is_left_alone() {
        let evicted = Memory::Evicted("p".into());
        for observed in [observed(&json!([])), observed(&json!([toleration("k", NEVER)]))] {
            assert_eq!(plan(&observed, &evicted, T0), (Plan::nothing(), evicted.clone()));
        }
        let (again, _) = plan(&observed(&json!([])), &Memory::Evicted("other".into()), T0);
        assert_eq!(again.actions.len(), 1);
    }

    #[test]
    fn rules_evict_too() {
        let mut observed = observed(&json!([toleration("k", 30)]));
        observed.rules = vec![Arc::new(rule("r", NO_EXECUTE, "d", -40))];
        let (first, memory) = plan(&observed, &Memory::Stays, T0);
        assert_eq!(first.actions.len(), 1);
        let rules: Vec<_> = memory.scheduled("p").unwrap().rules().collect();
        assert_eq!(rules, [(&"r".into(), &"r-uid".into())]);
    }
}
