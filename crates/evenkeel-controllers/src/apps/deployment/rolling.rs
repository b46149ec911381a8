//! Strategy `RollingUpdate`: scales the new set up within `maxSurge`, or else old sets down within `maxUnavailable`.
//! Upstream: `rolling.go`.

use super::{progress, sync::DeploymentSync};

/// Takes one step of the rollout. Upstream: `rolloutRolling`.
pub(crate) fn roll_out(sync: &mut DeploymentSync<'_>) {
    let new = sync.get_or_create_new_set();
    if !reconcile_new_replica_set(sync, new)
        && !reconcile_old_replica_sets(sync, new)
        && progress::is_complete_now(sync)
    {
        sync.cleanup_deployment();
    }
}

/// Scales the new set. Returns whether its size changed. Upstream: `reconcileNewReplicaSet`.
fn reconcile_new_replica_set(sync: &mut DeploymentSync<'_>, new: usize) -> bool {
    let (present, desired) = (sync.sets[new].replicas, sync.limits.desired);
    let replicas = if present > desired { desired } else { sync.new_set_replicas(present) };
    present != desired && sync.scale_replica_set(new, replicas)
}

/// Scales old sets down while enough pods stay available. Each unavailable pod of the new set keeps one old pod.
/// Returns whether a size changed. Upstream: `reconcileOldReplicaSets`, `scaleDownOldReplicaSetsForRollingUpdate`.
fn reconcile_old_replica_sets(sync: &mut DeploymentSync<'_>, new: usize) -> bool {
    let old: Vec<usize> = sync.old().filter(|index| sync.sets[*index].replicas > 0).collect();
    let newest = &sync.sets[new];
    let missing = newest.replicas.saturating_sub(newest.status().available_replicas).max(0);
    let spare = sync.total().saturating_sub(sync.limits.min_available()).saturating_sub(missing);
    // If a set has more available pods than desired, its controller has yet to delete the surplus. Counting those
    // pods as available would delete too many others. After a rollback, the new set can have such a surplus. Upstream
    // does not wait for the ReplicaSet controller.
    let lags = old
        .iter()
        .chain([&new])
        .any(|index| sync.sets[*index].status().available_replicas > sync.sets[*index].replicas);
    if old.is_empty() || spare <= 0 || lags {
        return false;
    }
    let unhealthy = cleanup_unhealthy_replicas(sync, &old, spare);
    let healthy = scale_down_old_replica_sets(sync, new, &old);
    unhealthy || healthy
}

/// Scales down unavailable pods of old sets first, which does not reduce availability. Upstream:
/// `cleanupUnhealthyReplicas`.
fn cleanup_unhealthy_replicas(sync: &mut DeploymentSync<'_>, old: &[usize], spare: i32) -> bool {
    let mut remaining = spare;
    for &index in old {
        let set = &sync.sets[index];
        let unhealthy = set.replicas.saturating_sub(set.status().available_replicas);
        let removed = unhealthy.min(remaining).max(0);
        let replicas = set.replicas - removed;
        sync.scale_replica_set(index, replicas);
        remaining -= removed;
    }
    remaining < spare
}

/// Scales old sets down, the oldest first, by the number of available pods above the minimum.
fn scale_down_old_replica_sets(sync: &mut DeploymentSync<'_>, new: usize, old: &[usize]) -> bool {
    let counted =
        old.iter().chain([&new]).map(|index| sync.sets[*index].status().available_replicas);
    let available = counted.fold(0, i32::saturating_add);
    let spare = available.saturating_sub(sync.limits.min_available());
    let mut remaining = spare;
    for &index in old {
        let removed = sync.sets[index].replicas.min(remaining).max(0);
        let replicas = sync.sets[index].replicas - removed;
        sync.scale_replica_set(index, replicas);
        remaining -= removed;
    }
    remaining < spare
}
