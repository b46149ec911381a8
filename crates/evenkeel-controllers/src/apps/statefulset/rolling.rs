//! Rolling update: replaces pods of old revisions from the last ordinal, within `maxUnavailable`. Upstream:
//! `performUpdate`.

use super::{
    budget,
    plan::{Pass, Replica},
};

/// Deletes pods of old revisions with ordinals from `partition` on.
///
/// With `OrderedReady`, deletes pods within the budget. With `Parallel`, deletes unavailable pods first, which uses
/// no budget, then others within it. Upstream: `updateStatefulSetAfterInvariantEstablished`.
pub(crate) fn roll_out(pass: &mut Pass<'_>) {
    if !pass.observed.features.max_unavailable {
        return one_by_one(pass);
    }
    let (unavailable, max) = (pass.n_unavailable(), pass.max_unavailable());
    let ordered = pass.observed.is_ordered();
    let update = pass.observed.update.name();
    let old: Vec<_> = (0..pass.replicas.len())
        .rev()
        .filter_map(|index| match pass.replicas[index] {
            Replica::Existing(pod) if pass.revision(pass.replicas[index]) != update => {
                Some((index, pod))
            }
            Replica::Existing(_) | Replica::Missing(_) => None,
        })
        .filter(|(_, pod)| !pod.meta.deleting())
        .collect();
    let stuck = !ordered && old.iter().any(|(_, pod)| pass.is_unavailable(pod));
    if unavailable >= max && !stuck {
        return;
    }
    let partition = budget::partition(&pass.observed.set);
    let mut budget = max - unavailable;
    let candidates = old.into_iter().filter(|(index, _)| *index >= partition).map(|(_, pod)| pod);
    let (unavailable_pods, available_pods): (Vec<_>, Vec<_>) =
        candidates.partition(|pod| !ordered && pass.is_unavailable(pod));
    for pod in unavailable_pods {
        replace(pass, pod);
    }
    for pod in available_pods {
        if budget <= 0 {
            return;
        }
        replace(pass, pod);
        budget -= 1;
    }
}

/// Rolling update without the gate `MaxUnavailableStatefulSet`. Of the pods with an old revision, deletes the one
/// with the highest ordinal, unless a pod with a higher one is unavailable.
fn one_by_one(pass: &mut Pass<'_>) {
    let update = pass.observed.update.name();
    for index in (budget::partition(&pass.observed.set)..pass.replicas.len()).rev() {
        let replica = pass.replicas[index];
        match replica {
            Replica::Existing(pod) if pass.revision(replica) != update && !pod.meta.deleting() => {
                return replace(pass, pod);
            }
            Replica::Existing(pod) if !pass.is_unavailable(pod) => {}
            Replica::Existing(_) | Replica::Missing(_) => return,
        }
    }
}

fn replace(pass: &mut Pass<'_>, pod: &evenkeel_api::views::Pod) {
    let index = pass.actions.len();
    pass.delete(pod);
    // `delete` adds no action if the plan already deletes the pod, for example because it is terminal.
    if pass.actions.len() > index {
        pass.replaced.push(index);
    }
}
