//! Source of time of the server.

use std::sync::Arc;

use jiff::Timestamp;

/// Source of time; nothing else in the server reads the system's clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Returns a clock with the system's time.
    pub fn system() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        Self::new(Timestamp::now)
    }

    /// Returns a clock with any source of time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the clock's current time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// Returns the monotonic time that timers follow, to measure durations.
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
