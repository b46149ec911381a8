//! Observed state of a Job, and the counts derived from it.

use super::{backoff::Failures, indexes::Indexes, per_index::PerIndexFailures, pod, policy};
use crate::{claim::Claims, pods};
use evenkeel_api::{
    Text,
    views::{Job, Pod, UncountedTerminatedPods},
};
use std::{collections::HashSet, sync::Arc};

/// A Job with its pods.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(super) job: Arc<Job>,
    /// Pods that the Job owns, adopts or releases, terminal ones included.
    pub(super) pods: Claims<Pod>,
    pub(super) counts: PodCounts,
    /// Failures, for the backoff.
    pub(super) failures: Failures,
    /// Whether a suspended Job loses its start time (gate `MutableSchedulingDirectivesForSuspendedJobs`).
    pub(super) clears_start_time: bool,
}

impl Observed {
    /// Classifies the cached pods that the Job controls or that are orphans. `earlier` are failures as of the last
    /// reconciliation.
    pub(super) fn new(
        job: Arc<Job>,
        candidates: impl IntoIterator<Item = Arc<Pod>>,
        earlier: Option<&Failures>,
        clears_start_time: bool,
    ) -> Self {
        let selector = &job.spec.selector;
        let mut pods = Claims::by_labels(&job.meta, candidates, |labels| selector.matches(labels));
        let n_controlled = pods.owned.len() - pods.n_to_adopt;
        // Count pods in a fixed order; the cache has none.
        let controlled = &mut pods.owned[..n_controlled];
        controlled.sort_by_cached_key(|pod| (pod::index(pod), pod.meta.name.clone()));
        let failures = Failures::count(earlier, &job, controlled);
        let counts = PodCounts::new(&job, &pods.owned[..n_controlled], &pods.owned);
        Self { job, pods, counts, failures, clears_start_time }
    }

    /// Returns whether `completionMode` is known.
    pub(super) fn is_completion_mode_known(&self) -> bool {
        matches!(&*self.job.spec.completion_mode, "" | "NonIndexed" | "Indexed")
    }

    /// Returns the pods that the Job controls already, without those to be adopted.
    pub(super) fn controlled_pods(&self) -> &[Arc<Pod>] {
        &self.pods.owned[..self.pods.owned.len() - self.pods.n_to_adopt]
    }
}

/// Counts of a Job's pods. Upstream: `syncJobCtx`.
#[derive(Debug)]
pub(super) struct PodCounts {
    /// Pods that are pending or running.
    pub(super) active: Vec<Arc<Pod>>,
    /// Number of ready pods.
    pub(super) ready: usize,
    /// Number of terminating pods.
    pub(super) terminating: usize,
    /// Number of counted successes; of an Indexed Job, of succeeded indexes.
    pub(super) succeeded: usize,
    /// Number of counted failures.
    pub(super) failed: usize,
    /// Counts of an Indexed Job.
    pub(super) indexes: Option<IndexCounts>,
    /// Pods in `status.uncountedTerminatedPods`.
    pub(super) uncounted: Uncounted,
}

/// Uids in `status.uncountedTerminatedPods`. Upstream: `uncountedTerminatedPods`.
#[derive(Debug, Default)]
pub(super) struct Uncounted {
    /// Uids of pods that succeeded.
    pub(super) succeeded: HashSet<Text>,
    /// Uids of pods that failed.
    pub(super) failed: HashSet<Text>,
}

impl Uncounted {
    fn of(job: &Job) -> Self {
        let uids = |uids: fn(&UncountedTerminatedPods) -> &[Text]| {
            let pods = job.status.uncounted_terminated_pods.as_deref();
            pods.map(uids).unwrap_or_default().iter().cloned().collect()
        };
        Self { succeeded: uids(|pods| &pods.succeeded), failed: uids(|pods| &pods.failed) }
    }
}

