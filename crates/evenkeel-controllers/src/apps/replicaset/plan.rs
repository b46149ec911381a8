//! Pods that a ReplicaSet creates or deletes. Upstream: `manageReplicas`.
//!
//! Missing pods are created in slow-start batches. Surplus pods are deleted in the order of
//! [`crate::pod_deletion_ranking`].

use super::set::Set;
use crate::{
    apps::TERMINATING_REPLICAS_GATE, claim::Claims, needs::Gates, pod_deletion_ranking, pods, wire,
};
use evenkeel_api::{View, time::Timestamp, views::Pod};
use evenkeel_runtime::plan::{Action, Create, Delete, EventRecord, Plan, Target};
use std::{cmp::Ordering, sync::Arc};

/// Maximum number of pods created or deleted in one reconciliation. Upstream: `BurstReplicas`.
pub(crate) const BURST_REPLICAS: usize = 500;

/// Feature gates that affect the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    /// Whether the status has `terminatingReplicas`, for a kind with this field.
    pub(crate) counts_terminating: bool,
    /// Whether the annotation `controller.kubernetes.io/pod-deletion-cost` counts.
    pub(crate) pod_deletion_cost: bool,
}

impl Features {
    /// Reads the gates.
    pub(crate) fn of(gates: &Gates) -> Self {
        Self {
            counts_terminating: gates.enabled(TERMINATING_REPLICAS_GATE),
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
    /// Pods of all ReplicaSets with the same controller. A pod on a node with more of them is deleted earlier. Empty
    /// if no pods have to be chosen for deletion.
    pub(crate) related_pods: Vec<Arc<Pod>>,
    /// Feature gates that affect the decision.
    pub(crate) features: Features,
}

impl<S: Set> Observed<S> {
    /// Classifies the cached pods that the set controls or that are orphans. Calls `get_related_pods` only if the plan
    /// has to choose pods to delete.
    pub(crate) fn new(
        set: Arc<S>,
        candidates: impl IntoIterator<Item = Arc<Pod>>,
        get_related_pods: impl FnOnce() -> Vec<Arc<Pod>>,
        features: Features,
    ) -> Self {
        if !set.has_valid_selector() {
            let pods = Claims::default();
            let related_pods = Vec::new();
            return Self { set, pods, n_terminating: 0, related_pods, features };
        }
        let is_owned =
            |pod: &Pod| pod.meta.is_controlled_by(&set.meta().uid) && set.matches(&pod.meta.labels);
        let mut n_terminating = 0;
        let active_pods = candidates
            .into_iter()
            .inspect(|pod| n_terminating += usize::from(pods::is_terminating(pod) && is_owned(pod)))
            .filter(|pod| pods::is_active(pod));
        let pods = Claims::by_labels(set.meta(), active_pods, |labels| set.matches(labels));
        let present = pods.owned.len();
        let surplus = present.saturating_sub(desired_replicas(&*set)).min(BURST_REPLICAS);
        let must_choose = surplus > 0 && surplus < present;
        let related_pods = if must_choose { get_related_pods() } else { Vec::new() };
        Self { set, pods, n_terminating, related_pods, features }
    }
}

/// Returns `spec.replicas`; 0 if it is negative.
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
    if !set.has_valid_selector() {
        return Plan::nothing();
    }
    let target = wire::target(set);
    let mut plan = Plan::of(observed.pods.actions(&target).collect());
    if set.meta().deleting() {
        return plan;
    }
    let present = observed.pods.owned.len();
    let desired = desired_replicas(set);
    match balance(observed) {
        Ordering::Less if template_error(set).is_some() => {}
        Ordering::Less => {
            let missing = (desired - present).min(BURST_REPLICAS);
            plan.push(creation(set, &target, missing));
        }
        Ordering::Equal => {}
        Ordering::Greater => {
            let surplus = (present - desired).min(BURST_REPLICAS);
            plan.actions.extend(deletions(observed, &target, surplus, now));
        }
    }
    plan
}

/// Returns the reason why the template is unusable: the selector would not match its pods, so the controller would create pods
/// endlessly. The API server rejects such a set.
pub(crate) fn template_error<S: Set>(set: &S) -> Option<&'static str> {
    let labels = &set.template().labels;
    if labels.is_empty() {
        Some("unable to create pods, no labels")
    } else if !set.matches(labels) {
        Some("unable to create pods, the selector does not match the template's labels")
    } else {
        None
    }
}

/// Returns the creation of `count` pods, with its events.
fn creation<S: Set>(set: &S, target: &Target, count: usize) -> Create {
    Create {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        done: Some(EventRecord::normal(target.clone(), "SuccessfulCreate", "Created pod: {name}")),
        failed: Some(EventRecord::warning(
            target.clone(),
            "FailedCreate",
            "Error creating: {error}",
        )),
        ..Create::new(Pod::kind(), &set.meta().namespace, pod_json(set, target))
    }
}

/// Encodes a pod of the set as JSON.
fn pod_json<S: Set>(set: &S, target: &Target) -> String {
    let meta = set.meta();
    let owner = wire::controller_reference(target);
    set.template().pod_json(&format!("{}-", meta.name), &meta.namespace, &owner)
}

/// Returns the deletions of surplus pods. Keeps the pods that this reconciliation adopts.
fn deletions<S: Set>(
    observed: &Observed<S>,
    target: &Target,
    count: usize,
    now: Timestamp,
) -> impl Iterator<Item = Action> {
    let owned = &observed.pods.owned;
    let adopted = &owned[owned.len() - observed.pods.n_to_adopt..];
    let pods_to_delete = pod_deletion_ranking::pods_to_delete(
        owned,
        &observed.related_pods,
        count,
        observed.features.pod_deletion_cost,
        now,
    );
    let was_owned = |pod: &Arc<Pod>| !adopted.iter().any(|adopted| Arc::ptr_eq(adopted, pod));
    pods_to_delete.into_iter().filter(was_owned).map(|pod| {
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
