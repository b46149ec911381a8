//! A limit of failures for each index (`backoffLimitPerIndex`; KEP-3850).

use super::{
    indexes::Indexes,
    pod::{self, INDEX_FAILURES, INDEX_IGNORED},
    policy::{self, Meaning},
};
use evenkeel_api::{
    time::Timestamp,
    views::{Job, Pod},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// How indexes have failed.
#[derive(Debug)]
pub(super) struct PerIndex {
    /// Those that have failed too often, or that a policy says have failed.
    pub(super) failed: Indexes,
    /// By index, the last failed pod, while nobody has taken its place: it must stay, since its successor is told how often
    /// the index failed before.
    pub(super) to_replace: BTreeMap<u32, Arc<Pod>>,
}

impl PerIndex {
    /// From what the status has, and pods with their indexes that are held back (`tracked`); `None` without such a limit.
    pub(super) fn of<'a>(
        job: &Job,
        tracked: impl Iterator<Item = (u32, &'a Arc<Pod>)>,
        active: &[Arc<Pod>],
        succeeded: &Indexes,
    ) -> Option<Self> {
        let limit = job.spec.backoff_limit_per_index?;
        let ended: Vec<_> = tracked.filter(|(_, pod)| pod::has_failed(pod, job)).collect();
        let before = job.status.failed_indexes.as_deref().unwrap_or_default();
        let failing = ended.iter().filter(|(_, pod)| fails_index(job, pod, limit));
        let failed =
            Indexes::parse(before, pod::completions(job)).with(failing.map(|(index, _)| *index));
        let running: BTreeSet<u32> = active.iter().filter_map(|pod| pod::index(pod)).collect();
        let mut to_replace = BTreeMap::<u32, Arc<Pod>>::new();
        for (index, pod) in ended {
            if succeeded.has(index) || failed.has(index) || running.contains(&index) {
                continue;
            }
            let later = |other: &Arc<Pod>| last_of_index(pod) >= last_of_index(other);
            if to_replace.get(&index).is_none_or(later) {
                to_replace.insert(index, pod.clone());
            }
        }
        Some(Self { failed, to_replace })
    }
}

/// Whether the pod, which failed, is the last of its index: a policy says so (`FailIndex`), or the limit is reached.
fn fails_index(job: &Job, pod: &Pod, limit: i32) -> bool {
    match policy::meaning(job, pod) {
        Meaning::FailIndex => true,
        meaning => meaning.counts() && earlier_failures(pod).0 >= limit,
    }
}

/// The order of pods of one index.
fn last_of_index(pod: &Pod) -> (i32, Timestamp) {
    let (counted, ignored) = earlier_failures(pod);
    (counted.saturating_add(ignored), pod::finished_at(pod))
}

/// How often the pod's index failed before it; those that count, and the others.
pub(super) fn earlier_failures(pod: &Pod) -> (i32, i32) {
    let number = |key| {
        let text = pod.meta.annotations.get(key);
        text.and_then(|text| text.parse::<i32>().ok()).filter(|n| *n >= 0).unwrap_or(0)
    };
    (number(INDEX_FAILURES), number(INDEX_IGNORED))
}

/// How often the index has failed, with the pod that is replaced.
pub(super) fn failures_with(job: &Job, replaced: Option<&Pod>) -> (i32, i32) {
    let Some(replaced) = replaced else { return (0, 0) };
    let (counted, ignored) = earlier_failures(replaced);
    match policy::meaning(job, replaced).counts() {
        true => (counted.saturating_add(1), ignored),
        false => (counted, ignored.saturating_add(1)),
    }
}
