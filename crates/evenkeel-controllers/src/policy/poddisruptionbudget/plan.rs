//! How many pods may be disrupted, and what is written about it.
//!
//! | documented | where |
//! |---|---|
//! | `minAvailable`, `maxUnavailable`, numbers and percentages, rounded up; `status.desiredHealthy` | `expected` |
//! | percentages of what the owners of the pods want (`scale`); `status.expectedPods` | `asks_owners`, `owners::wanted` |
//! | `selector`: absent (null) and empty | `mod::seen` |
//! | `status.currentHealthy` | `healthy` |
//! | `status.disruptionsAllowed` | `allowed` |
//! | `status.disruptedPods`, two minutes | `disrupted` |
//! | condition `DisruptionAllowed`: `SufficientPods`, `InsufficientPods`; `status.observedGeneration` | `status::counted` |
//! | condition `DisruptionAllowed`: `SyncFailed` | `status::fail_safe` |
//! | a pod's condition `DisruptionTarget` that nothing came of; `MultiplePodDisruptionBudgets` | `pod_pass::told_since`, `pod_pass::plan` |
//! | `unhealthyPodEvictionPolicy`, and all else that an eviction is decided by | `../../../../evenkeel-apiserver/src/kinds/eviction.rs` |

use super::{
    owners::Wanted,
    status::{self, Counts},
};
use crate::{pods, wire, words};
use evenkeel_api::{
    int_or_string::{IntOrString, Rounding},
    map::Map,
    time::{SignedDuration, Timestamp},
    views::{Pod, PodDisruptionBudget},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Note, Plan},
};
use std::{sync::Arc, time::Duration};

/// How long an eviction that was admitted may take until the pod is seen to be deleted; after that it counts as not evicted.
pub(super) const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// All that a decision looks at.
pub(super) struct Seen {
    pub(super) budget: Arc<PodDisruptionBudget>,
    /// The pods that it selects, by name.
    pub(super) pods: Vec<Arc<Pod>>,
    /// What the pods' owners want; `None` where the budget does not ask.
    pub(super) wanted: Option<Wanted>,
}

/// Whether the budget is a share of what the pods' owners want, and not just a number of pods.
pub(super) fn asks_owners(budget: &PodDisruptionBudget) -> bool {
    budget.spec.max_unavailable.is_some()
        || matches!(budget.spec.min_available, Some(IntOrString::String(_)))
}

/// How many pods there should be, and how many of them healthy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) pods: i32,
    pub(super) desired_healthy: i32,
}

/// What the budget expects; why that cannot be told, otherwise. Shares are rounded up.
pub(super) fn expected(seen: &Seen) -> Result<Expected, String> {
    let spec = &seen.budget.spec;
    let of_owners = || match &seen.wanted {
        Some(Ok(wanted)) => {
            Ok(wanted.values().fold(0_i32, |sum, replicas| sum.saturating_add(*replicas)))
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
            Ok(Expected { pods: clamp(seen.pods.len()), desired_healthy: *desired_healthy })
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

/// Evictions that were admitted.
#[derive(Debug, Default)]
struct Disrupted<'a> {
    /// Those whose pods are not seen to be deleted, and may be yet.
    awaited: Vec<(&'a Pod, Timestamp)>,
    /// Those that came to nothing.
    given_up: Vec<&'a Pod>,
    /// How long the first of those that are awaited is.
    recheck: Option<SignedDuration>,
}

fn disrupted(seen: &Seen, now: Timestamp) -> Disrupted<'_> {
    let mut disrupted = Disrupted::default();
    let noted = &seen.budget.status.disrupted_pods;
    for pod in seen.pods.iter().filter(|pod| !pod.meta.deleting()) {
        let Some(since) = noted.get(&pod.meta.name) else { continue };
        let left = DELETION_TIMEOUT - now.duration_since(*since);
        if left.is_negative() {
            disrupted.given_up.push(pod);
        } else {
            disrupted.recheck = Some(disrupted.recheck.map_or(left, |first| first.min(left)));
            disrupted.awaited.push((pod, *since));
        }
    }
    disrupted
}

/// Pods that are ready and stay: neither deleted nor about to be.
fn healthy(seen: &Seen, disrupted: &Disrupted<'_>, now: Timestamp) -> i32 {
    let goes = |pod: &Pod| {
        disrupted.awaited.iter().any(|(gone, since)| {
            gone.meta.name == pod.meta.name && now.duration_since(*since) < DELETION_TIMEOUT
        })
    };
    let stays = |pod: &&Arc<Pod>| !pod.meta.deleting() && pods::is_ready(pod) && !goes(pod);
    clamp(seen.pods.iter().filter(stays).count())
}

/// What is told and written about a budget.
pub(super) fn plan(seen: &Seen, now: Timestamp) -> Plan {
    let (budget, mut plan) = (&seen.budget, Plan::nothing());
    let target = wire::target(&**budget);
    if let Some(why) = budget.spec.selector.error() {
        plan.push(Note::warning(target, "NoPods", format!("Failed to get pods: {why}")));
        plan.actions.extend(status::fail_safe(budget, why, now));
        return plan;
    }
    if seen.pods.is_empty() {
        plan.push(Note::normal(target.clone(), "NoPods", "No matching pods found"));
    }
    let expected = match expected(seen) {
        Ok(expected) => expected,
        Err(why) => {
            let told = format!("Failed to calculate the number of expected pods: {why}");
            plan.push(Note::warning(target, "CalculateExpectedPodCountFailed", told));
            plan.actions.extend(status::fail_safe(budget, &why, now));
            return plan;
        }
    };
    if asks_owners(budget) && seen.pods.iter().any(|pod| pod.meta.controller().is_none()) {
        let selector = words::selector(&budget.spec.selector);
        plan.push(Note::warning(
            target,
            "UnmanagedPods",
            format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            ),
        ));
    }
    let disrupted = disrupted(seen, now);
    for pod in &disrupted.given_up {
        // Upstream names the namespace twice.
        let namespace = &budget.meta.namespace;
        let told =
            format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
        plan.push(Note::warning(wire::target(*pod), "NotDeleted", told));
    }
    let healthy = healthy(seen, &disrupted, now);
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

/// How many may be disrupted; none where no pods are expected, so that a budget that is there before its pods is safe.
fn allowed(expected: Expected, healthy: i32) -> i32 {
    if expected.pods <= 0 { 0 } else { healthy.saturating_sub(expected.desired_healthy).max(0) }
}

/// What is seen, in words.
pub(super) fn describe(seen: &Seen, now: Timestamp) -> Description {
    let mut told = Description::new();
    told.fact("pods", words::count(words::signed(seen.pods.len()), "pod"));
    match expected(seen) {
        Ok(Expected { pods, desired_healthy })
            if seen.wanted.as_ref().is_none_or(Result::is_ok) =>
        {
            told.fact("expected", format!("{pods}, at least {desired_healthy} of them healthy"));
        }
        Ok(_) => {}
        Err(why) => told.waits(format!("pods cannot be counted: {why}")),
    }
    let disrupted = disrupted(seen, now);
    told.fact("healthy", healthy(seen, &disrupted, now).to_string());
    for (pod, _) in &disrupted.awaited {
        told.waits(format!("pod {} is evicted and still to be deleted", pod.meta.name));
    }
    told
}
