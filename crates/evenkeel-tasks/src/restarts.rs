//! Backoff of a task that is restarted, and whether a health check fails for it.

use std::time::Duration;
use tokio::time::Instant;

/// Wait before the first restart; each further one doubles it.
pub const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// The longest wait before a restart.
pub const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// A task that runs for this long counts as healthy again: its next failure is the first.
pub const RESET_DURATION: Duration = Duration::from_secs(120);
/// From a backoff of this length on, health checks fail. Upstream's adaptor tolerates a lost lease for as long.
pub const TOLERATED_BACKOFF: Duration = Duration::from_secs(20);

/// The restarts of one task: exponential backoff from 1 s to 60 s.
#[derive(Debug, Clone, Default)]
pub(crate) struct Restarts {
    /// Failures in a row.
    failures: u32,
    /// When the task was started the last time, or will be.
    started: Option<Instant>,
}

impl Restarts {
    /// Counts a failure and returns how long to wait before the restart.
    pub(crate) fn failed(&mut self, now: Instant) -> Duration {
        if self.has_recovered(now) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let backoff = self.backoff();
        self.started = Some(now + backoff);
        backoff
    }

    /// Reports whether a health check fails for the task: it failed until its backoff was longer than is tolerated, and has
    /// not run for long since.
    pub(crate) fn is_failing(&self, now: Instant) -> bool {
        self.backoff() >= TOLERATED_BACKOFF && !self.has_recovered(now)
    }

    fn has_recovered(&self, now: Instant) -> bool {
        self.started.is_none_or(|started| now.saturating_duration_since(started) >= RESET_DURATION)
    }

    fn backoff(&self) -> Duration {
        let Some(doublings) = self.failures.checked_sub(1) else { return Duration::ZERO };
        INITIAL_BACKOFF.saturating_mul(1 << doublings.min(6)).min(MAX_BACKOFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "a test's own time")]
    async fn doubles_to_a_minute_and_fails_health_checks_from_twenty_seconds_on() {
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
            let backoff = restarts.failed(now);
            assert_eq!((backoff.as_secs(), restarts.is_failing(now)), (seconds, failing));
            now += backoff;
        }
        assert!(restarts.is_failing(now), "it runs, but not for long");
        now += RESET_DURATION;
        assert!(!restarts.is_failing(now));
        assert_eq!(restarts.failed(now), INITIAL_BACKOFF);
    }
}
