//! On how many nodes a rollout may have no pod, or two.

use evenkeel_api::{
    int_or_string::{IntOrString, Rounding},
    views::DaemonSet,
};

/// The strategy that replaces old pods; any other (`OnDelete`) leaves them until somebody deletes them.
pub(crate) const ROLLING_UPDATE: &str = "RollingUpdate";

/// What the strategy allows, in nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Nodes without an available pod.
    pub(crate) unavailable: usize,
    /// Nodes with two pods.
    pub(crate) surge: usize,
}

impl Budget {
    /// Shares are rounded up; where both come to nothing, one node may be without, or no rollout would ever move.
    pub(crate) fn of(set: &DaemonSet, desired: usize) -> Self {
        let unavailable = scaled(set, desired, |rolling| rolling.max_unavailable.as_ref());
        let surge = scaled(set, desired, |rolling| rolling.max_surge.as_ref());
        let stuck = desired > 0 && unavailable == 0 && surge == 0;
        Self { unavailable: if stuck { 1 } else { unavailable }, surge }
    }
}

/// Whether any node may have two pods.
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
    // A share that makes no sense is refused by the API server; here it counts as none.
    let share = limit.and_then(|limit| limit.scaled(desired, Rounding::Up).ok());
    usize::try_from(share.unwrap_or(0)).unwrap_or(0)
}
