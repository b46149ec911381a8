//! Speed of a cluster's time, and the steps in which it advances.

use std::time::Duration;

/// Maximum step of the time, so that timers that are due within a step fire in order. It is shorter than every period in a
/// control plane that another timeout depends on.
pub(crate) const MAX_STEP: Duration = Duration::from_secs(1);

/// Interval of the steps at low speeds.
const SLOW_TICK: Duration = Duration::from_millis(10);

/// Interval of the steps of a jump.
const JUMP_TICK: Duration = Duration::from_micros(250);

/// Maximum system time for which requests in flight may hold the cluster's time.
const MAX_HOLD: Duration = Duration::from_secs(1);

/// Maximum time by which a cluster may be ahead of the system. Its certificates, which clients check by the system's time, are
/// renewed after eight months.
pub(crate) const MAX_AHEAD: Duration = Duration::from_hours(24 * 180);

/// Maximum speed, as a factor of the system's time.
pub(crate) const MAX_SPEED: f64 = 1000.0;

/// Command to change a cluster's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TimeSettings {
    /// Factor of the system's time, from 0 to [`MAX_SPEED`].
    pub(crate) speed: f64,
    /// Time since the start to which the time jumps; no effect if it has passed.
    pub(crate) jump_to: Duration,
}

/// Times since the start of the cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elapsed {
    /// By the cluster's time.
    pub(crate) cluster: Duration,
    /// By the system's time.
    pub(crate) system: Duration,
}

impl Elapsed {
    /// Returns the time by which the cluster is ahead of the system.
    pub(crate) fn ahead(self) -> Duration {
        self.cluster.saturating_sub(self.system)
    }
}

impl TimeSettings {
    /// Returns the interval of the steps.
    pub(crate) fn tick(self, cluster: Duration) -> Duration {
        if cluster < self.jump_to {
            return JUMP_TICK;
        }
        let step = Duration::try_from_secs_f64(MAX_STEP.as_secs_f64() / self.speed);
        step.map_or(SLOW_TICK, |step| step.clamp(JUMP_TICK, SLOW_TICK))
    }

    /// Returns the next step of the time after `since_last` of the system's time; `None` while the time is held, because
    /// components wait for responses of the API server.
    pub(crate) fn step(
        self,
        elapsed: Elapsed,
        since_last: Duration,
        requests_in_flight: usize,
    ) -> Option<Duration> {
        if requests_in_flight > 0 && since_last < MAX_HOLD {
            return None;
        }
        if elapsed.ahead() >= MAX_AHEAD {
            return Some(since_last.mul_f64(self.speed.min(1.0)).min(MAX_STEP));
        }
        let jump = self.jump_to.saturating_sub(elapsed.cluster);
        if !jump.is_zero() {
            return Some(jump.min(MAX_STEP));
        }
        // A busy control plane falls behind, instead of skipping timers that are due in between.
        Some(since_last.mul_f64(self.speed).min(MAX_STEP))
    }
}

/// Parses a speed such as `60x`, `60` or `0.5x`.
///
/// # Errors
/// Fails if the string is not a number from 0 to 1000.
pub(crate) fn parse_speed(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('x').unwrap_or(text).parse::<f64>().ok();
    number
        .filter(|speed| (0.0..=MAX_SPEED).contains(speed))
        .ok_or_else(|| format!("a speed is a factor from 0 to {MAX_SPEED}, such as 60x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn steps_follow_the_speed_a_jump_or_the_limit() {
        let start = Elapsed { cluster: secs(100), system: secs(100) };
        let limit = Elapsed { cluster: MAX_AHEAD + secs(100), system: secs(100) };
        for (speed, jump_to, elapsed, since_last, in_flight, want) in [
            (1.0, secs(0), start, millis(10), 0, Some(millis(10))),
            (60.0, secs(0), start, millis(10), 0, Some(millis(600))),
            (0.5, secs(0), start, millis(10), 0, Some(millis(5))),
            (0.0, secs(0), start, millis(10), 0, Some(secs(0))),
            // The control plane was busy for a second.
            (60.0, secs(0), start, secs(1), 0, Some(secs(1))),
            // A jump, and its last step.
            (0.0, secs(200), start, millis(1), 0, Some(secs(1))),
            (1.0, millis(100_300), start, millis(1), 0, Some(millis(300))),
            (1.0, secs(100), start, millis(1), 0, Some(millis(1))),
            // A request holds the time, but not longer than a second.
            (60.0, secs(200), start, millis(999), 1, None),
            (60.0, secs(200), start, secs(1), 1, Some(secs(1))),
            // At the limit, the time is as fast as the system's.
            (60.0, Duration::MAX, limit, millis(10), 0, Some(millis(10))),
        ] {
            let settings = TimeSettings { speed, jump_to };
            assert_eq!(
                settings.step(elapsed, since_last, in_flight),
                want,
                "{settings:?} {elapsed:?} {since_last:?} {in_flight}"
            );
        }
    }

    #[test]
    fn ticks_are_short_while_the_time_runs_fast() {
        for (speed, jump_to, want) in [
            (1.0, secs(0), SLOW_TICK),
            (0.0, secs(0), SLOW_TICK),
            (100.0, secs(0), SLOW_TICK),
            (1000.0, secs(0), millis(1)),
            (1.0, secs(2), JUMP_TICK),
        ] {
            assert_eq!(TimeSettings { speed, jump_to }.tick(secs(1)), want, "{speed} {jump_to:?}");
        }
    }

    #[test]
    fn speeds_are_factors() {
        for (text, want) in [
            ("60x", Some(60.0)),
            ("60", Some(60.0)),
            ("0.5x", Some(0.5)),
            ("0", Some(0.0)),
            ("1000x", Some(1000.0)),
            ("1001x", None),
            ("-1", None),
            ("x", None),
            ("", None),
            ("NaN", None),
            ("inf", None),
        ] {
            assert_eq!(parse_speed(text).ok(), want, "{text:?}");
        }
    }
}
