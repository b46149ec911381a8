//! What a Job's decision looks at, and the counts that follow from it.

use super::{
    indexes::Indexes,
    plan::Decision,
    pod,
    policy::{self, Meaning},
};
use crate::{claim::Claims, pods};
use evenkeel_api::{
    Text,
    time::Timestamp,
    views::{Job, Pod, UncountedTerminatedPods},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, OnceLock},
};

/// A Job with its pods.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(super) job: Arc<Job>,
    /// All pods, those that have ended too.
    pub(super) pods: Claims<Pod>,
    pub(super) tally: Tally,
    /// Made once a pass: the status must follow from what the plan did, and time goes on between the two.
    decision: OnceLock<Decision>,
}

impl Seen {
    /// Sorts what caches hold: pods that the Job controls or nobody does.
    pub(super) fn new(job: Arc<Job>, candidates: impl IntoIterator<Item = Arc<Pod>>) -> Self {
        let selector = &job.spec.selector;
        let mut pods =
            Claims::new(&job.meta, candidates, |pod: &Pod| selector.matches(&pod.meta.labels));
        let old = pods.owned.len() - pods.adopt;
        // The order in which pods are counted; a cache has none.
        pods.owned[..old].sort_by_cached_key(|pod| (pod::index(pod), pod.meta.name.clone()));
        let tally = Tally::new(&job, &pods.owned[..old], &pods.owned);
        Self { job, pods, tally, decision: OnceLock::new() }
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
    /// Those that have failed, where each has a limit of its own.
    pub(super) failed: Option<Indexes>,
    /// By index, the last failed pod, while nobody has taken its place: it must stay, since its successor is told how often
    /// the index failed before.
    pub(super) to_replace: BTreeMap<u32, Arc<Pod>>,
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
            indexes.to_replace.get(&pod::index(pod)?)
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
        let Some(limit) = job.spec.backoff_limit_per_index else {
            return Self { recorded, succeeded, failed: None, to_replace: BTreeMap::new() };
        };
        let before = job.status.failed_indexes.as_deref().unwrap_or_default();
        let gone = tracked().filter(|(_, pod)| fails_index(job, pod, limit));
        let failed = Indexes::parse(before, completions).with(gone.map(|(index, _)| index));
        let running: BTreeSet<u32> = active.iter().filter_map(|pod| pod::index(pod)).collect();
        let mut to_replace = BTreeMap::<u32, Arc<Pod>>::new();
        for (index, pod) in tracked().filter(|(_, pod)| pod::has_failed(pod, job)) {
            if succeeded.has(index) || failed.has(index) || running.contains(&index) {
                continue;
            }
            let later = |other: &Arc<Pod>| last_of_index(pod) >= last_of_index(other);
            if to_replace.get(&index).is_none_or(later) {
                to_replace.insert(index, pod.clone());
            }
        }
        Self { recorded, succeeded, failed: Some(failed), to_replace }
    }
}

/// The order of pods of one index.
fn last_of_index(pod: &Pod) -> (i32, Timestamp) {
    let (counted, ignored) = pod::earlier_failures(pod);
    (counted.saturating_add(ignored), pod::finished_at(pod))
}

/// Whether the pod's index is not tried again.
fn fails_index(job: &Job, pod: &Pod, limit: i32) -> bool {
    pod::has_failed(pod, job)
        && match policy::meaning(job, pod) {
            Meaning::FailIndex => true,
            meaning => meaning.counts() && pod::earlier_failures(pod).0 >= limit,
        }
}

fn size(n: i32) -> usize {
    usize::try_from(n).unwrap_or(0)
}
