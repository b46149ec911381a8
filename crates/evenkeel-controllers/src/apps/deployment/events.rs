//! Which deployments a change of a ReplicaSet or of a pod concerns.

use super::budget::RECREATE;
use crate::owned::resolve;
use evenkeel_api::{
    Meta,
    views::{Deployment, Pod, ReplicaSet},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::Key,
};

/// Names the deployments: the set's own, before and after; for a set that nobody controls, those that may adopt it.
pub(super) fn on_set(
    deployments: &Cache<Deployment>,
    event: &CacheEvent<ReplicaSet>,
    mut enqueue: impl FnMut(Key),
) {
    match event {
        CacheEvent::Added { object: set, .. } => {
            if !enqueue_owner(deployments, &set.meta, &mut enqueue) && !set.meta.deleting() {
                enqueue_takers(deployments, &set.meta, &mut enqueue);
            }
        }
        CacheEvent::Updated { old, new } => {
            if old.meta.resource_version == new.meta.resource_version {
                return;
            }
            let changed_hands = old.meta.controller() != new.meta.controller();
            if changed_hands {
                enqueue_owner(deployments, &old.meta, &mut enqueue);
            }
            let orphan = !enqueue_owner(deployments, &new.meta, &mut enqueue);
            if orphan && (changed_hands || old.meta.labels != new.meta.labels) {
                enqueue_takers(deployments, &new.meta, &mut enqueue);
            }
        }
        CacheEvent::Deleted(set) => {
            enqueue_owner(deployments, &set.meta, &mut enqueue);
        }
    }
}

/// A deployment that recreates waits for its old pods to be gone.
pub(super) fn on_pod(
    deployments: &Cache<Deployment>,
    sets: &Cache<ReplicaSet>,
    event: &CacheEvent<Pod>,
    mut enqueue: impl FnMut(Key),
) {
    let CacheEvent::Deleted(pod) = event else { return };
    let set =
        pod.meta.controller().and_then(|controller| resolve(sets, &pod.meta.namespace, controller));
    let Some(set) = set else { return };
    let controller = set.meta.controller();
    let deployment =
        controller.and_then(|controller| resolve(deployments, &set.meta.namespace, controller));
    if let Some(deployment) =
        deployment.filter(|deployment| &*deployment.spec.strategy.type_ == RECREATE)
    {
        enqueue(Key::of(&deployment.meta));
    }
}

/// Whether the set has a controller, of whichever kind.
fn enqueue_owner(
    deployments: &Cache<Deployment>,
    set: &Meta,
    enqueue: &mut impl FnMut(Key),
) -> bool {
    let Some(controller) = set.controller() else { return false };
    if let Some(deployment) = resolve(deployments, &set.namespace, controller) {
        enqueue(Key::of(&deployment.meta));
    }
    true
}

fn enqueue_takers(deployments: &Cache<Deployment>, set: &Meta, enqueue: &mut impl FnMut(Key)) {
    if set.labels.is_empty() {
        return;
    }
    for deployment in deployments.namespace(&set.namespace) {
        let selector = &deployment.spec.selector;
        if !selector.is_empty() && selector.matches(&set.labels) {
            enqueue(Key::of(&deployment.meta));
        }
    }
}
