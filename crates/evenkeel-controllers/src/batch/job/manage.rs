//! Pods that a Job creates or deletes to reach the desired number of active pods.
//!
//! Upstream: `manageJob`.

use super::{backoff, observed::Observed, pod};
use crate::pod_deletion_ranking;
use evenkeel_api::{time::Timestamp, views::Pod};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Maximum number of pods created or deleted in one reconciliation. Upstream: `MaxPodCreateDeletePerSync`.
const MAX_PODS_PER_SYNC: usize = 500;

/// Change to the pods of a Job in one reconciliation.
#[derive(Debug, PartialEq)]
pub(super) enum PodChange {
    /// Create pods with these indexes; `None` for a NonIndexed Job.
    Create(Vec<Option<u32>>),
    /// Create no pods before this backoff has passed.
    BackOff(Duration),
    /// Delete these pods, which then count neither as failed nor as succeeded.
    Delete(Vec<Arc<Pod>>),
    /// The number of active pods is the desired one.
    Nothing,
}

/// Compares the number of active pods with the desired one. Deletions come first; a reconciliation never does both.
///
/// Upstream: `manageJob`.
pub(super) fn manage_job(observed: &Observed, now: Timestamp) -> PodChange {
    let (job, counts) = (&*observed.job, &observed.counts);
    let active = counts.active.len();
    let want_active = if job.spec.suspend { 0 } else { want_active(observed) };
    let active_pods_for_removal =
        active_pods_for_removal(observed, active.saturating_sub(want_active));
    if job.spec.suspend || !active_pods_for_removal.is_empty() {
        return PodChange::Delete(active_pods_for_removal);
    }
    let terminating = if pod::replaces_only_failed(job) { counts.terminating } else { 0 };
    let missing = want_active.saturating_sub(terminating).saturating_sub(active);
    if missing == 0 {
        return PodChange::Nothing;
    }
    if job.spec.backoff_limit_per_index.is_some() && pod::is_indexed(job) {
        return create_by_index(observed, missing.min(MAX_PODS_PER_SYNC), now);
    }
    let remaining = observed.failures.remaining(now);
    if !remaining.is_zero() {
        return PodChange::BackOff(remaining);
    }
    if !pod::is_indexed(job) {
        return PodChange::Create(vec![None; missing.min(MAX_PODS_PER_SYNC)]);
    }
    create(first_pending_indexes(observed, missing.min(MAX_PODS_PER_SYNC)))
}

/// Returns the desired number of active pods: as many as `completions` still needs, at most `parallelism`. Upstream:
/// `wantActive`.
fn want_active(observed: &Observed) -> usize {
    let (job, counts) = (&*observed.job, &observed.counts);
    let parallelism = job.spec.parallelism.map_or(1, |n| usize::try_from(n).unwrap_or(0));
    match job.spec.completions {
        // Work queue: after the first success no pod is created, and active pods run to completion.
        None if counts.succeeded > 0 => counts.active.len(),
        None => parallelism,
        Some(_) => {
            (pod::completions(job) as usize).saturating_sub(counts.succeeded).min(parallelism)
        }
    }
}

/// Returns the pods to delete: for an Indexed Job those with a missing, invalid or duplicate index first, then by
/// deletion ranking. Upstream: `activePodsForRemoval`.
fn active_pods_for_removal(observed: &Observed, at_least: usize) -> Vec<Arc<Pod>> {
    // A pod that is not adopted yet can only be deleted by a later reconciliation.
    let is_controlled = |pod: &&Arc<Pod>| pod.meta.controlled_by(&observed.job.meta.uid);
    let active: Vec<Arc<Pod>> =
        observed.counts.active.iter().filter(is_controlled).cloned().collect();
    let (mut to_delete, rest) = match pod::is_indexed(&observed.job) {
        true => duplicate_index_pods(observed, active),
        false => (Vec::new(), active),
    };
    let missing = at_least.saturating_sub(to_delete.len()).min(rest.len());
    if missing > 0 {
        to_delete.extend(pod_deletion_ranking::pods_of_job_to_delete(&rest, missing));
    }
    if !observed.job.spec.suspend {
        to_delete.truncate(MAX_PODS_PER_SYNC);
    }
    to_delete
}

/// Separates pods with a missing, invalid or duplicate index from the others. Upstream:
/// `appendDuplicatedIndexPodsForRemoval`.
fn duplicate_index_pods(
    observed: &Observed,
    active: Vec<Arc<Pod>>,
) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let (mut to_delete, mut rest) = (Vec::new(), Vec::new());
    let mut by_index = BTreeMap::<u32, Vec<Arc<Pod>>>::new();
    for pod in active {
        match pod::valid_index(&pod, &observed.job) {
            Some(index) => by_index.entry(index).or_default().push(pod),
            None => to_delete.push(pod),
        }
    }
    for pods in by_index.into_values() {
        let duplicates = pod_deletion_ranking::pods_of_job_to_delete(&pods, pods.len() - 1);
        rest.extend(pods.into_iter().filter(|pod| !duplicates.iter().any(|p| Arc::ptr_eq(p, pod))));
        to_delete.extend(duplicates);
    }
    (to_delete, rest)
}

/// Returns the first indexes that have neither finished nor an active pod. Upstream: `firstPendingIndexes`.
fn first_pending_indexes(observed: &Observed, count: usize) -> Vec<u32> {
    let Some(indexes) = &observed.counts.indexes else { return Vec::new() };
    let job = &*observed.job;
    let active = observed.pods.owned.iter().filter(|pod| match pod.meta.deleting() {
        true => pod::replaces_only_failed(job) && crate::pods::is_terminating(pod),
        false => crate::pods::is_active(pod),
    });
    let mut used = indexes.succeeded.with(active.filter_map(|pod| pod::index(pod)));
    if let Some(failed) = indexes.failed() {
        used = used.union(failed);
    }
    used.missing(count, pod::completions(job))
}

/// Creates pods of a Job with `backoffLimitPerIndex`: each index has its own backoff. Upstream:
/// `getPodCreationInfoForIndependentIndexes`.
fn create_by_index(observed: &Observed, count: usize, now: Timestamp) -> PodChange {
    let Some(indexes) = &observed.counts.indexes else { return PodChange::Nothing };
    let remaining = |index: &u32| {
        let last = indexes.pod_with_delayed_deletion(*index);
        last.map_or(Duration::ZERO, |last| backoff::remaining_of_index(last, now))
    };
    let first_pending_indexes = first_pending_indexes(observed, count);
    let ready: Vec<u32> =
        first_pending_indexes.iter().copied().filter(|index| remaining(index).is_zero()).collect();
    match first_pending_indexes.iter().map(remaining).min() {
        Some(shortest) if ready.is_empty() => PodChange::BackOff(shortest),
        _ => create(ready),
    }
}

fn create(indexes: Vec<u32>) -> PodChange {
    if indexes.is_empty() {
        return PodChange::Nothing;
    }
    PodChange::Create(indexes.into_iter().map(Some).collect())
}
