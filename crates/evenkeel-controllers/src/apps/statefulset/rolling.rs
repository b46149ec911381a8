//! Pods of old revisions give way, the last first, as long as enough are available.

use super::{
    budget,
    plan::{Pass, Slot},
};

/// Deletes pods of old revisions down to the partition.
///
/// With `OrderedReady` as many as may still become unavailable. With `Parallel` those that are unavailable anyway go first
/// and cost nothing, then others as far as the budget goes.
pub(crate) fn roll_out(pass: &mut Pass<'_>) {
    if !pass.seen.features.max_unavailable {
        return one_by_one(pass);
    }
    let (unavailable, max) = (pass.n_unavailable(), pass.max_unavailable());
    let ordered = pass.seen.is_ordered();
    let update = pass.seen.update.name();
    let old: Vec<_> = (0..pass.replicas.len())
        .rev()
        .filter_map(|at| match pass.replicas[at] {
            Slot::There(pod) if pass.revision(pass.replicas[at]) != update => Some((at, pod)),
            Slot::There(_) | Slot::Missing(_) => None,
        })
        .filter(|(_, pod)| !pod.meta.deleting())
        .collect();
    let stuck = !ordered && old.iter().any(|(_, pod)| pass.is_unavailable(pod));
    if unavailable >= max && !stuck {
        return;
    }
    let partition = budget::partition(&pass.seen.set);
    let mut budget = max - unavailable;
    let candidates = old.into_iter().filter(|(at, _)| *at >= partition).map(|(_, pod)| pod);
    let (free, rest): (Vec<_>, Vec<_>) =
        candidates.partition(|pod| !ordered && pass.is_unavailable(pod));
    for pod in free {
        replace(pass, pod);
    }
    for pod in rest {
        if budget <= 0 {
            return;
        }
        replace(pass, pod);
        budget -= 1;
    }
}

/// As it was before there was `maxUnavailable`: the last pod of an old revision goes, and none while one after it is not
/// available.
fn one_by_one(pass: &mut Pass<'_>) {
    let update = pass.seen.update.name();
    for at in (budget::partition(&pass.seen.set)..pass.replicas.len()).rev() {
        let slot = pass.replicas[at];
        match slot {
            Slot::There(pod) if pass.revision(slot) != update && !pod.meta.deleting() => {
                return replace(pass, pod);
            }
            Slot::There(pod) if !pass.is_unavailable(pod) => {}
            Slot::There(_) | Slot::Missing(_) => return,
        }
    }
}

fn replace(pass: &mut Pass<'_>, pod: &evenkeel_api::views::Pod) {
    let at = pass.actions.len();
    pass.delete(pod);
    // One that has ended is deleted already.
    if pass.actions.len() > at {
        pass.replaced.push(at);
    }
}
