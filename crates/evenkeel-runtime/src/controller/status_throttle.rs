//! Throttle of status writes, per key.

use crate::plan::Key;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Permits the first status write of a key immediately, and delays further writes within a period. If many dependents
/// change one after the other, the status of their owner is thus written once per period.
#[derive(Debug)]
pub(super) struct StatusThrottle {
    period: Duration,
    recent: Mutex<RecentWrites>,
}

/// Recent writes of statuses, by key.
#[derive(Debug, Default)]
struct RecentWrites {
    /// Time of the last write of each key.
    written: HashMap<Key, Instant>,
    /// The same writes, oldest first. A key that was written twice within the period appears twice.
    order: VecDeque<(Instant, Key)>,
}

impl StatusThrottle {
    /// Allows one write of a key per `period`, or any number if `period` is zero.
    pub(super) fn new(period: Duration) -> Self {
        Self { period, recent: Mutex::default() }
    }

    /// Returns the delay of a status write of this key, or `None` if it may be sent now.
    pub(super) fn delay(&self, key: &Key, now: Instant) -> Option<Duration> {
        if self.period.is_zero() {
            return None;
        }
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let due = *recent.written.get(key)? + self.period;
        due.checked_duration_since(now).filter(|delay| !delay.is_zero())
    }

    /// Records a status write of this key.
    pub(super) fn record_write(&self, key: &Key, now: Instant) {
        if self.period.is_zero() {
            return;
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.forget_before(now, self.period);
        recent.written.insert(key.clone(), now);
        recent.order.push_back((now, key.clone()));
    }
}

impl RecentWrites {
    /// Removes writes that are older than the period.
    fn forget_before(&mut self, now: Instant, period: Duration) {
        while let Some((at, _)) = self.order.front()
            && now.duration_since(*at) >= period
        {
            let Some((at, key)) = self.order.pop_front() else { return };
            if self.written.get(&key) == Some(&at) {
                self.written.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const PERIOD: Duration = Duration::from_millis(100);

    #[test]
    fn the_first_write_is_permitted_and_the_next_waits_until_the_period_ends() {
        let (status_throttle, start) = (StatusThrottle::new(PERIOD), Clock::system().instant());
        let (key, other) = (Key::new("ns", "a"), Key::new("ns", "b"));
        assert_eq!(status_throttle.delay(&key, start), None);
        status_throttle.record_write(&key, start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(status_throttle.delay(&key, at(0)), Some(PERIOD));
        assert_eq!(status_throttle.delay(&key, at(70)), Some(Duration::from_millis(30)));
        assert_eq!(status_throttle.delay(&key, at(100)), None);
        assert_eq!(status_throttle.delay(&other, at(0)), None, "each for itself");
    }

    #[test]
    fn writes_are_forgotten_after_the_period() {
        let (status_throttle, start) = (StatusThrottle::new(PERIOD), Clock::system().instant());
        let key = |n: u32| Key::new("ns", &n.to_string());
        for n in 0..1000 {
            status_throttle.record_write(&key(n / 2), start + n * Duration::from_millis(1));
        }
        let recent = status_throttle.recent.lock().unwrap();
        assert_eq!((recent.written.len(), recent.order.len()), (50, 100));
    }

    #[test]
    fn a_throttle_without_a_period_delays_nothing() {
        let (status_throttle, now) =
            (StatusThrottle::new(Duration::ZERO), Clock::system().instant());
        let key = Key::new("ns", "a");
        status_throttle.record_write(&key, now);
        assert_eq!(status_throttle.delay(&key, now), None);
        assert!(status_throttle.recent.lock().unwrap().order.is_empty());
    }
}
