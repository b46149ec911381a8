//! Maps deletions of pods to Deployments.

use super::limits::RECREATE;
use crate::owned::resolve_controller_ref;
use evenkeel_api::views::{Deployment, Pod, ReplicaSet};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::Key,
};
use std::sync::Arc;

/// Enqueues the Deployment of a deleted pod if its strategy is `Recreate`, which waits for old pods.
/// Upstream: `deletePod`.
pub(super) fn on_pod(
    deployments: &Cache<Deployment>,
    sets: &Cache<ReplicaSet>,
    event: &CacheEvent<Pod>,
    mut enqueue: impl FnMut(Key),
) {
    let CacheEvent::Deleted(pod) = event else { return };
    if let Some(deployment) = deployment_of(deployments, sets, pod)
        && &*deployment.spec.strategy.type_ == RECREATE
    {
        enqueue(Key::of(&deployment.meta));
    }
}

/// Returns the Deployment that owns the pod's ReplicaSet.
fn deployment_of(
    deployments: &Cache<Deployment>,
    sets: &Cache<ReplicaSet>,
    pod: &Pod,
) -> Option<Arc<Deployment>> {
    let set = resolve_controller_ref(sets, &pod.meta.namespace, pod.meta.controller()?)?;
    resolve_controller_ref(deployments, &set.meta.namespace, set.meta.controller()?)
}
