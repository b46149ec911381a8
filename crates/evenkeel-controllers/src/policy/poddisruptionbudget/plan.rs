//! Allowed disruptions of a budget, and its status. Upstream: `trySync`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `minAvailable`, `maxUnavailable`, numbers and percentages, rounded up; `status.desiredHealthy` | `expected_pod_count` |
//! | percentages of the owners' pods (`scale`); `status.expectedPods` | `needs_owners`, `owners::expected_pods` |
//! | `selector`: absent (null) and empty | `mod::observe` |
//! | `status.currentHealthy` | `count_healthy` |
//! | `status.disruptionsAllowed` | `disruptions_allowed` |
//! | `status.disruptedPods`, two minutes | `find_disrupted` |
//! | condition `DisruptionAllowed`: `SufficientPods`, `InsufficientPods`; `status.observedGeneration` | `status::update_counts` |
//! | condition `DisruptionAllowed`: `SyncFailed` | `status::fail_safe` |
//! | stale condition `DisruptionTarget`; `MultiplePodDisruptionBudgets` | `pod_pass::stale_condition_time`, `pod_pass::plan` |
//! | `unhealthyPodEvictionPolicy` and the other rules of evictions | `../../../../evenkeel-apiserver/src/verbs/connect/eviction.rs` |

use super::{
    owners::{self, Owner},
    status::{self, Counts},
};
use crate::{pods, wire, words};
use evenkeel_api::{
    Text,
    int_or_string::{IntOrString, Rounding},
    map::Map,
    time::{SignedDuration, Timestamp},
    views::{Pod, PodDisruptionBudget},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Action, EventRecord, Failure, OnError, Outcomes, Plan, Steps, Update},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Time from an admitted eviction to the pod's deletion. The eviction of a pod that still exists after it counts as
/// failed. Upstream: `DeletionTimeout`.
pub(super) const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// A budget with its pods, from the caches.
pub(super) struct BudgetPods {
    pub(super) budget: Arc<PodDisruptionBudget>,
    /// The selected pods, by name.
    pub(super) pods: Vec<Arc<Pod>>,
    /// The pods' owners, if the budget needs them.
    pub(super) owners: Vec<Owner>,
}

/// Observed state of a budget.
pub(super) struct Observed {
    pub(super) budget: Arc<PodDisruptionBudget>,
    /// The selected pods, by name.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Expected pods of the pods' owners. `None` if the budget needs no owners.
    pub(super) expected_pods: Option<ExpectedPods>,
}

/// Expected pods by the owner's uid, or the error. Upstream: `getExpectedScale`.
pub(super) type ExpectedPods = Result<BTreeMap<Text, i32>, String>;

/// Returns whether the budget depends on the replicas of the pods' owners: it is a percentage, or `maxUnavailable`.
pub(super) fn needs_owners(budget: &PodDisruptionBudget) -> bool {
    budget.spec.max_unavailable.is_some()
        || matches!(budget.spec.min_available, Some(IntOrString::String(_)))
}

/// Expected and desired healthy pods. Upstream: `expectedCount`, `desiredHealthy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ExpectedPodCount {
    pub(super) pods: i32,
    pub(super) desired_healthy: i32,
}

/// Returns the expected and the desired pods, with percentages rounded up. Upstream: `getExpectedPodCount`.
///
/// # Errors
/// Fails if an owner's scale is unknown, or if a percentage is invalid.
pub(super) fn expected_pod_count(observed: &Observed) -> Result<ExpectedPodCount, String> {
    let spec = &observed.budget.spec;
    let scaled = |limit: &IntOrString, total| {
        limit.scaled(total, Rounding::Up).map_err(|error| error.to_string())
    };
    if let Some(max_unavailable) = &spec.max_unavailable {
        let pods = sum_of_owners(observed)?;
        let desired_healthy = pods.saturating_sub(scaled(max_unavailable, pods)?).max(0);
        return Ok(ExpectedPodCount { pods, desired_healthy });
    }
    match &spec.min_available {
        Some(IntOrString::Int(min_available)) => Ok(ExpectedPodCount {
            pods: wire::to_i32(observed.pods.len()),
            desired_healthy: *min_available,
        }),
        Some(percentage @ IntOrString::String(_)) => {
            let pods = sum_of_owners(observed)?;
            Ok(ExpectedPodCount { pods, desired_healthy: scaled(percentage, pods)? })
        }
        None => Ok(ExpectedPodCount::default()),
    }
}

