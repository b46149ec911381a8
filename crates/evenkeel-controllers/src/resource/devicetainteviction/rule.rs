//! Status of a DeviceTaintRule: condition `EvictionInProgress`. Upstream: `maybeUpdateRuleStatus`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | effect `NoExecute`: number of pods that must be evicted, and their namespaces | `pending` |
//! | effect `None`: published and allocated devices, and pods that `NoExecute` would evict; once for each generation | `dry_run` |
//! | other effects evict no pod | `condition` |
//! | at most one update in 10 s for a generation | `plan` |

use super::taints::{NO_EXECUTE, ObservedPod, Slice, pod_eviction, selects_allocated};
use crate::{
    resource::{
        podclaims::{Claim, allocated_devices},
        rules::{Rule, selects},
    },
    wire,
};
use evenkeel_api::time::{SignedDuration, Timestamp, seconds};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Patch, PatchType, Plan},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Shortest time between two updates of a rule's status. Upstream: `ruleStatusPeriod`.
pub(super) const RULE_STATUS_PERIOD: Duration = Duration::from_secs(10);

/// Type of the condition. Upstream: `DeviceTaintConditionEvictionInProgress`.
const EVICTION_IN_PROGRESS: &str = "EvictionInProgress";

/// Field manager of the status. Upstream: the controller's name.
const FIELD_MANAGER: &str = "device-taint-eviction-controller";

/// A rule, and the objects that it affects.
pub(super) struct Observed {
    pub(super) rule: Arc<Rule>,
    /// Pods that name a claim with a selected device. Their slices are omitted, because only the rule's taint counts.
    pub(super) pods: Vec<ObservedPod>,
    /// Claims with a selected device.
    pub(super) claims: Vec<Arc<Claim>>,
    /// Slices of selected pools, in all generations, if the rule's effect is `None`.
    pub(super) slices: Vec<Arc<Slice>>,
    /// Number of pods that were evicted because of the rule since the controller started. Upstream: `taintRuleStats`.
    pub(super) evicted: u64,
}

/// Number of pods, and of their namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PodCounts {
    pods: usize,
    namespaces: usize,
}

/// Updates the condition if it changed, and not earlier than 10 s after the last update for the same generation.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let rule = &*observed.rule;
    let existing = existing_condition(rule);
    if let Some(existing) = existing {
        let period = SignedDuration::try_from(RULE_STATUS_PERIOD).unwrap_or_default();
        let remaining = period - now.duration_since(existing.last_transition_time.0);
        let remaining = Duration::try_from(remaining).unwrap_or_default();
        let is_current = existing.observed_generation == rule.metadata.generation;
        if is_current && !remaining.is_zero() {
            return Plan { requeue: Some(remaining), ..Plan::nothing() };
        }
    }
    let wanted = condition(observed);
    // After evictions, pods that still count as pending may be gone: reads may be older than that. Nothing else would
    // lead to another look.
    let is_unsure = observed.evicted > 0 && wanted.status == "True";
    let requeue = is_unsure.then_some(RULE_STATUS_PERIOD);
    if existing.is_some_and(|existing| wanted.equals(existing)) {
        return Plan { requeue, ..Plan::nothing() };
    }
    let target = wire::target(rule);
    let ConditionContent { status, reason, message, observed_generation } = &wanted;
    let body = json!({
        "apiVersion": target.kind.api_version(),
        "kind": target.kind.kind,
        "metadata": {"name": &*target.name, "uid": &*target.uid},
        "status": {"conditions": [{
            "type": EVICTION_IN_PROGRESS,
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": observed_generation,
            "lastTransitionTime": seconds(now),
        }]},
    });
    let patch = Patch::new(target, PatchType::Apply(FIELD_MANAGER), body.to_string());
    Plan { requeue, ..Plan::one(Patch { subresource: "status", ..patch }) }
}

fn existing_condition(rule: &Rule) -> Option<&Condition> {
    let conditions = rule.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.into_iter().flatten().find(|condition| condition.type_ == EVICTION_IN_PROGRESS)
}

/// Condition without its time.
#[derive(Debug, PartialEq, Eq)]
struct ConditionContent {
    status: &'static str,
    reason: String,
    message: String,
    observed_generation: i64,
}

impl ConditionContent {
    /// Returns whether a condition has this content.
    fn equals(&self, condition: &Condition) -> bool {
        self.status == condition.status
            && self.reason == condition.reason
            && self.message == condition.message
            && self.observed_generation == condition.observed_generation.unwrap_or_default()
    }
}

