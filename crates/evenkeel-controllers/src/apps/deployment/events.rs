//! Maps deletions of pods to Deployments.

use super::limits::RECREATE;
use crate::owned::resolve_controller_ref;
use evenkeel_api::views::{Deployment, Pod, ReplicaSet};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::Key,
};

/// Enqueues the Deployment of a deleted pod if its strategy is `Recreate`, which waits for old pods.
/// Upstream: `deletePod`.
pub(super) fn on_pod(
    deployments: &Cache<Deployment>,
    sets: &Cache<ReplicaSet>,
    event: &CacheEvent<Pod>,
    mut enqueue: impl FnMut(Key),
) {
    let CacheEvent::Deleted(pod) = event else { return };
    let set = pod
        .meta
        .controller()
        .and_then(|controller| resolve_controller_ref(sets, &pod.meta.namespace, controller));
    let Some(set) = set else { return };
    let controller = set.meta.controller();
    let deployment = controller.and_then(|controller| {
        resolve_controller_ref(deployments, &set.meta.namespace, controller)
    });
    if let Some(deployment) =
        deployment.filter(|deployment| &*deployment.spec.strategy.type_ == RECREATE)
    {
        enqueue(Key::of(&deployment.meta));
    }
}
