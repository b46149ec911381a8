//! The source of time of the server.

use std::sync::Arc;

use jiff::Timestamp;

/// Source of time; nothing else in the server reads the system's clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's time.
    pub fn system() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        Self::new(Timestamp::now)
    }

    /// Any source of time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time as this clock gives it.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// The monotonic time, which timers follow; for durations.
    pub(crate) fn instant(&self) -> tokio::time::Instant {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        tokio::time::Instant::now()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}
