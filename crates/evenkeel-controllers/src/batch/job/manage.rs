//! How many pods a Job has at a time: which are made, and which are one too many.

use super::{backoff, pod, seen::Seen};
use crate::victims;
use evenkeel_api::{time::Timestamp, views::Pod};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The most pods made or deleted in one pass.
const BURST: usize = 500;

/// What is done about the number of pods.
#[derive(Debug, PartialEq)]
pub(super) enum Manage {
    /// Make these, by index where the Job has indexes.
    Make(Vec<Option<u32>>),
    /// Make none before this time has passed, since pods failed.
    Wait(Duration),
    /// Delete these, as if they had never been.
    Delete(Vec<Arc<Pod>>),
    /// There are as many as there should be.
    Keep,
}

/// Deletions come first, so that one pass never both deletes and makes.
pub(super) fn manage(seen: &Seen, now: Timestamp) -> Manage {
    let (job, tally) = (&*seen.job, &seen.tally);
    let have = tally.active.len();
    let want = if job.spec.suspend { 0 } else { wanted(seen) };
    let surplus = surplus(seen, have.saturating_sub(want));
    if job.spec.suspend || !surplus.is_empty() {
        return Manage::Delete(surplus);
    }
    let waited_for = if pod::replaces_only_failed(job) { tally.terminating } else { 0 };
    let lack = want.saturating_sub(waited_for).saturating_sub(have);
    if lack == 0 {
        return Manage::Keep;
    }
    if job.spec.backoff_limit_per_index.is_some() && pod::is_indexed(job) {
        return replace_by_index(seen, lack.min(BURST), now);
    }
    let wait = seen.failures.remaining(now);
    if !wait.is_zero() {
        return Manage::Wait(wait);
    }
    if !pod::is_indexed(job) {
        return Manage::Make(vec![None; lack.min(BURST)]);
    }
    make(pending(seen, lack.min(BURST)))
}

/// How many pods should be active: as many as are still needed for `completions`, at most `parallelism`.
fn wanted(seen: &Seen) -> usize {
    let (job, tally) = (&*seen.job, &seen.tally);
    let parallelism = job.spec.parallelism.map_or(1, |n| usize::try_from(n).unwrap_or(0));
    match job.spec.completions {
        // A work queue: the first success says that there is no more work, and the others may end in peace.
        None if tally.succeeded > 0 => tally.active.len(),
        None => parallelism,
        Some(_) => {
            (pod::completions(job) as usize).saturating_sub(tally.succeeded).min(parallelism)
        }
    }
}

/// The pods to delete: with indexes, all that have none, or one that there is not, or one that another has too; then the
/// least useful.
fn surplus(seen: &Seen, at_least: usize) -> Vec<Arc<Pod>> {
    // One that is only just being adopted is left for the next pass.
    let own = |pod: &&Arc<Pod>| pod.meta.controlled_by(&seen.job.meta.uid);
    let active: Vec<Arc<Pod>> = seen.tally.active.iter().filter(own).cloned().collect();
    let (mut gone, rest) = match pod::is_indexed(&seen.job) {
        true => duplicates(seen, active),
        false => (Vec::new(), active),
    };
    let more = at_least.saturating_sub(gone.len()).min(rest.len());
    if more > 0 {
        gone.extend(victims::youngest(&rest, more));
    }
    if !seen.job.spec.suspend {
        gone.truncate(BURST);
    }
    gone
}

/// Pods without an index of their own, and the others.
fn duplicates(seen: &Seen, active: Vec<Arc<Pod>>) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let (mut gone, mut rest) = (Vec::new(), Vec::new());
    let mut by_index = BTreeMap::<u32, Vec<Arc<Pod>>>::new();
    for pod in active {
        match pod::valid_index(&pod, &seen.job) {
            Some(index) => by_index.entry(index).or_default().push(pod),
            None => gone.push(pod),
        }
    }
    for pods in by_index.into_values() {
        let less_useful = victims::youngest(&pods, pods.len() - 1);
        rest.extend(
            pods.into_iter().filter(|pod| !less_useful.iter().any(|p| Arc::ptr_eq(p, pod))),
        );
        gone.extend(less_useful);
    }
    (gone, rest)
}

/// The first indexes that have neither succeeded nor failed nor a pod at work.
fn pending(seen: &Seen, count: usize) -> Vec<u32> {
    let Some(indexes) = &seen.tally.indexes else { return Vec::new() };
    let job = &*seen.job;
    let at_work = seen.pods.owned.iter().filter(|pod| match pod.meta.deleting() {
        true => pod::replaces_only_failed(job) && crate::pods::is_terminating(pod),
        false => crate::pods::is_active(pod),
    });
    let mut taken = indexes.succeeded.with(at_work.filter_map(|pod| pod::index(pod)));
    if let Some(failed) = indexes.failed() {
        taken = taken.union(failed);
    }
    taken.missing(count, pod::completions(job))
}

/// With `backoffLimitPerIndex` each index waits for itself.
fn replace_by_index(seen: &Seen, lack: usize, now: Timestamp) -> Manage {
    let Some(indexes) = &seen.tally.indexes else { return Manage::Keep };
    let wait = |index: &u32| {
        let last = indexes.to_replace(*index);
        last.map_or(Duration::ZERO, |last| backoff::remaining_of_index(last, now))
    };
    let pending = pending(seen, lack);
    let ready: Vec<u32> = pending.iter().copied().filter(|index| wait(index).is_zero()).collect();
    match pending.iter().map(wait).min() {
        Some(shortest) if ready.is_empty() => Manage::Wait(shortest),
        _ => make(ready),
    }
}

fn make(indexes: Vec<u32>) -> Manage {
    if indexes.is_empty() {
        return Manage::Keep;
    }
    Manage::Make(indexes.into_iter().map(Some).collect())
}
