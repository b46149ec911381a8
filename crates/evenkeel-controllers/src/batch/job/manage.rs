//! Pods that a Job creates or deletes to reach the desired number of active pods. Upstream: `manageJob`.

use super::{backoff, observed::Observed, pod};
use crate::{pod_deletion_ranking, pods};
use evenkeel_api::{time::Timestamp, views::Pod};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Maximum number of pods created or deleted in one reconciliation. Upstream: `MaxPodCreateDeletePerSync`.
const MAX_PODS_PER_SYNC: usize = 500;

/// Change to the pods of a Job in one reconciliation.
#[derive(Debug, PartialEq)]
pub(super) enum PodChange {
    /// Create pods with these indexes. `None` for a NonIndexed Job.
    Create(Vec<Option<u32>>),
    /// Create no pods before this backoff has passed.
    BackOff(Duration),
    /// Delete these pods, which then count neither as failed nor as succeeded.
    Delete(Vec<Arc<Pod>>),
    /// The number of active pods is the desired one.
    Nothing,
}

impl PodChange {
    /// Returns the change that creates pods for these indexes.
    fn create_indexes(indexes: Vec<u32>) -> Self {
        if indexes.is_empty() {
            return Self::Nothing;
        }
        Self::Create(indexes.into_iter().map(Some).collect())
    }
}

/// Compares the number of active pods with the desired one. Deletions come first. A reconciliation does not both delete
/// and create. Upstream: `manageJob`.
pub(super) fn manage_job(observed: &Observed, now: Timestamp) -> PodChange {
    let job = &*observed.job;
    let counts = &observed.counts;
    let active = counts.active.len();
    let desired = if job.spec.suspend { 0 } else { want_active(observed) };
    let pods_to_delete = active_pods_for_removal(observed, active.saturating_sub(desired));
    if job.spec.suspend || !pods_to_delete.is_empty() {
        return PodChange::Delete(pods_to_delete);
    }
    let terminating = if pod::replaces_only_failed(job) { counts.terminating } else { 0 };
    let missing = desired.saturating_sub(terminating).saturating_sub(active);
    if missing == 0 {
        return PodChange::Nothing;
    }
    let count = missing.min(MAX_PODS_PER_SYNC);
    if job.spec.backoff_limit_per_index.is_some() && pod::is_indexed(job) {
        return create_by_index(observed, count, now);
    }
    let remaining_backoff = observed.failures.remaining(now);
    if !remaining_backoff.is_zero() {
        return PodChange::BackOff(remaining_backoff);
    }
    if !pod::is_indexed(job) {
        return PodChange::Create(vec![None; count]);
    }
    PodChange::create_indexes(first_pending_indexes(observed, count))
}

/// Returns the desired number of active pods: as many as `completions` still needs, at most `parallelism`. Upstream:
/// `wantActive`.
fn want_active(observed: &Observed) -> usize {
    let job = &*observed.job;
    let counts = &observed.counts;
    let parallelism = job.spec.parallelism.map_or(1, |count| usize::try_from(count).unwrap_or(0));
    match job.spec.completions {
        // Work queue: after the first success no pod is created, and active pods run to completion.
        None if counts.succeeded > 0 => counts.active.len(),
        None => parallelism,
        Some(_) => {
            (pod::completions(job) as usize).saturating_sub(counts.succeeded).min(parallelism)
        }
    }
}

