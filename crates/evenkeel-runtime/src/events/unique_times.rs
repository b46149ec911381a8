//! Times of events. Names of events contain the time, so each event needs a unique time.

use crate::clock::Clock;
use evenkeel_api::time::{SignedDuration, Timestamp};
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
};

/// Times of one component's events.
pub(super) struct UniqueTimes {
    /// The component's fraction of a microsecond.
    fraction: SignedDuration,
    last: Mutex<Timestamp>,
}

impl UniqueTimes {
    pub(super) fn new(component: &str) -> Self {
        // `DefaultHasher::new` has fixed keys, unlike the hasher of a map.
        let mut hasher = DefaultHasher::new();
        component.hash(&mut hasher);
        let fraction = SignedDuration::from_nanos((hasher.finish() % 1000) as i64);
        Self { fraction, last: Mutex::new(Timestamp::MIN) }
    }

    /// Returns the current time plus the component's fraction, and at least one nanosecond after the last event. The names
    /// of two components' events then differ even if the clock stands still.
    pub(super) fn next(&self, clock: &Clock) -> Timestamp {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let later = |time: Timestamp, by| time.checked_add(by).unwrap_or(time);
        let after_last = later(*last, SignedDuration::from_nanos(1));
        *last = later(clock.now(), self.fraction).max(after_last);
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn times_differ_while_the_clock_stands_still() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let (one, two) = (UniqueTimes::new("one"), UniqueTimes::new("two"));
        let times = [one.next(&clock), one.next(&clock), two.next(&clock), two.next(&clock)];
        assert!(times[0] < times[1] && times[2] < times[3]);
        assert!(!times[2..].contains(&times[0]) && !times[2..].contains(&times[1]));
    }
}
