//! Rolling update: replaces pods of old revisions from the last ordinal, within `maxUnavailable`. Upstream:
//! `performUpdate`.

use super::{
    limits,
    plan::{Replica, StatefulSetSync},
};

/// Deletes pods of old revisions with ordinals from `partition` on.
///
/// With `OrderedReady`, deletes pods within `maxUnavailable`. With `Parallel`, deletes unavailable pods first, which
/// do not count, then others within `maxUnavailable`. Upstream: `updateStatefulSetAfterInvariantEstablished`.
pub(crate) fn roll_out(sync: &mut StatefulSetSync<'_>) {
    if !sync.observed.features.max_unavailable {
        return one_by_one(sync);
    }
    let (unavailable, max) = (sync.n_unavailable(), sync.max_unavailable());
    let ordered = sync.observed.is_ordered();
    let update = sync.observed.update.name();
    let old: Vec<_> = (0..sync.replicas.len())
        .rev()
        .filter_map(|index| match sync.replicas[index] {
            Replica::Existing(pod) if sync.revision(sync.replicas[index]) != update => {
                Some((index, pod))
            }
            Replica::Existing(_) | Replica::Missing(_) => None,
        })
        .filter(|(_, pod)| !pod.meta.deleting())
        .collect();
    let stuck = !ordered && old.iter().any(|(_, pod)| sync.is_unavailable(pod));
    if unavailable >= max && !stuck {
        return;
    }
    let partition = limits::partition(&sync.observed.set);
    let mut remaining = max - unavailable;
    let candidates = old.into_iter().filter(|(index, _)| *index >= partition).map(|(_, pod)| pod);
    let (unavailable_pods, available_pods): (Vec<_>, Vec<_>) =
        candidates.partition(|pod| !ordered && sync.is_unavailable(pod));
    for pod in unavailable_pods {
        replace(sync, pod);
    }
    for pod in available_pods {
        if remaining <= 0 {
            return;
        }
        replace(sync, pod);
        remaining -= 1;
    }
}

/// Rolling update without the gate `MaxUnavailableStatefulSet`. Of the pods with an old revision, deletes the one
/// with the highest ordinal, unless a pod with a higher one is unavailable.
fn one_by_one(sync: &mut StatefulSetSync<'_>) {
    let update = sync.observed.update.name();
    for index in (limits::partition(&sync.observed.set)..sync.replicas.len()).rev() {
        let replica = sync.replicas[index];
        match replica {
            Replica::Existing(pod) if sync.revision(replica) != update && !pod.meta.deleting() => {
                return replace(sync, pod);
            }
            Replica::Existing(pod) if !sync.is_unavailable(pod) => {}
            Replica::Existing(_) | Replica::Missing(_) => return,
        }
    }
}

fn replace(sync: &mut StatefulSetSync<'_>, pod: &evenkeel_api::views::Pod) {
    let index = sync.actions.len();
    sync.delete(pod);
    // `delete` adds no action if the plan already deletes the pod, for example because it is terminal.
    if sync.actions.len() > index {
        sync.replaced.push(index);
    }
}