/// Returns at least `surplus` pods to delete: for an Indexed Job those with a missing, invalid or duplicate index
/// first, then by deletion ranking. Upstream: `activePodsForRemoval`.
fn active_pods_for_removal(observed: &Observed, surplus: usize) -> Vec<Arc<Pod>> {
    // A pod that is not adopted yet can only be deleted by a later reconciliation.
    let is_controlled = |pod: &&Arc<Pod>| pod.meta.is_controlled_by(&observed.job.meta.uid);
    let active: Vec<Arc<Pod>> =
        observed.counts.active.iter().filter(is_controlled).cloned().collect();
    let PodsByIndexUse { redundant: mut to_delete, needed } = if pod::is_indexed(&observed.job) {
        PodsByIndexUse::new(observed, active)
    } else {
        PodsByIndexUse { redundant: Vec::new(), needed: active }
    };
    let ranked = surplus.saturating_sub(to_delete.len()).min(needed.len());
    if ranked > 0 {
        to_delete.extend(pod_deletion_ranking::pods_of_job_to_delete(&needed, ranked));
    }
    if !observed.job.spec.suspend {
        to_delete.truncate(MAX_PODS_PER_SYNC);
    }
    to_delete
}

/// Active pods of an Indexed Job, by whether their index needs them.
struct PodsByIndexUse {
    /// Pods with a missing, invalid or duplicate index.
    redundant: Vec<Arc<Pod>>,
    /// One pod of each index.
    needed: Vec<Arc<Pod>>,
}

impl PodsByIndexUse {
    /// Chooses the pod of each index. Upstream: `appendDuplicatedIndexPodsForRemoval`.
    fn new(observed: &Observed, active: Vec<Arc<Pod>>) -> Self {
        let mut redundant = Vec::new();
        let mut needed = Vec::new();
        let mut by_index = BTreeMap::<u32, Vec<Arc<Pod>>>::new();
        for pod in active {
            match pod::valid_index(&pod, &observed.job) {
                Some(index) => by_index.entry(index).or_default().push(pod),
                None => redundant.push(pod),
            }
        }
        for pods in by_index.into_values() {
            let duplicates = pod_deletion_ranking::pods_of_job_to_delete(&pods, pods.len() - 1);
            let is_duplicate =
                |pod: &Arc<Pod>| duplicates.iter().any(|duplicate| Arc::ptr_eq(duplicate, pod));
            needed.extend(pods.into_iter().filter(|pod| !is_duplicate(pod)));
            redundant.extend(duplicates);
        }
        Self { redundant, needed }
    }
}

/// Returns the first indexes that have neither finished nor an active pod. Upstream: `firstPendingIndexes`.
fn first_pending_indexes(observed: &Observed, count: usize) -> Vec<u32> {
    let Some(indexes) = &observed.counts.indexes else { return Vec::new() };
    let job = &*observed.job;
    let occupies_index = |pod: &&Arc<Pod>| {
        if pod.meta.deleting() {
            pod::replaces_only_failed(job) && pods::is_terminating(pod)
        } else {
            pods::is_active(pod)
        }
    };
    let occupied = observed.pods.owned.iter().filter(occupies_index);
    let mut not_pending = indexes.succeeded.with(occupied.filter_map(|pod| pod::index(pod)));
    if let Some(failed) = indexes.failed() {
        not_pending = not_pending.union(failed);
    }
    not_pending.missing(count, pod::completions(job))
}

/// Creates pods of a Job with `backoffLimitPerIndex`: each index has its own backoff. Upstream:
/// `getPodCreationInfoForIndependentIndexes`.
fn create_by_index(observed: &Observed, count: usize, now: Timestamp) -> PodChange {
    let Some(indexes) = &observed.counts.indexes else { return PodChange::Nothing };
    let remaining_backoff = |index: &u32| {
        let last_failed = indexes.pod_with_delayed_deletion(*index);
        last_failed.map_or(Duration::ZERO, |last| backoff::remaining_of_index(last, now))
    };
    let pending = first_pending_indexes(observed, count);
    let without_backoff: Vec<u32> =
        pending.iter().copied().filter(|index| remaining_backoff(index).is_zero()).collect();
    match pending.iter().map(remaining_backoff).min() {
        Some(shortest) if without_backoff.is_empty() => PodChange::BackOff(shortest),
        _ => PodChange::create_indexes(without_backoff),
    }
}
