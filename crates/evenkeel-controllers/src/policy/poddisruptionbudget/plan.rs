//! Allowed disruptions of a budget, and its status. Upstream: `trySync`.
//!
//! | documented | where |
//! |---|---|
//! | `minAvailable`, `maxUnavailable`, numbers and percentages, rounded up; `status.desiredHealthy` | `expected` |
//! | percentages of the owners' pods (`scale`); `status.expectedPods` | `needs_owners`, `owners::expected_pods` |
//! | `selector`: absent (null) and empty | `mod::observe` |
//! | `status.currentHealthy` | `healthy` |
//! | `status.disruptionsAllowed` | `allowed` |
//! | `status.disruptedPods`, two minutes | `disrupted` |
//! | condition `DisruptionAllowed`: `SufficientPods`, `InsufficientPods`; `status.observedGeneration` | `status::counted` |
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
    /// Expected pods of the pods' owners; `None` if the budget needs no owners.
    pub(super) expected_pods: Option<ExpectedPods>,
}

/// Expected pods by the owner's uid, or the error. Upstream: `getExpectedScale`.
pub(super) type ExpectedPods = Result<BTreeMap<Text, i32>, String>;

/// Whether the budget depends on the replicas of the pods' owners: it is a percentage, or `maxUnavailable`.
pub(super) fn needs_owners(budget: &PodDisruptionBudget) -> bool {
    budget.spec.max_unavailable.is_some()
        || matches!(budget.spec.min_available, Some(IntOrString::String(_)))
}

/// Expected and desired healthy pods. Upstream: `expectedCount`, `desiredHealthy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) pods: i32,
    pub(super) desired_healthy: i32,
}

/// Returns the expected and the desired pods, with percentages rounded up. Upstream: `getExpectedPodCount`.
pub(super) fn expected(observed: &Observed) -> Result<Expected, String> {
    let spec = &observed.budget.spec;
    let of_owners = || match &observed.expected_pods {
        Some(Ok(expected_pods)) => {
            Ok(expected_pods.values().fold(0_i32, |sum, replicas| sum.saturating_add(*replicas)))
        }
        Some(Err(why)) => Err(why.clone()),
        None => Ok(0),
    };
    let share = |part: &IntOrString, total| {
        part.scaled(total, Rounding::Up).map_err(|error| error.to_string())
    };
    if let Some(most) = &spec.max_unavailable {
        let pods = of_owners()?;
        let desired_healthy = pods.saturating_sub(share(most, pods)?).max(0);
        return Ok(Expected { pods, desired_healthy });
    }
    match &spec.min_available {
        Some(IntOrString::Int(desired_healthy)) => {
            Ok(Expected { pods: clamp(observed.pods.len()), desired_healthy: *desired_healthy })
        }
        Some(least @ IntOrString::String(_)) => {
            let pods = of_owners()?;
            Ok(Expected { pods, desired_healthy: share(least, pods)? })
        }
        None => Ok(Expected::default()),
    }
}

fn clamp(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Admitted evictions. Upstream: `buildDisruptedPodMap`.
#[derive(Debug, Default)]
struct Disrupted<'a> {
    /// Pods that are not yet deleted, within the deletion timeout.
    awaited: Vec<(&'a Pod, Timestamp)>,
    /// Pods that were not deleted in time.
    given_up: Vec<&'a Pod>,
    /// Time until the first deletion timeout; `None` if no deletion is awaited.
    recheck: Option<SignedDuration>,
}

fn disrupted<'a>(
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
            disrupted.given_up.push(pod);
        } else {
            disrupted.recheck =
                Some(disrupted.recheck.map_or(remaining, |first| first.min(remaining)));
            disrupted.awaited.push((pod, *since));
        }
    }
    disrupted
}

/// Counts ready pods that are neither terminating nor evicted. Upstream: `countHealthyPods`.
fn healthy(pods: &[Arc<Pod>], disrupted: &Disrupted<'_>, now: Timestamp) -> i32 {
    let is_evicted = |pod: &Pod| {
        disrupted.awaited.iter().any(|(evicted, since)| {
            evicted.meta.name == pod.meta.name && now.duration_since(*since) < DELETION_TIMEOUT
        })
    };
    let stays = |pod: &&Arc<Pod>| !pod.meta.deleting() && pods::is_ready(pod) && !is_evicted(pod);
    clamp(pods.iter().filter(stays).count())
}

