//! Strategy `Recreate`: waits until all old pods are gone before it creates a new one. Upstream:
//! `recreate.go`.

use super::{progress, sync::DeploymentSync};

/// Takes one step of the rollout. Upstream: `rolloutRecreate`.
pub(crate) fn roll_out(sync: &mut DeploymentSync<'_>) {
    let old: Vec<usize> = sync.old().filter(|index| sync.sets[*index].replicas > 0).collect();
    for index in &old {
        sync.scale_replica_set(*index, 0);
    }
    if !old.is_empty() || old_pods_run(sync) {
        return;
    }
    let new = sync.get_or_create_new_set();
    sync.scale_replica_set(new, sync.limits.desired);
    if progress::is_complete_now(sync) {
        sync.cleanup_deployment();
    }
}

/// Whether old pods may still run, by the sets' statuses or by the pods themselves. Upstream:
/// `oldPodsRunning`.
fn old_pods_run(sync: &DeploymentSync<'_>) -> bool {
    sync.old().any(|index| {
        let counted = sync.sets[index].status().replicas > 0;
        counted
            || sync.sets[index]
                .present
                .is_some_and(|set| sync.observed.running.contains(&set.meta.uid))
    })
}
