//! Backoff of a reflector after failed lists and watches.

use crate::clock::Clock;
use evenkeel_api::Kind;
use std::time::Duration;
use tokio::time::Instant;

const INITIAL_BACKOFF: Duration = Duration::from_millis(800);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Time without a failure after which the backoff starts again with its initial value.
const RESET_DURATION: Duration = Duration::from_secs(120);

/// Exponential backoff from 800 ms to 30 s with a jitter of 100 %, as in `tools/cache/reflector.go`.
pub(crate) struct Backoff {
    clock: Clock,
    kind: Kind,
    failures: u32,
    last_failure: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(clock: Clock, kind: Kind) -> Self {
        Self { clock, kind, failures: 0, last_failure: None }
    }

    /// Counts a failure and returns the backoff before the next attempt.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.clock.instant();
        if self.last_failure.is_some_and(|last| now.duration_since(last) > RESET_DURATION) {
            self.failures = 0;
        }
        self.last_failure = Some(now);
        // Six doublings already exceed the maximum. The bound only keeps the shift from overflowing.
        let base = INITIAL_BACKOFF.saturating_mul(1 << self.failures.min(6)).min(MAX_BACKOFF);
        self.failures = self.failures.saturating_add(1);
        base.mul_f64(1.0 + self.clock.draw(&(&self.kind, self.failures)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(wait: Duration, base_ms: u64) {
        let base = Duration::from_millis(base_ms);
        assert!(wait >= base && wait < base * 2, "{wait:?} of {base:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn doubles_to_thirty_seconds_and_resets_after_two_minutes_without_failure() {
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let mut backoff = Backoff::new(clock, Kind::new("", "v1", "Pod", "pods", true));
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            within(backoff.next(), base);
        }
        tokio::time::sleep(Duration::from_secs(119)).await;
        within(backoff.next(), 30_000);
        tokio::time::sleep(Duration::from_secs(121)).await;
        within(backoff.next(), 800);
    }
}
