//! `maxSurge` and `maxUnavailable` of a Deployment.

use evenkeel_api::{
    int_or_string::{IntOrString, Rounding},
    views::Deployment,
};

/// Value of `strategy.type` that replaces pods gradually.
pub(crate) const ROLLING_UPDATE: &str = "RollingUpdate";
/// Value of `strategy.type` that deletes all old pods first.
pub(crate) const RECREATE: &str = "Recreate";

/// Limits of a rolling update, in pods. Upstream: `ResolveFenceposts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RolloutLimits {
    /// Desired replicas of the Deployment, `spec.replicas`.
    pub(crate) desired: i32,
    /// Number of pods allowed above `desired`.
    pub(crate) max_surge: i32,
    /// Number of pods allowed to be unavailable.
    pub(crate) max_unavailable: i32,
}

impl RolloutLimits {
    /// Computes the limits. Rounds `maxSurge` up and `maxUnavailable` down, and allows 1 unavailable pod if both are 0.
    /// Upstream: `ResolveFenceposts`.
    pub(crate) fn resolve(deployment: &Deployment) -> Self {
        let spec = &deployment.spec;
        let desired = spec.replicas.unwrap_or(1).max(0);
        if &*spec.strategy.type_ != ROLLING_UPDATE {
            return Self { desired, max_surge: 0, max_unavailable: 0 };
        }
        // The API server rejects an invalid percentage; here it counts as 0.
        let scaled = |limit: Option<&IntOrString>, rounding| {
            limit.and_then(|limit| limit.scaled(desired, rounding).ok()).unwrap_or(0).max(0)
        };
        let rolling_update = spec.strategy.rolling_update.as_deref();
        let max_surge =
            scaled(rolling_update.and_then(|rolling| rolling.max_surge.as_ref()), Rounding::Up);
        let max_unavailable = scaled(
            rolling_update.and_then(|rolling| rolling.max_unavailable.as_ref()),
            Rounding::Down,
        );
        let is_stuck = max_surge == 0 && max_unavailable == 0;
        let max_unavailable = if is_stuck { 1 } else { max_unavailable }.min(desired);
        Self { desired, max_surge, max_unavailable }
    }

    /// Returns the maximum number of pods.
    pub(crate) fn max_replicas(self) -> i32 {
        self.desired.saturating_add(self.max_surge)
    }

    /// Returns the minimum number of available pods. Upstream: `MinAvailable`.
    pub(crate) fn min_available(self) -> i32 {
        self.desired - self.max_unavailable
    }
}
