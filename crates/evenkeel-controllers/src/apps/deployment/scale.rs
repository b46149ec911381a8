//! Proportional scaling during a rollout: each set keeps its share of the pods, which limits the effect of a
//! bad rollout. Upstream: `scale` in `sync.go`.

use super::{annotations, sets::PlannedSet, sync::DeploymentSync};

/// Returns whether the Deployment's `replicas` changed since its sets were scaled. Upstream: `isScalingEvent`.
pub(crate) fn is_scaling_event(sync: &DeploymentSync<'_>) -> bool {
    let active = sync.sets.iter().filter(|set| set.replicas > 0);
    let mut desired_annotations = active
        .filter_map(|set| annotations::replicas(&set.annotations, annotations::DESIRED_REPLICAS));
    desired_annotations.any(|desired| desired != sync.limits.desired)
}

/// Scales the sets to the Deployment's `replicas`. Upstream: `scale`.
pub(crate) fn scale(sync: &mut DeploymentSync<'_>) {
    let active: Vec<usize> =
        (0..sync.sets.len()).filter(|index| sync.sets[*index].replicas > 0).collect();
    match active[..] {
        // No set has replicas: the new set gets all, or the newest old one if there is no new set.
        [] => {
            if let Some(index) = sync.new_index.or_else(|| sync.old_indexes().next_back()) {
                sync.scale_replica_set(index, sync.limits.desired);
            }
        }
        [index] => {
            sync.scale_replica_set(index, sync.limits.desired);
        }
        _ if sync.new_index.is_some_and(|new| is_saturated(sync, &sync.sets[new])) => {
            let new = sync.new_index;
            for index in active.into_iter().filter(|index| Some(*index) != new) {
                sync.scale_replica_set(index, 0);
            }
        }
        _ if sync.is_rolling() => scale_proportionally(sync, active),
        // Recreate with several active sets: no scaling until one is left.
        _ => {}
    }
}

/// Returns whether the set alone has all desired replicas: its size, its annotation [`annotations::DESIRED_REPLICAS`]
/// and its available replicas all equal the Deployment's `replicas`. Upstream: `IsSaturated`.
fn is_saturated(sync: &DeploymentSync<'_>, set: &PlannedSet<'_>) -> bool {
    let desired = sync.limits.desired;
    let desired_annotation = set
        .annotations
        .get(annotations::DESIRED_REPLICAS)
        .and_then(|text| text.parse::<i32>().ok());
    set.replicas == desired
        && desired_annotation == Some(desired)
        && set.status().available_replicas == desired
}

/// Distributes added or removed replicas in proportion to the sets' sizes. The largest set gets the rest
/// after rounding. Upstream: the branch `IsRollingUpdate` of `scale`.
fn scale_proportionally(sync: &mut DeploymentSync<'_>, mut active: Vec<usize>) {
    let max_replicas = if sync.limits.desired > 0 { sync.limits.max_replicas() } else { 0 };
    let total: i64 = active.iter().map(|index| i64::from(sync.sets[*index].replicas)).sum();
    let change = i64::from(max_replicas) - total;
    // `active` is sorted by age. Of equal sets, newer ones gain first and older ones lose first. Upstream:
    // `ReplicaSetsBySizeNewer`, `ReplicaSetsBySizeOlder`.
    if change > 0 {
        active.reverse();
    }
    if change != 0 {
        active.sort_by_key(|index| std::cmp::Reverse(sync.sets[*index].replicas));
    }
    let mut remaining = change;
    let mut sizes: Vec<i64> = Vec::with_capacity(active.len());
    for index in &active {
        let set = &sync.sets[*index];
        let share = if remaining == 0 { 0 } else { proportional_change(sync, set) };
        let share = if change > 0 { share.min(remaining) } else { share.max(remaining) };
        sizes.push(i64::from(set.replicas) + share);
        remaining -= share;
    }
    if change != 0
        && let Some(largest) = sizes.first_mut()
    {
        *largest = (*largest + remaining).max(0);
    }
    for (index, size) in active.into_iter().zip(sizes) {
        sync.scale_and_annotate(index, i32::try_from(size).unwrap_or(i32::MAX));
    }
}

/// Returns the change of a set's replicas in proportion to its size. Upstream: `getReplicaSetFraction`.
fn proportional_change(sync: &DeploymentSync<'_>, set: &PlannedSet<'_>) -> i64 {
    let size = i64::from(set.replicas);
    if sync.limits.desired == 0 {
        return -size;
    }
    let max_annotation =
        annotations::replicas(&set.annotations, annotations::MAX_REPLICAS).filter(|max| *max != 0);
    let max_before = i64::from(max_annotation.unwrap_or(sync.observed.deployment.status.replicas));
    if max_before == 0 {
        return 0;
    }
    divide_and_round(size * i64::from(sync.limits.max_replicas()), max_before) - size
}

/// Divides non-negative numbers and rounds halves up.
fn divide_and_round(dividend: i64, divisor: i64) -> i64 {
    (2 * dividend + divisor).div_euclid(2 * divisor)
}
