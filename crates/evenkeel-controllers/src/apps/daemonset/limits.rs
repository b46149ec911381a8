//! `maxUnavailable` and `maxSurge` of a DaemonSet's rolling update.

use evenkeel_api::{
    int_or_string::{IntOrString, Rounding},
    views::DaemonSet,
};

/// Value of `updateStrategy.type` with which the controller replaces old pods. With `OnDelete`, the user
/// deletes them.
pub(crate) const ROLLING_UPDATE: &str = "RollingUpdate";

/// Limits of a rolling update, in nodes. Upstream: `updatedDesiredNodeCounts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RolloutLimits {
    /// Number of nodes that may be without an available pod.
    pub(crate) max_unavailable: usize,
    /// Number of nodes that may have two pods.
    pub(crate) max_surge: usize,
}

impl RolloutLimits {
    /// Computes the limits; percentages are rounded up, and `maxUnavailable` is 1 if both are 0.
    pub(crate) fn resolve(set: &DaemonSet, desired: usize) -> Self {
        let max_unavailable = scaled(set, desired, |rolling| rolling.max_unavailable.as_ref());
        let max_surge = scaled(set, desired, |rolling| rolling.max_surge.as_ref());
        let is_stuck = desired > 0 && max_unavailable == 0 && max_surge == 0;
        Self { max_unavailable: if is_stuck { 1 } else { max_unavailable }, max_surge }
    }
}

/// Whether `maxSurge` is above zero. Upstream: `AllowsSurge`.
pub(crate) fn allows_surge(set: &DaemonSet) -> bool {
    scaled(set, 1, |rolling| rolling.max_surge.as_ref()) > 0
}

fn scaled(
    set: &DaemonSet,
    desired: usize,
    limit: impl Fn(&evenkeel_api::views::RollingUpdateDaemonSet) -> Option<&IntOrString>,
) -> usize {
    let strategy = &set.spec.update_strategy;
    let rolling = strategy.rolling_update.as_deref();
    let limit = rolling.filter(|_| &*strategy.type_ == ROLLING_UPDATE).and_then(limit);
    let desired = i32::try_from(desired).unwrap_or(i32::MAX);
    // The API server rejects an invalid percentage; here it counts as 0.
    let count = limit.and_then(|limit| limit.scaled(desired, Rounding::Up).ok());
    usize::try_from(count.unwrap_or(0)).unwrap_or(0)
}
