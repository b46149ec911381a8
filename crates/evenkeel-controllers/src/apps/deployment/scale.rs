//! Scaling in the midst of a rollout: every set gets its share, so that a rollout that goes wrong gets no worse by it.

use super::{plan::Pass, revision, sets::SetCopy};

/// Whether the deployment's size is another than when its sets were last scaled.
pub(crate) fn is_scaling_event(pass: &Pass<'_>) -> bool {
    let active = pass.sets.iter().filter(|set| set.replicas > 0);
    let noted = active.filter_map(|set| revision::size(&set.annotations, revision::DESIRED));
    noted.into_iter().any(|size| size != pass.budget.replicas)
}

/// Gives the sets the sizes that the deployment's calls for.
pub(crate) fn scale(pass: &mut Pass<'_>) {
    let active: Vec<usize> =
        (0..pass.sets.len()).filter(|at| pass.sets[*at].replicas > 0).collect();
    match active[..] {
        // Without any pods, the newest set gets them all.
        [] => {
            if let Some(at) = pass.new.or_else(|| pass.old().next_back()) {
                pass.resize(at, pass.budget.replicas, false);
            }
        }
        [at] => {
            pass.resize(at, pass.budget.replicas, false);
        }
        _ if pass.new.is_some_and(|new| is_saturated(pass, &pass.sets[new])) => {
            let new = pass.new;
            for at in active.into_iter().filter(|at| Some(*at) != new) {
                pass.resize(at, 0, false);
            }
        }
        _ if pass.is_rolling() => scale_proportionally(pass, active),
        _ => {}
    }
}

/// Whether the new set has all pods that the deployment wants, and all are available.
fn is_saturated(pass: &Pass<'_>, set: &SetCopy<'_>) -> bool {
    let wanted = pass.budget.replicas;
    let noted = set.annotations.get(revision::DESIRED).and_then(|text| text.parse::<i32>().ok());
    set.replicas == wanted && noted == Some(wanted) && set.status().available_replicas == wanted
}

/// Shares out what is to be added or taken, by size; what is left over by rounding goes to the largest.
fn scale_proportionally(pass: &mut Pass<'_>, mut active: Vec<usize>) {
    let allowed = if pass.budget.replicas > 0 { pass.budget.max() } else { 0 };
    let change = i64::from(allowed)
        - active.iter().map(|at| i64::from(pass.sets[*at].replicas)).sum::<i64>();
    // `active` is in order of age: of sets of one size, newer ones gain first and older ones lose first.
    if change > 0 {
        active.reverse();
    }
    if change != 0 {
        active.sort_by_key(|at| std::cmp::Reverse(pass.sets[*at].replicas));
    }
    let mut left = change;
    let mut sizes: Vec<i64> = Vec::with_capacity(active.len());
    for at in &active {
        let set = &pass.sets[*at];
        let part = if left == 0 { 0 } else { fraction(pass, set) };
        let part = if change > 0 { part.min(left) } else { part.max(left) };
        sizes.push(i64::from(set.replicas) + part);
        left -= part;
    }
    if let Some(largest) = sizes.first_mut().filter(|_| change != 0) {
        *largest = (*largest + left).max(0);
    }
    for (at, size) in active.into_iter().zip(sizes) {
        pass.resize(at, i32::try_from(size).unwrap_or(i32::MAX), true);
    }
}

/// By how much a set would change if all kept their proportions.
fn fraction(pass: &Pass<'_>, set: &SetCopy<'_>) -> i64 {
    let size = i64::from(set.replicas);
    if pass.budget.replicas == 0 {
        return -size;
    }
    let noted = revision::size(&set.annotations, revision::MAX).filter(|max| *max != 0);
    let before = i64::from(noted.unwrap_or(pass.observed.deployment.status.replicas));
    if before == 0 {
        return 0;
    }
    rounded(size * i64::from(pass.budget.max()), before) - size
}

/// The quotient of what is not negative, halves rounded up.
fn rounded(dividend: i64, divisor: i64) -> i64 {
    (2 * dividend + divisor).div_euclid(2 * divisor)
}
