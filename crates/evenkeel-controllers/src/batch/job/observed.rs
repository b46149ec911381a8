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
        let old = pods.owned.len() - pods.n_to_adopt;
        // Count pods in a fixed order; the cache has none.
        pods.owned[..old].sort_by_cached_key(|pod| (pod::index(pod), pod.meta.name.clone()));
        let counts = PodCounts::new(&job, &pods.owned[..old], &pods.owned);
        let failures = Failures::observed(earlier, &job, &pods.owned[..old]);
        Self { job, pods, counts, failures, clears_start_time }
    }

    /// Whether `completionMode` is known.
    pub(super) fn mode_is_known(&self) -> bool {
        matches!(&*self.job.spec.completion_mode, "" | "NonIndexed" | "Indexed")
    }

    /// Returns the pods that the Job controls; pods still to be adopted are counted later.
    pub(super) fn own(&self) -> &[Arc<Pod>] {
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

/// Counts of indexes.
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
    fn new(job: &Job, own: &[Arc<Pod>], all: &[Arc<Pod>]) -> Self {
        let active: Vec<_> = all.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let uncounted = Uncounted::of(job);
        let is_unrecorded = |pod: &Pod, known: &HashSet<Text>| {
            pod::is_tracked(pod) && pod::counts(pod, job) && !known.contains(&pod.meta.uid)
        };
        let is_success =
            |pod: &Pod| pod::has_succeeded(pod) && is_unrecorded(pod, &uncounted.succeeded);
        let succeeded = own.iter().filter(|pod| is_success(pod)).count();
        let is_failure =
            |pod: &Pod| pod::has_failed(pod, job) && is_unrecorded(pod, &uncounted.failed);
        let failures = own.iter().filter(|pod| is_failure(pod));
        let failures = failures.filter(|pod| policy::match_pod_failure_policy(job, pod).counts());
        let indexes = pod::is_indexed(job).then(|| IndexCounts::new(job, own, &active));
        let counted = size(job.status.succeeded) + uncounted.succeeded.len() + succeeded;
        Self {
            ready: active.iter().filter(|pod| pods::is_ready(pod)).count(),
            terminating: all.iter().filter(|pod| pods::is_terminating(pod)).count(),
            succeeded: indexes.as_ref().map_or(counted, |indexes| indexes.succeeded.total()),
            failed: size(job.status.failed) + uncounted.failed.len() + failures.count(),
            active,
            indexes,
            uncounted,
        }
    }

    /// Whether the pod must stay until its index has a new pod. Upstream: `podsWithDelayedDeletionPerIndex`.
    pub(super) fn delays_deletion(&self, pod: &Pod) -> bool {
        let delayed = || {
            let indexes = self.indexes.as_ref()?;
            indexes.pod_with_delayed_deletion(pod::index(pod)?)
        };
        delayed().is_some_and(|delayed| delayed.meta.uid == pod.meta.uid)
    }
}

impl IndexCounts {
    fn new(job: &Job, own: &[Arc<Pod>], active: &[Arc<Pod>]) -> Self {
        let completions = pod::completions(job);
        let tracked = || {
            let tracked = own.iter().filter(|pod| pod::is_tracked(pod));
            tracked.filter_map(|pod| Some((pod::valid_index(pod, job)?, pod)))
        };
        let recorded = Indexes::parse(&job.status.completed_indexes, completions);
        let succeeded_now =
            tracked().filter(|(_, pod)| pod::has_succeeded(pod)).map(|(index, _)| index);
        let succeeded = recorded.with(succeeded_now);
        let per_index = PerIndexFailures::of(job, tracked(), active, &succeeded);
        Self { recorded, succeeded, per_index }
    }
}

fn size(n: i32) -> usize {
    usize::try_from(n).unwrap_or(0)
}
