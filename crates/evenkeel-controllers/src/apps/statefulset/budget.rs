//! How many pods a rollout may have too few.

use evenkeel_api::{int_or_string::Rounding, views::StatefulSet};

/// `maxUnavailable`: one pod where nobody said; a share is rounded down, but never to none.
pub(crate) fn max_unavailable(set: &StatefulSet) -> i32 {
    let rolling = set.spec.update_strategy.rolling_update.as_deref();
    let max = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let replicas = set.spec.replicas.unwrap_or(1).max(0);
    // A share that makes no sense is refused by the API server; here it counts as none.
    max.and_then(|max| max.scaled(replicas, Rounding::Down).ok()).unwrap_or(1).max(1)
}

/// `partition`: how many pods, from the first, keep the old template.
pub(crate) fn partition(set: &StatefulSet) -> usize {
    let rolling = set.spec.update_strategy.rolling_update.as_deref();
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
    usize::try_from(partition).unwrap_or(0)
}
