//! `maxSurge` and `maxUnavailable` of a Deployment.

use evenkeel_api::{int_or_string::Rounding, views::Deployment};

/// Value of `strategy.type` that replaces pods gradually.
pub(crate) const ROLLING_UPDATE: &str = "RollingUpdate";
/// Value of `strategy.type` that deletes all old pods first.
pub(crate) const RECREATE: &str = "Recreate";

/// Limits of a rolling update, in pods. Upstream: `ResolveFenceposts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Desired replicas of the Deployment, `spec.replicas`.
    pub(crate) replicas: i32,
    /// Pods allowed above `replicas`.
    pub(crate) surge: i32,
    /// Pods allowed to be unavailable.
    pub(crate) unavailable: i32,
}

impl Budget {
    /// Computes the limits: `maxSurge` rounded up, `maxUnavailable` rounded down, and 1 unavailable if both are 0.
    /// Upstream: `ResolveFenceposts`.
    pub(crate) fn of(deployment: &Deployment) -> Self {
        let spec = &deployment.spec;
        let replicas = spec.replicas.unwrap_or(1).max(0);
        if &*spec.strategy.type_ != ROLLING_UPDATE {
            return Self { replicas, surge: 0, unavailable: 0 };
        }
        let limits = spec.strategy.rolling_update.as_deref();
        let surge =
            limits.and_then(|l| l.max_surge.as_ref()).map(|max| max.scaled(replicas, Rounding::Up));
        let unavailable = limits
            .and_then(|l| l.max_unavailable.as_ref())
            .map(|max| max.scaled(replicas, Rounding::Down));
        // The API server rejects an invalid percentage; here it counts as 0.
        let surge = surge.and_then(Result::ok).unwrap_or(0).max(0);
        let unavailable = unavailable.and_then(Result::ok).unwrap_or(0).max(0);
        let stuck = surge == 0 && unavailable == 0;
        Self { replicas, surge, unavailable: if stuck { 1 } else { unavailable }.min(replicas) }
    }

    /// Returns the maximum number of pods.
    pub(crate) fn max(self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// Returns the minimum number of available pods. Upstream: `MinAvailable`.
    pub(crate) fn min_available(self) -> i32 {
        self.replicas - self.unavailable
    }
}