/// Returns the condition of the rule.
fn condition(observed: &Observed) -> ConditionContent {
    let effect = &*observed.rule.spec.taint.effect;
    let mut status = "False";
    let (reason, mut message) = match effect {
        NO_EXECUTE => match pending(observed) {
            PodCounts { pods: 0, .. } if observed.evicted > 0 => ("Completed", String::new()),
            PodCounts { pods: 0, .. } => ("NotStarted", String::new()),
            PodCounts { pods, namespaces } => {
                status = "True";
                let pods = counted(pods, "pod needs to be evicted", "pods need to be evicted");
                let namespaces = counted(namespaces, "namespace", "different namespaces");
                ("PodsPendingEviction", format!("{pods} in {namespaces}."))
            }
        },
        "None" => ("NoEffect", dry_run(observed)),
        _ => ("OtherEffect", "Eviction only happens for the NoExecute effect.".to_owned()),
    };
    if observed.evicted > 0 {
        if !message.is_empty() {
            message.push(' ');
        }
        let evicted = usize::try_from(observed.evicted).unwrap_or(usize::MAX);
        message += &counted(evicted, "pod", "pods");
        message += " evicted since starting the controller.";
    }
    ConditionContent {
        status,
        reason: reason.to_owned(),
        message,
        observed_generation: observed.rule.metadata.generation.unwrap_or_default(),
    }
}

