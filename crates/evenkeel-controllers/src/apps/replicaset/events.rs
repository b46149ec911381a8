//! Which sets a change of a pod concerns.

use super::set::Set;
use crate::{owned::resolve, pods};
use evenkeel_api::{Meta, views::Pod};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::Key,
};

/// Names the sets: the pod's own, before and after; for a pod that nobody controls, those that may adopt it.
pub(super) fn on_pod<S: Set>(
    sets: &Cache<S>,
    event: &CacheEvent<Pod>,
    mut enqueue: impl FnMut(Key),
) {
    match event {
        CacheEvent::Added { object: pod, .. } => {
            if !enqueue_owner(sets, &pod.meta, &mut enqueue) && !pod.meta.deleting() {
                enqueue_takers(sets, &pod.meta, &mut enqueue);
            }
        }
        CacheEvent::Updated { old, new } => {
            if old.meta.resource_version == new.meta.resource_version {
                return;
            }
            let changed_hands = old.meta.controller() != new.meta.controller();
            if changed_hands {
                enqueue_owner(sets, &old.meta, &mut enqueue);
            }
            let relabelled = old.meta.labels != new.meta.labels;
            if new.meta.controller().is_some() {
                if changed_hands || relabelled || counts_otherwise(old, new) {
                    enqueue_owner(sets, &new.meta, &mut enqueue);
                }
            } else if (changed_hands || relabelled) && !new.meta.deleting() {
                enqueue_takers(sets, &new.meta, &mut enqueue);
            }
        }
        // Nobody misses a pod that nobody had.
        CacheEvent::Deleted(pod) => {
            enqueue_owner(sets, &pod.meta, &mut enqueue);
        }
    }
}

/// Whether a set would count the pod otherwise than before. Most updates of a pod (its addresses, its containers) are of
/// no concern to its set.
fn counts_otherwise(old: &Pod, new: &Pod) -> bool {
    let of = |pod: &Pod| (pod.meta.deleting(), pods::is_terminal(pod), pods::ready(pod));
    of(old) != of(new)
}

/// Whether the pod has a controller, of whichever kind.
fn enqueue_owner<S: Set>(sets: &Cache<S>, pod: &Meta, enqueue: &mut impl FnMut(Key)) -> bool {
    let Some(controller) = pod.controller() else { return false };
    if let Some(set) = resolve(sets, &pod.namespace, controller) {
        enqueue(Key::of(set.meta()));
    }
    true
}

fn enqueue_takers<S: Set>(sets: &Cache<S>, pod: &Meta, enqueue: &mut impl FnMut(Key)) {
    if pod.labels.is_empty() {
        return;
    }
    let takers = sets.namespace(&pod.namespace);
    takers
        .iter()
        .filter(|set| set.could_take(&pod.labels))
        .for_each(|set| enqueue(Key::of(set.meta())));
}
