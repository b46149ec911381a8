//! How often a key's status is written.

use crate::plan::Key;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Lets the first status through at once, and those that follow it closely wait: while many children change one after the
/// other, the owner's status is one write for a whole period, not one for each of them.
#[derive(Debug)]
pub(super) struct Pace {
    period: Duration,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    written: HashMap<Key, Instant>,
    /// The same, oldest first; what was written again since stands twice.
    order: VecDeque<(Instant, Key)>,
}

impl Pace {
    /// At most one status in `period`; without limit where that is zero.
    pub(super) fn new(period: Duration) -> Self {
        Self { period, recent: Mutex::default() }
    }

    /// How long a status of this key has to wait, if it has to.
    pub(super) fn wait(&self, key: &Key, now: Instant) -> Option<Duration> {
        if self.period.is_zero() {
            return None;
        }
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let due = *recent.written.get(key)? + self.period;
        due.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// A status of this key was written.
    pub(super) fn wrote(&self, key: &Key, now: Instant) {
        if self.period.is_zero() {
            return;
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.forget_before(now, self.period);
        recent.written.insert(key.clone(), now);
        recent.order.push_back((now, key.clone()));
    }
}

impl Recent {
    /// Forgets what holds nothing back any more.
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
    fn the_first_goes_at_once_and_the_next_waits_for_the_rest_of_the_period() {
        let (pace, start) = (Pace::new(PERIOD), Clock::system().instant());
        let (key, other) = (Key::new("ns", "a"), Key::new("ns", "b"));
        assert_eq!(pace.wait(&key, start), None);
        pace.wrote(&key, start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.wait(&key, at(0)), Some(PERIOD));
        assert_eq!(pace.wait(&key, at(70)), Some(Duration::from_millis(30)));
        assert_eq!(pace.wait(&key, at(100)), None);
        assert_eq!(pace.wait(&other, at(0)), None, "each for itself");
    }

    #[test]
    fn nothing_is_kept_for_longer_than_it_matters() {
        let (pace, start) = (Pace::new(PERIOD), Clock::system().instant());
        let key = |n: u32| Key::new("ns", &n.to_string());
        for n in 0..1000 {
            pace.wrote(&key(n / 2), start + n * Duration::from_millis(1));
        }
        let recent = pace.recent.lock().unwrap();
        assert_eq!((recent.written.len(), recent.order.len()), (50, 100));
    }

    #[test]
    fn one_without_a_period_holds_nothing_back() {
        let (pace, now) = (Pace::new(Duration::ZERO), Clock::system().instant());
        let key = Key::new("ns", "a");
        pace.wrote(&key, now);
        assert_eq!(pace.wait(&key, now), None);
        assert!(pace.recent.lock().unwrap().order.is_empty());
    }
}
