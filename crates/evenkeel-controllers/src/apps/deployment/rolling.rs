//! Strategy `RollingUpdate`: scales the new set up within `maxSurge`, otherwise old sets down within `maxUnavailable`.
//! Upstream: `rolling.go`.

use super::{progress, sync::DeploymentSync};
use std::cmp::Ordering;

/// Takes one step of the rollout. Upstream: `rolloutRolling`.
pub(crate) fn roll_out(sync: &mut DeploymentSync<'_>) {
    let new = sync.get_or_create_new_set();
    if !reconcile_new_replica_set(sync, new)
        && !reconcile_old_replica_sets(sync, new)
        && progress::is_stored_status_complete(sync)
    {
        sync.cleanup_deployment();
    }
}

/// Scales the new set. Returns whether its size changed. Upstream: `reconcileNewReplicaSet`.
fn reconcile_new_replica_set(sync: &mut DeploymentSync<'_>, new: usize) -> bool {
    let present = sync.sets[new].replicas;
    let desired = sync.limits.desired;
    match present.cmp(&desired) {
        Ordering::Equal => false,
        Ordering::Greater => sync.scale_replica_set(new, desired),
        Ordering::Less => sync.scale_replica_set(new, sync.new_set_replicas(present)),
    }
}

/// Scales old sets down while enough pods stay available. Each unavailable pod of the new set keeps one old pod.
/// Returns whether a size changed. Upstream: `reconcileOldReplicaSets`, `scaleDownOldReplicaSetsForRollingUpdate`.
fn reconcile_old_replica_sets(sync: &mut DeploymentSync<'_>, new: usize) -> bool {
    let active_old: Vec<usize> =
        sync.old_indexes().filter(|index| sync.sets[*index].replicas > 0).collect();
    let new_set = &sync.sets[new];
    let unavailable_new =
        new_set.replicas.saturating_sub(new_set.status().available_replicas).max(0);
    let max_scaled_down = sync
        .total_replicas()
        .saturating_sub(sync.limits.min_available())
        .saturating_sub(unavailable_new);
    // If a set has more available pods than desired, its controller has yet to delete the surplus. Counting those
    // pods as available would delete too many others. After a rollback, the new set can have such a surplus. Upstream
    // does not wait for the ReplicaSet controller.
    let has_surplus = |index: &usize| {
        let set = &sync.sets[*index];
        set.status().available_replicas > set.replicas
    };
    let awaits_deletions = has_surplus(&new) || active_old.iter().any(has_surplus);
    if active_old.is_empty() || max_scaled_down <= 0 || awaits_deletions {
        return false;
    }
    let scaled_unhealthy = cleanup_unhealthy_replicas(sync, &active_old, max_scaled_down);
    let scaled_healthy = scale_down_old_replica_sets(sync, new, &active_old);
    scaled_unhealthy || scaled_healthy
}

/// Scales old sets down by their unavailable pods, and by at most `max` in total. This does not reduce availability.
/// Returns whether a size changed. Upstream: `cleanupUnhealthyReplicas`.
fn cleanup_unhealthy_replicas(sync: &mut DeploymentSync<'_>, old: &[usize], max: i32) -> bool {
    let mut remaining = max;
    for &index in old {
        let set = &sync.sets[index];
        let unhealthy = set.replicas.saturating_sub(set.status().available_replicas);
        let removed = unhealthy.min(remaining).max(0);
        let replicas = set.replicas - removed;
        sync.scale_replica_set(index, replicas);
        remaining -= removed;
    }
    remaining < max
}

/// Scales old sets down, the oldest first, by the number of available pods above the minimum. Returns whether a size
/// changed.
fn scale_down_old_replica_sets(sync: &mut DeploymentSync<'_>, new: usize, old: &[usize]) -> bool {
    let available_by_set =
        old.iter().chain([&new]).map(|index| sync.sets[*index].status().available_replicas);
    let available = available_by_set.fold(0, i32::saturating_add);
    let max = available.saturating_sub(sync.limits.min_available());
    let mut remaining = max;
    for &index in old {
        let removed = sync.sets[index].replicas.min(remaining).max(0);
        let replicas = sync.sets[index].replicas - removed;
        sync.scale_replica_set(index, replicas);
        remaining -= removed;
    }
    remaining < max
}