/// Finished indexes of an Indexed Job.
#[derive(Debug)]
pub(super) struct IndexCounts {
    /// Indexes in `status.completedIndexes`.
    pub(super) recorded: Indexes,
    /// Succeeded indexes, recorded or not.
    pub(super) succeeded: Indexes,
    /// Failed indexes, with `backoffLimitPerIndex`.
    pub(super) per_index: Option<PerIndexFailures>,
}

impl IndexCounts {
    /// Returns the failed indexes. Upstream: `failedIndexes`.
    pub(super) fn failed(&self) -> Option<&Indexes> {
        self.per_index.as_ref().map(|per_index| &per_index.failed)
    }

    /// Returns the last failed pod of an index, if the pod has no successor yet.
    pub(super) fn pod_with_delayed_deletion(&self, index: u32) -> Option<&Arc<Pod>> {
        self.per_index.as_ref()?.pods_with_delayed_deletion.get(&index)
    }
}

impl PodCounts {
    fn new(job: &Job, controlled: &[Arc<Pod>], all: &[Arc<Pod>]) -> Self {
        let active: Vec<_> = all.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let uncounted = Uncounted::of(job);
        let is_unrecorded = |pod: &Pod, recorded_uids: &HashSet<Text>| {
            pod::is_tracked(pod)
                && pod::has_needed_index(pod, job)
                && !recorded_uids.contains(&pod.meta.uid)
        };
        let is_unrecorded_success =
            |pod: &Pod| pod::has_succeeded(pod) && is_unrecorded(pod, &uncounted.succeeded);
        let is_unrecorded_failure = |pod: &Pod| {
            pod::has_failed(pod, job)
                && is_unrecorded(pod, &uncounted.failed)
                && policy::match_pod_failure_policy(job, pod).counts_failure()
        };
        let unrecorded_successes =
            controlled.iter().filter(|pod| is_unrecorded_success(pod)).count();
        let unrecorded_failures =
            controlled.iter().filter(|pod| is_unrecorded_failure(pod)).count();
        let succeeded_pods =
            to_usize(job.status.succeeded) + uncounted.succeeded.len() + unrecorded_successes;
        let indexes = pod::is_indexed(job).then(|| IndexCounts::new(job, controlled, &active));
        Self {
            ready: active.iter().filter(|pod| pods::is_ready(pod)).count(),
            terminating: all.iter().filter(|pod| pods::is_terminating(pod)).count(),
            succeeded: indexes.as_ref().map_or(succeeded_pods, |indexes| indexes.succeeded.total()),
            failed: to_usize(job.status.failed) + uncounted.failed.len() + unrecorded_failures,
            active,
            indexes,
            uncounted,
        }
    }

    /// Returns whether the pod must stay until its index has a new pod. Upstream: `podsWithDelayedDeletionPerIndex`.
    pub(super) fn delays_deletion(&self, pod: &Pod) -> bool {
        if let Some(indexes) = &self.indexes
            && let Some(index) = pod::index(pod)
            && let Some(delayed) = indexes.pod_with_delayed_deletion(index)
        {
            return delayed.meta.uid == pod.meta.uid;
        }
        false
    }
}

impl IndexCounts {
    fn new(job: &Job, controlled: &[Arc<Pod>], active: &[Arc<Pod>]) -> Self {
        let tracked = || controlled.iter().filter(|pod| pod::is_tracked(pod));
        let recorded = Indexes::parse(&job.status.completed_indexes, pod::completions(job));
        let succeeded_pods = tracked().filter(|pod| pod::has_succeeded(pod));
        let succeeded = recorded.with(succeeded_pods.filter_map(|pod| pod::valid_index(pod, job)));
        let per_index = PerIndexFailures::of(job, tracked(), active, &succeeded);
        Self { recorded, succeeded, per_index }
    }
}

/// Converts a count. A negative count becomes 0.
fn to_usize(count: i32) -> usize {
    usize::try_from(count).unwrap_or(0)
}
