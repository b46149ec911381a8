//! Clock and jitter, which a simulation can replace.

use evenkeel_api::time::{TimeZone, Timestamp};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};
use tokio::time::Instant;

/// Wall clock that a simulation can replace.
///
/// Timers are always tokio's. Under `tokio::time::pause`, a virtual clock advances exactly with them.
///
/// ```
/// use evenkeel_runtime::clock::Clock;
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
/// clock.sleep(Duration::from_secs(3600)).await; // takes no time at all
/// assert_eq!(clock.now().to_string(), "2026-01-01T01:00:00Z");
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    System,
    /// Shows `start` at the instant `since`.
    Virtual {
        start: Timestamp,
        since: Instant,
        seed: u64,
    },
}

impl Clock {
    /// Returns the system's clock.
    pub fn system() -> Self {
        Self { source: Source::System }
    }

    /// Returns a virtual clock that shows `start` now and then follows tokio's time, paused or not. Call it
    /// inside the runtime whose time it follows.
    pub fn starting_at(start: Timestamp) -> Self {
        Self::seeded(start, 0)
    }

    /// Like [`Clock::starting_at`], with a seed for [`Clock::draw`].
    #[expect(clippy::disallowed_methods, reason = "the clock reads the time that timers follow")]
    pub fn seeded(start: Timestamp, seed: u64) -> Self {
        Self { source: Source::Virtual { start, since: Instant::now(), seed } }
    }

    /// Returns the current wall time.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    pub fn now(&self) -> Timestamp {
        match &self.source {
            Source::System => Timestamp::now(),
            Source::Virtual { start, since, .. } => {
                let elapsed = Instant::now().saturating_duration_since(*since);
                start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Returns this machine's time zone, from the environment variable `TZ` or from `/etc/localtime`. Returns
    /// UTC if neither is valid, and on a virtual clock.
    ///
    /// Upstream: Go's `time.Local`.
    pub fn local_zone(&self) -> TimeZone {
        match &self.source {
            Source::System => TimeZone::try_system().unwrap_or(TimeZone::UTC),
            Source::Virtual { .. } => TimeZone::UTC,
        }
    }

    /// Returns the monotonic time of timers, for durations. It has no defined origin and never jumps.
    #[expect(clippy::disallowed_methods, reason = "the clock reads the time that timers follow")]
    pub fn instant(&self) -> Instant {
        Instant::now()
    }

    /// Waits for `duration`, on tokio's timer.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Returns a number in `0.0..1.0` for jitter. On the system clock it is random. On a virtual clock it
    /// depends only on seed, time and `label`, so that a run can be repeated.
    pub fn draw(&self, label: &impl Hash) -> f64 {
        match &self.source {
            Source::System => rand::random(),
            Source::Virtual { seed, .. } => {
                let mut hasher = DefaultHasher::new();
                (seed, self.now().as_nanosecond()).hash(&mut hasher);
                label.hash(&mut hasher);
                // A double has a significand of 53 bits.
                (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_follows_paused_time() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(start);
        assert_eq!(clock.now(), start);
        clock.sleep(Duration::from_millis(1500)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:00:01.5Z");
        assert_eq!(clock.local_zone(), TimeZone::UTC);
    }

    #[tokio::test(start_paused = true)]
    async fn draws_repeat_on_a_virtual_clock() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (one, two, other) =
            (Clock::seeded(start, 7), Clock::seeded(start, 7), Clock::seeded(start, 8));
        assert_eq!(one.draw(&"pods"), two.draw(&"pods"));
        assert_ne!(one.draw(&"pods"), other.draw(&"pods"));
        assert_ne!(one.draw(&"pods"), one.draw(&"nodes"));
        assert!((0..1000).all(|i| (0.0..1.0).contains(&one.draw(&i))));
    }
}
