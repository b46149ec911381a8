//! Strategy `RollingUpdate`: scales the new set up within `maxSurge`, or else old sets down within `maxUnavailable`.
//! Upstream: `rolling.go`.

use super::{pass::Pass, progress};

/// Takes one step of the rollout. Upstream: `rolloutRolling`.
pub(crate) fn roll_out(pass: &mut Pass<'_>) {
    let new = pass.get_or_create_new_set();
    if !reconcile_new_replica_set(pass, new)
        && !reconcile_old_replica_sets(pass, new)
        && progress::is_complete_now(pass)
    {
        pass.cleanup_deployment();
    }
}

/// Scales the new set. Returns whether its size changed. Upstream: `reconcileNewReplicaSet`.
fn reconcile_new_replica_set(pass: &mut Pass<'_>, new: usize) -> bool {
    let (present, desired) = (pass.sets[new].replicas, pass.budget.replicas);
    let replicas = if present > desired { desired } else { pass.new_set_replicas(present) };
    present != desired && pass.resize(new, replicas, false)
}

/// Scales old sets down while enough pods stay available. Each unavailable pod of the new set keeps one old pod.
/// Returns whether a size changed. Upstream: `reconcileOldReplicaSets`, `scaleDownOldReplicaSetsForRollingUpdate`.
fn reconcile_old_replica_sets(pass: &mut Pass<'_>, new: usize) -> bool {
    let old: Vec<usize> = pass.old().filter(|index| pass.sets[*index].replicas > 0).collect();
    let newest = &pass.sets[new];
    let missing = newest.replicas.saturating_sub(newest.status().available_replicas).max(0);
    let spare = pass.total().saturating_sub(pass.budget.min_available()).saturating_sub(missing);
    // If a set has more available pods than desired, its controller has yet to delete the surplus. Counting those
    // pods as available would delete too many others. After a rollback, the new set can have such a surplus. Upstream
    // does not wait for the ReplicaSet controller.
    let lags = old
        .iter()
        .chain([&new])
        .any(|index| pass.sets[*index].status().available_replicas > pass.sets[*index].replicas);
    if old.is_empty() || spare <= 0 || lags {
        return false;
    }
    let unhealthy = cleanup_unhealthy_replicas(pass, &old, spare);
    let healthy = scale_down_old_replica_sets(pass, new, &old);
    unhealthy || healthy
}

/// Scales down unavailable pods of old sets first, which does not reduce availability. Upstream:
/// `cleanupUnhealthyReplicas`.
fn cleanup_unhealthy_replicas(pass: &mut Pass<'_>, old: &[usize], spare: i32) -> bool {
    let mut remaining = spare;
    for &index in old {
        let set = &pass.sets[index];
        let unhealthy = set.replicas.saturating_sub(set.status().available_replicas);
        let removed = unhealthy.min(remaining).max(0);
        let replicas = set.replicas - removed;
        pass.resize(index, replicas, false);
        remaining -= removed;
    }
    remaining < spare
}

/// Scales old sets down, the oldest first, by the number of available pods above the minimum.
fn scale_down_old_replica_sets(pass: &mut Pass<'_>, new: usize, old: &[usize]) -> bool {
    let counted =
        old.iter().chain([&new]).map(|index| pass.sets[*index].status().available_replicas);
    let available = counted.fold(0, i32::saturating_add);
    let spare = available.saturating_sub(pass.budget.min_available());
    let mut remaining = spare;
    for &index in old {
        let removed = pass.sets[index].replicas.min(remaining).max(0);
        let replicas = pass.sets[index].replicas - removed;
        pass.resize(index, replicas, false);
        remaining -= removed;
    }
    remaining < spare
}