/// Returns the sum of the replicas of all owners, or the error of the owner that could not be read.
fn sum_of_owners(observed: &Observed) -> Result<i32, String> {
    match &observed.expected_pods {
        Some(Ok(expected_pods)) => {
            Ok(expected_pods.values().fold(0_i32, |sum, replicas| sum.saturating_add(*replicas)))
        }
        Some(Err(error)) => Err(error.clone()),
        None => Ok(0),
    }
}

/// Admitted evictions. Upstream: `buildDisruptedPodMap`.
#[derive(Debug, Default)]
struct Disrupted<'a> {
    /// Pods that are not yet deleted, within the deletion timeout.
    pending: Vec<EvictedPod<'a>>,
    /// Pods that were not deleted in time.
    timed_out: Vec<&'a Pod>,
    /// Time until the first deletion timeout. `None` if no deletion is pending.
    recheck_after: Option<SignedDuration>,
}

/// A pod that the eviction API recorded in `status.disruptedPods`.
#[derive(Debug)]
struct EvictedPod<'a> {
    pod: &'a Pod,
    /// Time at which the eviction was admitted.
    since: Timestamp,
}

/// Returns the pods in `status.disruptedPods` that still exist and are not terminating.
fn find_disrupted<'a>(
    budget: &PodDisruptionBudget,
    pods: &'a [Arc<Pod>],
    now: Timestamp,
) -> Disrupted<'a> {
    let mut disrupted = Disrupted::default();
    let disrupted_pods = &budget.status.disrupted_pods;
    for pod in pods.iter().filter(|pod| !pod.meta.deleting()) {
        let Some(since) = disrupted_pods.get(&pod.meta.name) else { continue };
        let remaining = DELETION_TIMEOUT - now.duration_since(*since);
        if remaining.is_negative() {
            disrupted.timed_out.push(pod);
        } else {
            let earlier = disrupted.recheck_after.unwrap_or(remaining);
            disrupted.recheck_after = Some(earlier.min(remaining));
            disrupted.pending.push(EvictedPod { pod, since: *since });
        }
    }
    disrupted
}

/// Counts ready pods that are neither terminating nor evicted. Upstream: `countHealthyPods`.
fn count_healthy(pods: &[Arc<Pod>], disrupted: &Disrupted<'_>, now: Timestamp) -> i32 {
    let is_evicted = |pod: &Pod| {
        disrupted.pending.iter().any(|evicted| {
            evicted.pod.meta.name == pod.meta.name
                && now.duration_since(evicted.since) < DELETION_TIMEOUT
        })
    };
    let is_healthy =
        |pod: &&Arc<Pod>| !pod.meta.deleting() && pods::is_ready(pod) && !is_evicted(pod);
    wire::to_i32(pods.iter().filter(is_healthy).count())
}

/// Updates the status of a budget. Upstream: `sync`.
///
/// # Errors
/// `Err` contains the plan of a step that the runtime has not executed yet. The runtime executes it, and calls this
/// function again with the outcomes.
pub(super) fn sync(
    budget: &BudgetPods,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Plan, Plan> {
    Ok(match try_sync(budget, now, steps)?.status_update {
        Ok(()) => Plan::nothing(),
        Err(conflict) if conflict.code == 409 => Plan::failure(&*conflict.message),
        Err(failure) => {
            Plan::of(Vec::from_iter(status::fail_safe(&budget.budget, &failure.message, now)))
        }
    })
}

/// Result of [`try_sync`].
pub(super) struct SyncResult<'a> {
    /// Delay until the budget is rechecked, if a deletion is pending.
    pub(super) recheck_after: Option<Duration>,
    /// Result of the status update.
    pub(super) status_update: Result<(), &'a Failure>,
}

/// Writes the status and the events. Upstream: `trySync`.
///
/// # Errors
/// `Err` contains the plan of a step that the runtime has not executed yet, as for [`sync`].
pub(super) fn try_sync<'a>(
    budget: &BudgetPods,
    now: Timestamp,
    steps: &mut Steps<'a>,
) -> Result<SyncResult<'a>, Plan> {
    let Plan { actions, requeue, .. } = plan(&observe_live(budget, steps)?, now);
    let writes = actions.into_iter().map(|action| match action {
        // `sync` handles the failure.
        Action::Update(update) => Update { on_error: OnError::Ignore, ..update }.into(),
        other => other,
    });
    let outcomes = steps.all(Plan::of(writes.collect()))?;
    let failure = outcomes.iter().find_map(|outcome| outcome.error.as_ref());
    let status_update = failure.map_or(Ok(()), Err);
    Ok(SyncResult { recheck_after: requeue, status_update })
}

