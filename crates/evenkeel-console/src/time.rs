//! The time of the cluster, which may pass faster than the process's.

use evenkeel_api::time::Timestamp;
use evenkeel_explain::Source;
use evenkeel_runtime::{
    clock::Clock,
    introspect::{Introspection, ObjectReport, Subject},
};
use std::convert::Infallible;
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

/// Reports of controllers, read in the cluster's time.
pub(crate) struct TimedReports<'a> {
    pub(crate) time: &'a ClusterTime,
    pub(crate) introspection: &'a Introspection,
}

impl Source for TimedReports<'_> {
    type Error = Infallible;

    async fn reports(&self, subject: &Subject) -> Result<Vec<ObjectReport>, Infallible> {
        Ok(self.time.within(|| self.introspection.object_reports(subject)))
    }
}
