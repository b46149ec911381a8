//! Backoff of a restarted task, and whether it fails the program's health check.

use std::time::Duration;
use tokio::time::Instant;

/// Backoff before the first restart. Each further restart doubles it.
pub const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Upper bound of the backoff.
pub const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Run time after which a task counts as recovered: the next failure starts again with the initial backoff.
pub const RESET_DURATION: Duration = Duration::from_secs(120);
/// Backoff at which the health check begins to fail. Upstream's leader election adaptor tolerates an expired lease for
/// the same time.
pub const TOLERATED_BACKOFF: Duration = Duration::from_secs(20);

/// Restart state of one task: exponential backoff from 1 s to 60 s.
#[derive(Debug, Clone, Default)]
pub(crate) struct Restarts {
    /// Failures in a row.
    failures: u32,
    /// Time of the last start, or of the next one while the task waits for its restart.
    started: Option<Instant>,
}

impl Restarts {
    /// Counts a failure and returns the backoff before the restart.
    pub(crate) fn record_failure(&mut self, now: Instant) -> Duration {
        if self.has_recovered(now) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let backoff = self.backoff();
        self.started = Some(now + backoff);
        backoff
    }

    /// Returns whether the task fails the health check: its backoff reached [`TOLERATED_BACKOFF`], and it has
    /// not run for [`RESET_DURATION`] since.
    pub(crate) fn is_failing(&self, now: Instant) -> bool {
        self.backoff() >= TOLERATED_BACKOFF && !self.has_recovered(now)
    }

    fn has_recovered(&self, now: Instant) -> bool {
        self.started.is_none_or(|started| now.saturating_duration_since(started) >= RESET_DURATION)
    }

    fn backoff(&self) -> Duration {
        let Some(doublings) = self.failures.checked_sub(1) else { return Duration::ZERO };
        // Six doublings already exceed the maximum. The bound only keeps the shift from overflowing.
        INITIAL_BACKOFF.saturating_mul(1 << doublings.min(6)).min(MAX_BACKOFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "a test's own time")]
    async fn backoff_doubles_to_a_minute_and_fails_health_checks_from_twenty_seconds_on() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        assert!(!restarts.is_failing(now));
        for (seconds, failing) in [
            (1, false),
            (2, false),
            (4, false),
            (8, false),
            (16, false),
            (32, true),
            (60, true),
            (60, true),
        ] {
            let backoff = restarts.record_failure(now);
            assert_eq!((backoff.as_secs(), restarts.is_failing(now)), (seconds, failing));
            now += backoff;
        }
        assert!(restarts.is_failing(now), "the task has not run for long enough");
        now += RESET_DURATION;
        assert!(!restarts.is_failing(now));
        assert_eq!(restarts.record_failure(now), INITIAL_BACKOFF);
    }
}
