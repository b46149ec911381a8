//! Durations of plugin calls, measured for metrics.

use evenkeel_runtime::clock::Clock;
use std::time::Duration;
use tokio::time::Instant;

/// Monotonic clock for measurements. No decision depends on its readings. The default stopwatch does not run and always
/// reads zero, so that a scheduling attempt without measurements is a pure function.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stopwatch {
    /// `None` if the stopwatch does not run.
    started: Option<Instant>,
}

impl Stopwatch {
    /// Returns a running stopwatch.
    pub(crate) fn start(clock: &Clock) -> Self {
        Self { started: Some(clock.instant()) }
    }

    /// Returns the time since the start.
    pub(crate) fn read(self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }

    /// Returns the time since an earlier reading.
    pub(crate) fn since(self, earlier: Duration) -> Duration {
        self.read().saturating_sub(earlier)
    }
}
