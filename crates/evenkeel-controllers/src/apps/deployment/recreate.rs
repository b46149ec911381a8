//! Strategy `Recreate`: waits until all old pods are deleted before it creates a new one. Upstream: `recreate.go`.

use super::{progress, sync::DeploymentSync};

/// Takes one step of the rollout. Upstream: `rolloutRecreate`.
pub(crate) fn roll_out(sync: &mut DeploymentSync<'_>) {
    let active_old: Vec<usize> =
        sync.old_indexes().filter(|index| sync.sets[*index].replicas > 0).collect();
    for index in &active_old {
        sync.scale_replica_set(*index, 0);
    }
    if !active_old.is_empty() || are_old_pods_running(sync) {
        return;
    }
    let new = sync.get_or_create_new_set();
    sync.scale_replica_set(new, sync.limits.desired);
    if progress::is_stored_status_complete(sync) {
        sync.cleanup_deployment();
    }
}

/// Returns whether old pods may still run, by the sets' statuses or by the pods themselves. Upstream: `oldPodsRunning`.
fn are_old_pods_running(sync: &DeploymentSync<'_>) -> bool {
    let mut old_sets = sync.old_indexes().filter_map(|index| sync.sets[index].existing);
    old_sets
        .any(|set| set.status.replicas > 0 || sync.observed.running_sets.contains(&set.meta.uid))
}
