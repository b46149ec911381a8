//! What a Job's decision looks at, and the counts that follow from it.

use super::{
    backoff::Failures, indexes::Indexes, per_index::PerIndex, plan::Decision, pod, policy,
};
use crate::{claim::Claims, pods};
use evenkeel_api::{
    Text,
    time::Timestamp,
    views::{Job, Pod, UncountedTerminatedPods},
};
use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

/// A Job with its pods.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(super) job: Arc<Job>,
    /// All pods, those that have ended too.
    pub(super) pods: Claims<Pod>,
    pub(super) tally: Tally,
    /// What is waited for before pods are replaced.
    pub(super) failures: Failures,
    /// Whether a Job that is suspended loses its start time, so that scheduling directives may change
    /// (`MutableSchedulingDirectivesForSuspendedJobs`).
    pub(super) forgets_start: bool,
    /// Made once a pass: the status must follow from what the plan did, and time goes on between the two.
    decision: OnceLock<Decision>,
}

impl Seen {
    /// Sorts what caches hold: pods that the Job controls or nobody does; `earlier` are failures as the last pass left them.
    pub(super) fn new(
        job: Arc<Job>,
        candidates: impl IntoIterator<Item = Arc<Pod>>,
        earlier: Option<&Failures>,
        forgets_start: bool,
    ) -> Self {
        let selector = &job.spec.selector;
        let mut pods = Claims::by_labels(&job.meta, candidates, |labels| selector.matches(labels));
        let old = pods.owned.len() - pods.adopt;
        // The order in which pods are counted; a cache has none.
        pods.owned[..old].sort_by_cached_key(|pod| (pod::index(pod), pod.meta.name.clone()));
        let tally = Tally::new(&job, &pods.owned[..old], &pods.owned);
        let failures = Failures::seen(earlier, &job, &pods.owned[..old]);
        Self { job, pods, tally, failures, forgets_start, decision: OnceLock::new() }
    }

    /// What is done in this pass.
    pub(super) fn decision(&self, now: Timestamp) -> &Decision {
        self.decision.get_or_init(|| Decision::new(self, now))
    }

    /// Whether the Job counts its pods in a way that is known here.
    pub(super) fn mode_is_known(&self) -> bool {
        matches!(&*self.job.spec.completion_mode, "" | "NonIndexed" | "Indexed")
    }

    /// Pods that are the Job's already. Those that are only just being adopted are counted from the next pass on.
    pub(super) fn own(&self) -> &[Arc<Pod>] {
        &self.pods.owned[..self.pods.owned.len() - self.pods.adopt]
    }
}

/// Counts of a Job's pods.
#[derive(Debug)]
pub(super) struct Tally {
    /// Pods that run or wait to.
    pub(super) active: Vec<Arc<Pod>>,
    /// How many of those are ready.
    pub(super) ready: usize,
    /// Pods that are being deleted.
    pub(super) terminating: usize,
    /// Pods that succeeded, as far as they count; with indexes, how many of those did.
    pub(super) succeeded: usize,
    /// Pods that failed, as far as they count.
    pub(super) failed: usize,
    /// Of a Job with indexes.
    pub(super) indexes: Option<IndexTally>,
    /// What the status has as still to be counted.
    pub(super) uncounted: Uncounted,
}

/// Uids that a status has as still to be counted.
#[derive(Debug, Default)]
pub(super) struct Uncounted {
    /// Of pods that succeeded.
    pub(super) succeeded: HashSet<Text>,
    /// Of pods that failed.
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
pub(super) struct IndexTally {
    /// Those that the status has as succeeded.
    pub(super) recorded: Indexes,
    /// Those that have succeeded.
    pub(super) succeeded: Indexes,
    /// How they have failed, where each has a limit of its own.
    pub(super) per_index: Option<PerIndex>,
}

impl IndexTally {
    /// Those that have failed.
    pub(super) fn failed(&self) -> Option<&Indexes> {
        self.per_index.as_ref().map(|per_index| &per_index.failed)
    }

    /// The last failed pod of an index that waits for another.
    pub(super) fn to_replace(&self, index: u32) -> Option<&Arc<Pod>> {
        self.per_index.as_ref()?.to_replace.get(&index)
    }
}

impl Tally {
    fn new(job: &Job, own: &[Arc<Pod>], all: &[Arc<Pod>]) -> Self {
        let active: Vec<_> = all.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let uncounted = Uncounted::of(job);
        let fresh = |pod: &Pod, known: &HashSet<Text>| {
            pod::is_tracked(pod) && pod::counts(pod, job) && !known.contains(&pod.meta.uid)
        };
        let is_success = |pod: &Pod| pod::has_succeeded(pod) && fresh(pod, &uncounted.succeeded);
        let succeeded = own.iter().filter(|pod| is_success(pod)).count();
        let is_failure = |pod: &Pod| pod::has_failed(pod, job) && fresh(pod, &uncounted.failed);
        let failures = own.iter().filter(|pod| is_failure(pod));
        let failures = failures.filter(|pod| policy::meaning(job, pod).counts());
        let indexes = pod::is_indexed(job).then(|| IndexTally::new(job, own, &active));
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

    /// Whether the pod must stay until its index has another one.
    pub(super) fn holds(&self, pod: &Pod) -> bool {
        let held = || {
            let indexes = self.indexes.as_ref()?;
            indexes.to_replace(pod::index(pod)?)
        };
        held().is_some_and(|held| held.meta.uid == pod.meta.uid)
    }
}

impl IndexTally {
    fn new(job: &Job, own: &[Arc<Pod>], active: &[Arc<Pod>]) -> Self {
        let completions = pod::completions(job);
        let tracked = || {
            let tracked = own.iter().filter(|pod| pod::is_tracked(pod));
            tracked.filter_map(|pod| Some((pod::valid_index(pod, job)?, pod)))
        };
        let recorded = Indexes::parse(&job.status.completed_indexes, completions);
        let done = tracked().filter(|(_, pod)| pod::has_succeeded(pod)).map(|(index, _)| index);
        let succeeded = recorded.with(done);
        let per_index = PerIndex::of(job, tracked(), active, &succeeded);
        Self { recorded, succeeded, per_index }
    }
}

fn size(n: i32) -> usize {
    usize::try_from(n).unwrap_or(0)
}