/// Returns the observed state. Reads live the owners that the caches lack.
///
/// # Errors
/// `Err` contains the plan of a live read that the runtime has not executed yet, as for [`sync`].
fn observe_live(budget: &BudgetPods, steps: &mut Steps<'_>) -> Result<Observed, Plan> {
    let expected_pods = if needs_owners(&budget.budget) {
        Some(owners::expected_pods(&budget.owners, steps)?)
    } else {
        None
    };
    let BudgetPods { budget, pods, .. } = budget;
    Ok(Observed { budget: budget.clone(), pods: pods.clone(), expected_pods })
}

/// Returns the update of the status, and the events.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let budget = &observed.budget;
    let mut plan = Plan::nothing();
    let target = wire::target(&**budget);
    if let Some(error) = budget.spec.selector.error() {
        plan.push(EventRecord::warning(target, "NoPods", format!("Failed to get pods: {error}")));
        plan.actions.extend(status::fail_safe(budget, error, now));
        return plan;
    }
    if observed.pods.is_empty() {
        plan.push(EventRecord::normal(target.clone(), "NoPods", "No matching pods found"));
    }
    let expected = match expected_pod_count(observed) {
        Ok(expected) => expected,
        Err(error) => {
            let message = format!("Failed to calculate the number of expected pods: {error}");
            plan.push(EventRecord::warning(target, "CalculateExpectedPodCountFailed", message));
            plan.actions.extend(status::fail_safe(budget, &error, now));
            return plan;
        }
    };
    if needs_owners(budget) && observed.pods.iter().any(|pod| pod.meta.controller().is_none()) {
        let selector = words::selector(&budget.spec.selector);
        plan.push(EventRecord::warning(
            target,
            "UnmanagedPods",
            format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            ),
        ));
    }
    let disrupted = find_disrupted(budget, &observed.pods, now);
    for pod in &disrupted.timed_out {
        // Upstream's message has the namespace twice.
        let namespace = &budget.meta.namespace;
        let message =
            format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
        plan.push(EventRecord::warning(wire::target(*pod), "NotDeleted", message));
    }
    let current_healthy = count_healthy(&observed.pods, &disrupted, now);
    let disrupted_pods =
        disrupted.pending.iter().map(|evicted| (evicted.pod.meta.name.clone(), evicted.since));
    let counts = Counts {
        current_healthy,
        desired_healthy: expected.desired_healthy,
        expected_pods: expected.pods,
        disruptions_allowed: disruptions_allowed(expected, current_healthy),
        disrupted_pods: Map::from_entries(disrupted_pods.collect()),
    };
    plan.actions.extend(status::update_counts(budget, &counts, now));
    if let Some(delay) = disrupted.recheck_after {
        plan.requeue_after(Duration::try_from(delay).unwrap_or_default());
    }
    plan
}

/// Returns the allowed disruptions. They are zero without expected pods, because a budget may be created before its
/// pods. Upstream: `updatePdbStatus`.
fn disruptions_allowed(expected: ExpectedPodCount, healthy: i32) -> i32 {
    if expected.pods <= 0 { 0 } else { healthy.saturating_sub(expected.desired_healthy).max(0) }
}

/// Describes the budget for `evenkeel explain`, from the caches only.
pub(super) fn describe(budget: &BudgetPods, now: Timestamp) -> Description {
    let mut description = Description::new();
    description.fact("pods", words::count(words::signed(budget.pods.len()), "pod"));
    let observed = observe_live(budget, &mut Steps::of(&Outcomes::default()));
    match observed.as_ref().map(expected_pod_count) {
        Ok(Ok(ExpectedPodCount { pods, desired_healthy })) => {
            description
                .fact("expected", format!("{pods}, at least {desired_healthy} of them healthy"));
        }
        Ok(Err(error)) => description.waits(format!("pods cannot be counted: {error}")),
        Err(_live_read) => {}
    }
    let disrupted = find_disrupted(&budget.budget, &budget.pods, now);
    description.fact("healthy", count_healthy(&budget.pods, &disrupted, now).to_string());
    for EvictedPod { pod, .. } in &disrupted.pending {
        description.waits(format!("pod {} is evicted and still to be deleted", pod.meta.name));
    }
    description
}
