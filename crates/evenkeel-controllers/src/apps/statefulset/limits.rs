//! `maxUnavailable` and `partition` of a rolling update of a StatefulSet.

use evenkeel_api::{int_or_string::Rounding, views::StatefulSet};

/// Returns `maxUnavailable` in pods: default 1, percentages rounded down, at least 1. Upstream:
/// `getStatefulSetMaxUnavailable`.
pub(crate) fn max_unavailable(set: &StatefulSet) -> i32 {
    let rolling = set.spec.update_strategy.rolling_update.as_deref();
    let max = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let replicas = set.spec.replicas.unwrap_or(1).max(0);
    // The API server rejects an invalid percentage; here it counts as the default.
    max.and_then(|max| max.scaled(replicas, Rounding::Down).ok()).unwrap_or(1).max(1)
}

/// Returns `partition`: pods at positions below it keep the old revision.
pub(crate) fn partition(set: &StatefulSet) -> usize {
    let rolling = set.spec.update_strategy.rolling_update.as_deref();
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
    usize::try_from(partition).unwrap_or(0)
}
