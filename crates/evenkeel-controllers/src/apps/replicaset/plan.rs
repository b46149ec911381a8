//! Pods that a ReplicaSet creates or deletes. Upstream: `manageReplicas`.
//!
//! Missing pods are created in slow-start batches. Surplus pods are deleted in the order of
//! [`crate::pod_deletion_ranking`].

use super::set::Set;
use crate::{apps::TERMINATING, claim::Claims, needs::Gates, pod_deletion_ranking, pods, wire};
use evenkeel_api::{View, time::Timestamp, views::Pod};
use evenkeel_runtime::plan::{Action, Create, Delete, EventRecord, Plan, Target};
use std::{cmp::Ordering, sync::Arc};

/// Maximum number of pods created or deleted at once. Upstream: `BurstReplicas`.
pub(crate) const BURST_REPLICAS: usize = 500;

/// Feature gates that affect the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Whether the status has `terminatingReplicas`, for a kind with this field.
    pub(crate) counts_terminating: bool,
    /// Whether the annotation `controller.kubernetes.io/pod-deletion-cost` counts.
    pub(crate) pod_deletion_cost: bool,
}

impl Rules {
    /// Reads the gates.
    pub(crate) fn of(gates: &Gates) -> Self {
        Self {
            counts_terminating: gates.enabled(TERMINATING),
            pod_deletion_cost: gates.enabled("PodDeletionCost"),
        }
    }
}

/// Observed state of a ReplicaSet.
#[derive(Debug)]
pub(crate) struct Observed<S> {
    /// The ReplicaSet or ReplicationController.
    pub(crate) set: Arc<S>,
    /// Active pods, classified by controller reference.
    pub(crate) pods: Claims<Pod>,
    /// Number of the set's pods that are being deleted.
    pub(crate) n_terminating: usize,
    /// Pods of all ReplicaSets with the same controller. A pod on a node with more of them is deleted earlier.
    pub(crate) related: Vec<Arc<Pod>>,
    /// Feature gates that affect the decision.
    pub(crate) rules: Rules,
}

impl<S: Set> Observed<S> {
    /// Classifies the cached pods that the set controls or that are orphans. Calls `related` only if the plan has to
    /// choose pods to delete.
    pub(crate) fn new(
        set: Arc<S>,
        candidates: impl IntoIterator<Item = Arc<Pod>>,
        related: impl FnOnce() -> Vec<Arc<Pod>>,
        rules: Rules,
    ) -> Self {
        if !set.selects() {
            let (pods, related) = (Claims::default(), Vec::new());
            return Self { set, pods, n_terminating: 0, related, rules };
        }
        let mut n_terminating = 0;
        let active = candidates.into_iter().filter(|pod| {
            let own = || pod.meta.controlled_by(&set.meta().uid) && set.matches(&pod.meta.labels);
            n_terminating += usize::from(pods::is_terminating(pod) && own());
            pods::is_active(pod)
        });
        let pods = Claims::by_labels(set.meta(), active, |labels| set.matches(labels));
        let present = pods.owned.len();
        let surplus = present.saturating_sub(desired_replicas(&*set)).min(BURST_REPLICAS);
        let must_choose = surplus > 0 && surplus < present;
        let related = if must_choose { related() } else { Vec::new() };
        Self { set, pods, n_terminating, related, rules }
    }
}

/// Returns `spec.replicas`.
fn desired_replicas<S: Set>(set: &S) -> usize {
    usize::try_from(set.replicas()).unwrap_or(0)
}

/// Compares the number of pods with `spec.replicas`.
pub(crate) fn balance<S: Set>(observed: &Observed<S>) -> Ordering {
    observed.pods.owned.len().cmp(&desired_replicas(&*observed.set))
}

/// Decides the actions: adoptions and releases first, then creations or deletions.
pub(crate) fn plan<S: Set>(observed: &Observed<S>, now: Timestamp) -> Plan {
    let set = &*observed.set;
    if !set.selects() {
        return Plan::nothing();
    }
    let target = wire::target(set);
    let mut plan = Plan::of(observed.pods.actions(&target).collect());
    if set.meta().deleting() {
        return plan;
    }
    let (present, desired) = (observed.pods.owned.len(), desired_replicas(set));
    match balance(observed) {
        Ordering::Less if unusable(set).is_some() => {}
        Ordering::Less => plan.push(create(set, &target, (desired - present).min(BURST_REPLICAS))),
        Ordering::Equal => {}
        Ordering::Greater => {
            plan.actions.extend(delete(
                observed,
                &target,
                (present - desired).min(BURST_REPLICAS),
                now,
            ));
        }
    }
    plan
}

/// Returns the reason why the template is unusable: the selector would not match its pods, so the controller would
/// create pods for ever. The API server rejects such a set.
pub(crate) fn unusable<S: Set>(set: &S) -> Option<&'static str> {
    let labels = &set.template().labels;
    if labels.is_empty() {
        Some("unable to create pods, no labels")
    } else if !set.matches(labels) {
        Some("unable to create pods, the selector does not match the template's labels")
    } else {
        None
    }
}

fn create<S: Set>(set: &S, target: &Target, count: usize) -> Create {
    Create {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        done: Some(EventRecord::normal(target.clone(), "SuccessfulCreate", "Created pod: {name}")),
        failed: Some(EventRecord::warning(
            target.clone(),
            "FailedCreate",
            "Error creating: {error}",
        )),
        ..Create::new(Pod::kind(), &set.meta().namespace, pod(set, target))
    }
}

fn pod<S: Set>(set: &S, target: &Target) -> String {
    let meta = set.meta();
    let owner = wire::controller_reference(target);
    set.template().pod_json(&format!("{}-", meta.name), &meta.namespace, &owner)
}

/// Deletes surplus pods. A pod is not deleted before a later reconciliation has observed its adoption.
fn delete<S: Set>(
    observed: &Observed<S>,
    target: &Target,
    count: usize,
    now: Timestamp,
) -> impl Iterator<Item = Action> {
    let owned = &observed.pods.owned;
    let to_adopt = &owned[owned.len() - observed.pods.n_to_adopt..];
    let pods_to_delete = pod_deletion_ranking::pods_to_delete(
        owned,
        &observed.related,
        count,
        observed.rules.pod_deletion_cost,
        now,
    );
    let is_owned = |pod: &Arc<Pod>| !to_adopt.iter().any(|new| Arc::ptr_eq(new, pod));
    pods_to_delete.into_iter().filter(is_owned).map(|pod| {
        let done = format!("Deleted pod: {}", pod.meta.name);
        Action::Delete(Delete {
            done: Some(EventRecord::normal(target.clone(), "SuccessfulDelete", done)),
            failed: Some(EventRecord::warning(
                target.clone(),
                "FailedDelete",
                "Error deleting: {error}",
            )),
            ..Delete::new(wire::target(&*pod))
        })
    })
}
