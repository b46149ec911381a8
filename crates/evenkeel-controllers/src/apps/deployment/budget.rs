//! How many pods a rollout may have too many or too few.

use evenkeel_api::{int_or_string::Rounding, views::Deployment};

/// The name of the strategy that replaces pods bit by bit.
pub(crate) const ROLLING_UPDATE: &str = "RollingUpdate";
/// The name of the strategy that stops all old pods first.
pub(crate) const RECREATE: &str = "Recreate";

/// What a deployment's strategy allows, in pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Pods asked for.
    pub(crate) replicas: i32,
    /// How many there may be beyond those.
    pub(crate) surge: i32,
    /// How many of those may be missing.
    pub(crate) unavailable: i32,
}

impl Budget {
    /// A share for surge is rounded up, one for unavailable pods down; where both come to nothing, one pod may be
    /// missing, or no rollout would ever move.
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
        // A share that makes no sense is refused by the API server; here it counts as none.
        let surge = surge.and_then(Result::ok).unwrap_or(0).max(0);
        let unavailable = unavailable.and_then(Result::ok).unwrap_or(0).max(0);
        let stuck = surge == 0 && unavailable == 0;
        Self { replicas, surge, unavailable: if stuck { 1 } else { unavailable }.min(replicas) }
    }

    /// The most pods that there may be.
    pub(crate) fn max(self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// The fewest pods that must be available.
    pub(crate) fn min_available(self) -> i32 {
        self.replicas - self.unavailable
    }
}
