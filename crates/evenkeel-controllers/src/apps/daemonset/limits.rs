//! `maxUnavailable` and `maxSurge` of a DaemonSet's rolling update.

use crate::wire;
use evenkeel_api::{
    int_or_string::{IntOrString, Rounding},
    views::{DaemonSet, RollingUpdateDaemonSet},
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
    /// Computes the limits from the number of desired pods. Rounds percentages up, and sets `maxUnavailable` to 1 if
    /// both limits are 0.
    pub(crate) fn resolve(set: &DaemonSet, desired: usize) -> Self {
        let max_unavailable = scaled(set, desired, |rolling| rolling.max_unavailable.as_ref());
        let max_surge = scaled(set, desired, |rolling| rolling.max_surge.as_ref());
        let is_stuck = desired > 0 && max_unavailable == 0 && max_surge == 0;
        Self { max_unavailable: if is_stuck { 1 } else { max_unavailable }, max_surge }
    }
}

/// Returns whether `maxSurge` is above zero. Upstream: `AllowsSurge`.
pub(crate) fn allows_surge(set: &DaemonSet) -> bool {
    // Any percentage above 0 of one pod is rounded up to 1.
    let desired = 1;
    scaled(set, desired, |rolling| rolling.max_surge.as_ref()) > 0
}

/// Returns a limit in pods; 0 if it is missing, or if the strategy is not `RollingUpdate`.
fn scaled(
    set: &DaemonSet,
    desired: usize,
    limit: impl Fn(&RollingUpdateDaemonSet) -> Option<&IntOrString>,
) -> usize {
    let strategy = &set.spec.update_strategy;
    if &*strategy.type_ != ROLLING_UPDATE {
        return 0;
    }
    let Some(limit) = strategy.rolling_update.as_deref().and_then(limit) else { return 0 };
    // The API server rejects an invalid percentage; here it counts as 0.
    let count = limit.scaled(wire::to_i32(desired), Rounding::Up).unwrap_or(0);
    usize::try_from(count).unwrap_or(0)
}