/// Updates the status of a budget. Upstream: `sync`.
pub(super) fn sync(
    budget: &BudgetPods,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Plan, Plan> {
    let updated = try_sync(budget, now, steps)?.1;
    Ok(match updated {
        Ok(()) => Plan::nothing(),
        Err(conflict) if conflict.code == 409 => Plan::failure(&*conflict.message),
        Err(refused) => {
            Plan::of(Vec::from_iter(status::fail_safe(&budget.budget, &refused.message, now)))
        }
    })
}

/// Returns the delay until the budget is rechecked, and the result of its status update. Upstream: `trySync`.
pub(super) fn try_sync<'a>(
    budget: &BudgetPods,
    now: Timestamp,
    steps: &mut Steps<'a>,
) -> Result<(Option<Duration>, Result<(), &'a Failure>), Plan> {
    let Plan { actions, requeue, .. } = plan(&observed(budget, steps)?, now);
    let writes = actions.into_iter().map(|action| match action {
        // This function handles the failure.
        Action::Update(update) => Update { on_error: OnError::Ignore, ..update }.into(),
        other => other,
    });
    let outcomes = steps.all(Plan::of(writes.collect()))?;
    let failed = outcomes.iter().find_map(|outcome| outcome.error.as_ref());
    Ok((requeue, failed.map_or(Ok(()), Err)))
}

/// Returns the observed state. Reads live the owners that the caches lack.
fn observed(budget: &BudgetPods, steps: &mut Steps<'_>) -> Result<Observed, Plan> {
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
    let (budget, mut plan) = (&observed.budget, Plan::nothing());
    let target = wire::target(&**budget);
    if let Some(why) = budget.spec.selector.error() {
        plan.push(EventRecord::warning(target, "NoPods", format!("Failed to get pods: {why}")));
        plan.actions.extend(status::fail_safe(budget, why, now));
        return plan;
    }
    if observed.pods.is_empty() {
        plan.push(EventRecord::normal(target.clone(), "NoPods", "No matching pods found"));
    }
    let expected = match expected(observed) {
        Ok(expected) => expected,
        Err(why) => {
            let description = format!("Failed to calculate the number of expected pods: {why}");
            plan.push(EventRecord::warning(target, "CalculateExpectedPodCountFailed", description));
            plan.actions.extend(status::fail_safe(budget, &why, now));
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
    let disrupted = disrupted(budget, &observed.pods, now);
    for pod in &disrupted.given_up {
        // Upstream's message has the namespace twice.
        let namespace = &budget.meta.namespace;
        let description =
            format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
        plan.push(EventRecord::warning(wire::target(*pod), "NotDeleted", description));
    }
    let healthy = healthy(&observed.pods, &disrupted, now);
    let counts = Counts {
        current_healthy: healthy,
        desired_healthy: expected.desired_healthy,
        expected_pods: expected.pods,
        disruptions_allowed: allowed(expected, healthy),
        disrupted_pods: Map::from_entries(
            disrupted.awaited.iter().map(|(pod, since)| (pod.meta.name.clone(), *since)).collect(),
        ),
    };
    plan.actions.extend(status::counted(budget, &counts, now));
    if let Some(left) = disrupted.recheck {
        plan.requeue_after(Duration::try_from(left).unwrap_or_default());
    }
    plan
}

/// Returns the allowed disruptions. They are zero without expected pods, because a budget may be created before its
/// pods. Upstream: `updatePdbStatus`.
fn allowed(expected: Expected, healthy: i32) -> i32 {
    if expected.pods <= 0 { 0 } else { healthy.saturating_sub(expected.desired_healthy).max(0) }
}

/// Describes the budget for `evenkeel explain`, from the caches only.
pub(super) fn describe(budget: &BudgetPods, now: Timestamp) -> Description {
    let mut description = Description::new();
    description.fact("pods", words::count(words::signed(budget.pods.len()), "pod"));
    let in_caches = observed(budget, &mut Steps::of(&Outcomes::default()));
    match in_caches.as_ref().map(expected) {
        Ok(Ok(Expected { pods, desired_healthy })) => {
            description
                .fact("expected", format!("{pods}, at least {desired_healthy} of them healthy"));
        }
        Ok(Err(why)) => description.waits(format!("pods cannot be counted: {why}")),
        Err(_) => {}
    }
    let disrupted = disrupted(&budget.budget, &budget.pods, now);
    description.fact("healthy", healthy(&budget.pods, &disrupted, now).to_string());
    for (pod, _) in &disrupted.awaited {
        description.waits(format!("pod {} is evicted and still to be deleted", pod.meta.name));
    }
    description
}
