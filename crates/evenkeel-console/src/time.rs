//! The time of the cluster, which may pass faster than the process's.

use evenkeel_api::time::Timestamp;
use evenkeel_explain::Source;
use evenkeel_runtime::{
    clock::Clock,
    introspect::{Introspection, ObjectReport, Subject},
};
use std::convert::Infallible;
use tokio::runtime::Handle;

/// Clock of the cluster's components. It returns the cluster's time only within their runtime.
pub(crate) struct ClusterTime {
    clock: Clock,
    runtime: Handle,
}

impl ClusterTime {
    pub(crate) fn new(clock: Clock, runtime: Handle) -> Self {
        Self { clock, runtime }
    }

    /// Returns the cluster's time, from which the ages of objects are computed.
    pub(crate) fn now(&self) -> Timestamp {
        self.within(|| self.clock.now())
    }

    /// Calls a function within the runtime of the components, so that reports of controllers use the cluster's time.
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
