//! Rolling update: replaces pods of old revisions from the last ordinal, within `maxUnavailable`. Upstream:
//! `performUpdate`.

use super::{
    limits,
    plan::{Replica, StatefulSetSync},
};
use crate::pods::revision_of;
use evenkeel_api::views::Pod;

/// Deletes pods of old revisions with ordinals from `partition` on.
///
/// With `OrderedReady`, deletes pods within `maxUnavailable`. With `Parallel`, deletes all unavailable pods, whatever
/// `maxUnavailable` is, then others within it. Upstream: `updateStatefulSetAfterInvariantEstablished`.
pub(crate) fn roll_out(sync: &mut StatefulSetSync<'_>) {
    if !sync.observed.features.max_unavailable {
        return roll_out_one_by_one(sync);
    }
    let is_parallel = !sync.observed.is_ordered();
    let mut old_pods = find_old_pods(sync);
    let n_unavailable = sync.n_unavailable();
    let max = sync.max_unavailable();
    let replaces_unavailable =
        is_parallel && old_pods.iter().any(|old| sync.is_unavailable(old.pod));
    if n_unavailable >= max && !replaces_unavailable {
        return;
    }
    let partition = limits::partition(&sync.observed.set);
    old_pods.retain(|old| old.position >= partition);
    let (unlimited, limited): (Vec<_>, Vec<_>) =
        old_pods.into_iter().partition(|old| is_parallel && sync.is_unavailable(old.pod));
    let may_become_unavailable = usize::try_from(max - n_unavailable).unwrap_or(0);
    for old in unlimited.into_iter().chain(limited.into_iter().take(may_become_unavailable)) {
        delete_old_pod(sync, old.pod);
    }
}

/// A replica's pod of an old revision.
struct OldPod<'a> {
    position: usize,
    pod: &'a Pod,
}

/// Returns the pods of old revisions that are not terminating, the last ordinal first.
fn find_old_pods<'a>(sync: &StatefulSetSync<'a>) -> Vec<OldPod<'a>> {
    let mut old_pods = Vec::new();
    for (position, replica) in sync.replicas.iter().enumerate().rev() {
        if let Replica::Existing(pod) = *replica
            && is_old(sync, pod)
        {
            old_pods.push(OldPod { position, pod });
        }
    }
    old_pods
}

/// Returns whether the pod has an old revision and is not terminating.
fn is_old(sync: &StatefulSetSync<'_>, pod: &Pod) -> bool {
    revision_of(pod) != sync.observed.update_revision.name() && !pod.meta.deleting()
}

/// Rolling update without the gate `MaxUnavailableStatefulSet`. Of the pods with an old revision, deletes the one
/// with the highest ordinal, unless a pod with a higher one is unavailable.
fn roll_out_one_by_one(sync: &mut StatefulSetSync<'_>) {
    let partition = limits::partition(&sync.observed.set);
    for position in (partition..sync.replicas.len()).rev() {
        match sync.replicas[position] {
            Replica::Existing(pod) if is_old(sync, pod) => return delete_old_pod(sync, pod),
            Replica::Existing(pod) if !sync.is_unavailable(pod) => {}
            Replica::Existing(_) | Replica::Missing(_) => return,
        }
    }
}

/// Plans the deletion of a pod of an old revision, and records it for the status.
fn delete_old_pod(sync: &mut StatefulSetSync<'_>, pod: &Pod) {
    let index = sync.actions.len();
    sync.delete(pod);
    // `delete` adds no action if the plan already deletes the pod, for example because it is terminal.
    if sync.actions.len() > index {
        sync.old_pod_deletions.push(index);
    }
}
