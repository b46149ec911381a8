//! The time of the cluster, which may pass faster than the process's.

use evenkeel_api::time::Timestamp;
use evenkeel_runtime::clock::Clock;
use tokio::runtime::Handle;

/// Clock of the cluster's components, which shows its time only within their runtime.
pub(crate) struct ClusterTime {
    clock: Clock,
    runtime: Handle,
}

impl ClusterTime {
    pub(crate) fn new(clock: Clock, runtime: Handle) -> Self {
        Self { clock, runtime }
    }

    /// Returns the cluster's time, by which its objects have their ages.
    pub(crate) fn now(&self) -> Timestamp {
        self.within(|| self.clock.now())
    }

    /// Reads what depends on the cluster's time: controllers report when they ran last, and what they would do now.
    pub(crate) fn within<T>(&self, read: impl FnOnce() -> T) -> T {
        let _context = self.runtime.enter();
        read()
    }
}
