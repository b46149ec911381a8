//! Proportional scaling during a rollout: each set keeps its share of the pods, which limits the effect of a
//! bad rollout. Upstream: `scale` in `sync.go`.

use super::{pass::Pass, revision, sets::SetCopy};

/// Whether the Deployment's `replicas` changed since its sets were scaled. Upstream: `isScalingEvent`.
pub(crate) fn is_scaling_event(pass: &Pass<'_>) -> bool {
    let active = pass.sets.iter().filter(|set| set.replicas > 0);
    let annotated = active.filter_map(|set| revision::size(&set.annotations, revision::DESIRED));
    annotated.into_iter().any(|size| size != pass.budget.replicas)
}

/// Scales the sets to the Deployment's `replicas`. Upstream: `scale`.
pub(crate) fn scale(pass: &mut Pass<'_>) {
    let active: Vec<usize> =
        (0..pass.sets.len()).filter(|index| pass.sets[*index].replicas > 0).collect();
    match active[..] {
        // No set has replicas: the new set, or else the newest old one, gets all.
        [] => {
            if let Some(index) = pass.new.or_else(|| pass.old().next_back()) {
                pass.resize(index, pass.budget.replicas, false);
            }
        }
        [index] => {
            pass.resize(index, pass.budget.replicas, false);
        }
        _ if pass.new.is_some_and(|new| is_saturated(pass, &pass.sets[new])) => {
            let new = pass.new;
            for index in active.into_iter().filter(|index| Some(*index) != new) {
                pass.resize(index, 0, false);
            }
        }
        _ if pass.is_rolling() => scale_proportionally(pass, active),
        _ => {}
    }
}

/// Whether all desired pods of the new set are available. Upstream: `IsSaturated`.
fn is_saturated(pass: &Pass<'_>, set: &SetCopy<'_>) -> bool {
    let desired = pass.budget.replicas;
    let annotated =
        set.annotations.get(revision::DESIRED).and_then(|text| text.parse::<i32>().ok());
    set.replicas == desired
        && annotated == Some(desired)
        && set.status().available_replicas == desired
}

/// Distributes added or removed replicas in proportion to the sets' sizes; the largest set gets the rest
/// after rounding. Upstream: `scale`, at `IsRollingUpdate`.
fn scale_proportionally(pass: &mut Pass<'_>, mut active: Vec<usize>) {
    let allowed = if pass.budget.replicas > 0 { pass.budget.max() } else { 0 };
    let change = i64::from(allowed)
        - active.iter().map(|index| i64::from(pass.sets[*index].replicas)).sum::<i64>();
    // `active` is sorted by age. Of equal sets, newer ones gain first and older ones lose first. Upstream:
    // `ReplicaSetsBySizeNewer`, `ReplicaSetsBySizeOlder`.
    if change > 0 {
        active.reverse();
    }
    if change != 0 {
        active.sort_by_key(|index| std::cmp::Reverse(pass.sets[*index].replicas));
    }
    let mut remaining = change;
    let mut sizes: Vec<i64> = Vec::with_capacity(active.len());
    for index in &active {
        let set = &pass.sets[*index];
        let part = if remaining == 0 { 0 } else { fraction(pass, set) };
        let part = if change > 0 { part.min(remaining) } else { part.max(remaining) };
        sizes.push(i64::from(set.replicas) + part);
        remaining -= part;
    }
    if let Some(largest) = sizes.first_mut().filter(|_| change != 0) {
        *largest = (*largest + remaining).max(0);
    }
    for (index, size) in active.into_iter().zip(sizes) {
        pass.resize(index, i32::try_from(size).unwrap_or(i32::MAX), true);
    }
}

/// Returns the change of a set's replicas in proportion to its size. Upstream: `getReplicaSetFraction`.
fn fraction(pass: &Pass<'_>, set: &SetCopy<'_>) -> i64 {
    let size = i64::from(set.replicas);
    if pass.budget.replicas == 0 {
        return -size;
    }
    let annotated = revision::size(&set.annotations, revision::MAX).filter(|max| *max != 0);
    let before = i64::from(annotated.unwrap_or(pass.observed.deployment.status.replicas));
    if before == 0 {
        return 0;
    }
    rounded(size * i64::from(pass.budget.max()), before) - size
}

/// Divides non-negative numbers and rounds halves up.
fn rounded(dividend: i64, divisor: i64) -> i64 {
    (2 * dividend + divisor).div_euclid(2 * divisor)
}