/// Returns the effects that a rule with the effect `None` would have with `NoExecute`.
fn dry_run(observed: &Observed) -> String {
    let PodCounts { pods, namespaces } = pending(observed);
    let published = published_devices(observed);
    let allocated = observed.claims.iter().flat_map(|claim| allocated_devices(claim));
    let allocated = allocated.filter(|device| selects_allocated(&observed.rule, device)).count();
    let published = counted(published, "published device selected", "published devices selected");
    let allocated = counted(allocated, "allocated device selected", "allocated devices selected");
    let pods = counted(pods, "pod would be evicted", "pods would be evicted");
    let namespaces = counted(namespaces, "namespace", "different namespaces");
    format!(
        "{published}. {allocated}. {pods} in {namespaces} if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    )
}

/// Counts the pods that the rule evicts, or would evict. Upstream: `countPendingPods`.
fn pending(observed: &Observed) -> PodCounts {
    let rules = [Arc::clone(&observed.rule)];
    let is_pending = |pod: &&ObservedPod| {
        let eviction = pod_eviction(pod, &rules).filter(|_| !pod.pod.meta.deleting());
        eviction.is_some_and(|eviction| eviction.rules().next().is_some())
    };
    let pods: Vec<_> = observed.pods.iter().filter(is_pending).collect();
    let namespaces: BTreeSet<&str> = pods.iter().map(|pod| &*pod.pod.meta.namespace).collect();
    PodCounts { pods: pods.len(), namespaces: namespaces.len() }
}

/// Counts the selected devices in the newest generation of each pool. Upstream: `countTaintedDevices`.
fn published_devices(observed: &Observed) -> usize {
    let mut newest = BTreeMap::<(&str, &str), i64>::new();
    for slice in &observed.slices {
        let pool = &slice.spec.pool;
        let generation = newest.entry((&slice.spec.driver, &pool.name)).or_insert(i64::MIN);
        *generation = pool.generation.max(*generation);
    }
    let is_selected = |slice: &Slice, device: &str| {
        selects(&observed.rule, &slice.spec.driver, &slice.spec.pool.name, device)
    };
    let current = observed.slices.iter().filter(|slice| {
        let (driver, pool) = (&*slice.spec.driver, &slice.spec.pool);
        newest.get(&(driver, &*pool.name)) == Some(&pool.generation)
    });
    current
        .flat_map(|slice| {
            let devices = slice.spec.devices.iter().flatten();
            devices.filter(move |device| is_selected(slice, &device.name))
        })
        .count()
}

/// Returns the number with the singular or plural noun.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Describes the rule's evictions.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    description.fact("effect", &observed.rule.spec.taint.effect);
    description.fact("pods with a selected device", observed.pods.len());
    description.fact("evicted since the start", observed.evicted);
    description
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{NEVER, claim, observed_pod, pod, rule, slice, toleration};
    use super::*;
    use crate::fixtures::{T0, at};
    use evenkeel_runtime::plan::{Action, lint};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::Value;

    /// Returns a rule with this effect that selects the device `d`, and the names and namespaces of pods with it.
    fn observed(effect: &str, pods: &[(&str, &str)], evicted: u64) -> Observed {
        let one = |(name, namespace): &(&str, &str)| {
            let mut pod = pod();
            (pod.meta.name, pod.meta.namespace) = ((*name).into(), (*namespace).into());
            observed_pod(pod, claim(&json!([])), &[])
        };
        Observed {
            rule: Arc::new(rule("r", effect, "d", 0)),
            pods: pods.iter().map(one).collect(),
            claims: pods.iter().map(|_| Arc::new(claim(&json!([])))).collect(),
            slices: Vec::new(),
            evicted,
        }
    }

    #[test]
    fn condition_counts_pods_by_effect() {
        let (one, three) = ([("a", "x")], [("a", "x"), ("b", "x"), ("c", "y")]);
        // Effect, pods, evicted pods, and the condition's status, reason and message.
        let table = [
            (NO_EXECUTE, &one[..0], 0, ("False", "NotStarted", "")),
            (
                NO_EXECUTE,
                &one[..],
                0,
                ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."),
            ),
            (
                NO_EXECUTE,
                &three[..],
                1,
                (
                    "True",
                    "PodsPendingEviction",
                    "3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller.",
                ),
            ),
            (
                NO_EXECUTE,
                &one[..0],
                2,
                ("False", "Completed", "2 pods evicted since starting the controller."),
            ),
            (
                "NoSchedule",
                &one[..],
                0,
                ("False", "OtherEffect", "Eviction only happens for the NoExecute effect."),
            ),
            (
                "None",
                &one[..],
                0,
                (
                    "False",
                    "NoEffect",
                    "0 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
                ),
            ),
        ];
        for (effect, pods, evicted, (status, reason, message)) in table {
            let content = condition(&observed(effect, pods, evicted));
            assert_eq!((content.status, &*content.reason), (status, reason));
            assert_eq!(content.message, message);
            assert_eq!(content.observed_generation, 1);
        }
    }

    #[test]
    fn deleted_and_tolerating_pods_are_not_pending() {
        let mut deleted = observed(NO_EXECUTE, &[("a", "x")], 0);
        let mut pod_deleted = (*deleted.pods[0].pod).clone();
        pod_deleted.meta.deletion = Some(T0);
        deleted.pods[0].pod = Arc::new(pod_deleted);
        assert_eq!(condition(&deleted).reason, "NotStarted");
        let mut tolerating = observed(NO_EXECUTE, &[("a", "x")], 0);
        tolerating.pods = vec![observed_pod(pod(), claim(&json!([toleration("k", NEVER)])), &[])];
        assert_eq!(condition(&tolerating).reason, "NotStarted");
    }

    #[test]
    fn published_devices_are_those_of_the_newest_generation() {
        let slices = [
            slice("old", 1, &[("d", 0), ("e", 0)]),
            slice("new", 2, &[("d", 0)]),
            slice("more", 2, &[("e", 0)]),
        ];
        let slices = slices.into_iter().map(Arc::new).collect();
        let observed = Observed { slices, ..observed("None", &[], 0) };
        assert!(
            condition(&observed)
                .message
                .starts_with("1 published device selected. 0 allocated devices")
        );
    }

    #[test]
    fn status_is_applied_when_it_changes_and_at_most_every_ten_seconds() {
        let mut state = observed(NO_EXECUTE, &[("a", "x")], 0);
        let first = plan(&state, T0);
        let [Action::Patch(patch)] = &first.actions[..] else { panic!("{first:?}") };
        assert_eq!((patch.form, patch.subresource), (PatchType::Apply(FIELD_MANAGER), "status"));
        let body: Value = serde_json::from_slice(&patch.body).unwrap();
        assert_eq!(body["metadata"], json!({"name": "r", "uid": "r-uid"}));
        let condition = &body["status"]["conditions"][0];
        assert_eq!(condition["type"], EVICTION_IN_PROGRESS);
        assert_eq!(condition["lastTransitionTime"], seconds(T0));
        assert!(lint(&first).is_empty());
        let mut with_status = |change: &dyn Fn(&mut Condition)| {
            let mut stored: Condition = serde_json::from_value(condition.clone()).unwrap();
            change(&mut stored);
            let mut object = (*rule("r", NO_EXECUTE, "d", 0)).clone();
            object.status.get_or_insert_default().conditions = Some(vec![stored]);
            state.rule = Arc::new(Rule::new(object));
            (plan(&state, at(4)), plan(&state, at(10)))
        };
        let waits = Plan { requeue: Some(Duration::from_secs(6)), ..Plan::nothing() };
        assert_eq!(with_status(&|_| {}), (waits.clone(), Plan::nothing()));
        let (early, late) = with_status(&|condition| condition.message = "2 pods".to_owned());
        assert_eq!((early, late.actions.len()), (waits, 1));
        // A new generation is reported immediately.
        let (at_once, _) = with_status(&|condition| condition.observed_generation = Some(0));
        assert_eq!(at_once.actions.len(), 1);
        // A time in the future only delays.
        let (early, _) = with_status(&|condition| condition.last_transition_time = Time(at(6)));
        assert_eq!(early.requeue, Some(Duration::from_secs(12)));
    }

    #[test]
    fn pending_pods_are_counted_again_after_evictions() {
        let requeue =
            |pods: &[(&str, &str)], evicted| plan(&observed(NO_EXECUTE, pods, evicted), T0).requeue;
        assert_eq!(requeue(&[("a", "x")], 1), Some(RULE_STATUS_PERIOD), "reads may be old");
        assert_eq!(requeue(&[("a", "x")], 0), None, "its eviction leads to another look");
        assert_eq!(requeue(&[], 1), None);
    }
}
