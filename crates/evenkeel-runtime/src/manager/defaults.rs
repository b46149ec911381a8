//! Options of all controllers of a manager.

use crate::queue::Backoff;
use std::time::Duration;

/// Options of all controllers of a manager. Each controller may replace them. See
/// [`ManagerBuilder::controller_defaults`](super::ManagerBuilder::controller_defaults).
///
/// ```
/// use evenkeel_runtime::manager::ControllerDefaults;
/// use std::time::Duration;
///
/// let defaults =
///     ControllerDefaults::default().max_concurrent(4).timeout(Duration::from_secs(60));
/// ```
///
/// Upstream: `config.Controller` of controller-runtime.
#[derive(Debug, Clone, Copy)]
#[must_use = "defaults do nothing until a manager takes them"]
pub struct ControllerDefaults {
    pub(crate) max_concurrent: Option<usize>,
    pub(crate) max_retries: Option<u32>,
    pub(crate) backoff: Backoff,
    pub(crate) timeout: Option<Duration>,
    pub(crate) warm_up: bool,
    pub(crate) recovers_panics: bool,
    pub(crate) needs_leader_election: bool,
}

impl Default for ControllerDefaults {
    fn default() -> Self {
        Self {
            max_concurrent: None,
            max_retries: None,
            backoff: Backoff::default(),
            timeout: None,
            warm_up: false,
            recovers_panics: true,
            needs_leader_election: true,
        }
    }
}

impl ControllerDefaults {
    /// Sets the number of keys that a controller reconciles concurrently. Default: 1.
    #[doc(alias = "MaxConcurrentReconciles")]
    pub fn max_concurrent(self, n: usize) -> Self {
        Self { max_concurrent: Some(n), ..self }
    }

    /// Limits the consecutive retries of a key. Default: no limit.
    pub fn max_retries(self, n: u32) -> Self {
        Self { max_retries: Some(n), ..self }
    }

    /// Sets the backoff of failed keys. Default: from 5 ms, doubled up to 1000 s.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Fails a pass (one reconcile) that takes longer. Default: no limit.
    #[doc(alias = "ReconciliationTimeout")]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Fills the queues before this process is elected.
    #[doc(alias = "EnableWarmup")]
    pub fn warm_up(self) -> Self {
        Self { warm_up: true, ..self }
    }

    /// Sets whether a panic of a pass counts as a failure of its key, which is retried. Otherwise, a panic stops the manager
    /// with an error. Default: true.
    #[doc(alias = "RecoverPanic")]
    pub fn recover_panic(self, recover: bool) -> Self {
        Self { recovers_panics: recover, ..self }
    }

    /// Sets whether controllers run only in the leader. Otherwise they run in every replica, and no lease fences their writes.
    /// Default: true.
    #[doc(alias = "NeedLeaderElection")]
    pub fn needs_leader_election(self, needs: bool) -> Self {
        Self { needs_leader_election: needs, ..self }
    }
}
