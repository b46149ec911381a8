//! Times at which each of several objects is checked: when it changes, in regular intervals, and after failures with
//! backoff.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Intervals between the checks of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intervals {
    /// Interval after a success.
    pub(super) period: Duration,
    /// Interval after the first failure; it doubles with each further one.
    pub(super) first_backoff: Duration,
    /// Maximum interval after a failure.
    pub(super) max_backoff: Duration,
}

/// Schedule of the checks. `B` is what the result of a check depends on.
pub(super) struct Schedule<B> {
    intervals: Intervals,
    items: BTreeMap<Arc<str>, Item<B>>,
}

struct Item<B> {
    basis: B,
    failures: u32,
    due: Instant,
    is_running: bool,
    /// Whether the basis changed during the check.
    is_stale: bool,
}

impl<B: PartialEq> Schedule<B> {
    pub(super) fn new(intervals: Intervals) -> Self {
        Self { intervals, items: BTreeMap::new() }
    }

    /// Replaces the objects. New and changed ones are due now.
    pub(super) fn observe(&mut self, all: impl IntoIterator<Item = (Arc<str>, B)>, now: Instant) {
        let mut before = std::mem::take(&mut self.items);
        for (name, basis) in all {
            let item = match before.remove(&name) {
                Some(item) if item.basis == basis => item,
                Some(item) => Item { basis, due: now, is_stale: item.is_running, ..item },
                None => Item { basis, failures: 0, due: now, is_running: false, is_stale: false },
            };
            self.items.insert(name, item);
        }
    }

    /// Begins the checks that are due, at most `limit` at once. Returns the names of their objects.
    pub(super) fn begin(&mut self, now: Instant, limit: usize) -> Vec<Arc<str>> {
        let running = self.items.values().filter(|item| item.is_running).count();
        let due = self.items.iter_mut().filter(|(_, item)| !item.is_running && item.due <= now);
        let begun = due.take(limit.saturating_sub(running)).map(|(name, item)| {
            item.is_running = true;
            name.clone()
        });
        begun.collect()
    }

    /// Ends a check.
    pub(super) fn end(&mut self, name: &str, succeeded: bool, now: Instant) {
        let Some(item) = self.items.get_mut(name) else { return };
        item.is_running = false;
        item.failures = if succeeded { 0 } else { item.failures.saturating_add(1) };
        let pause = match item.failures {
            _ if item.is_stale => Duration::ZERO,
            0 => self.intervals.period,
            n => backoff(&self.intervals, n),
        };
        item.is_stale = false;
        item.due = now.checked_add(pause).unwrap_or(now);
    }

    /// Returns when the next check is due; `None` if all or `limit` of them are running.
    pub(super) fn next(&self, limit: usize) -> Option<Instant> {
        let running = self.items.values().filter(|item| item.is_running).count();
        let waiting = self.items.values().filter(|item| !item.is_running && running < limit);
        waiting.map(|item| item.due).min()
    }
}

/// Upstream: `ItemExponentialFailureRateLimiter`.
fn backoff(intervals: &Intervals, failures: u32) -> Duration {
    let factor = 2u32.saturating_pow(failures.saturating_sub(1));
    intervals.first_backoff.saturating_mul(factor).min(intervals.max_backoff)
}

/// Sleeps until this time, or forever if there is none.
pub(super) async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn changes_and_failures_bring_the_next_check_forward() {
        let start = Clock::system().instant();
        let mut schedule = Schedule::new(Intervals {
            period: 30 * SECOND,
            first_backoff: SECOND,
            max_backoff: 5 * SECOND,
        });
        let names =
            |begun: Vec<Arc<str>>| begun.iter().map(ToString::to_string).collect::<Vec<_>>();
        schedule.observe([("a".into(), 1), ("b".into(), 1)], start);
        assert_eq!(names(schedule.begin(start, 1)), ["a"]);
        assert!(schedule.begin(start, 1).is_empty());
        assert_eq!(schedule.next(1), None);
        assert_eq!(names(schedule.begin(start, 2)), ["b"]);
        assert_eq!(schedule.next(2), None);
        schedule.end("b", true, start);
        assert_eq!(schedule.next(2), Some(start + 30 * SECOND));
        for pause in [1, 2, 4, 5, 5] {
            schedule.end("a", false, start);
            assert_eq!(schedule.next(2), Some(start + pause * SECOND));
            assert_eq!(names(schedule.begin(start + pause * SECOND, 2)), ["a"]);
        }
        // One that changes during its check is checked again at once.
        schedule.observe([("a".into(), 2), ("b".into(), 1)], start);
        assert!(schedule.begin(start, 2).is_empty());
        schedule.end("a", true, start);
        assert_eq!(names(schedule.begin(start, 2)), ["a"]);
        schedule.end("a", true, start);
        schedule.observe([("b".into(), 1)], start);
        assert_eq!(schedule.next(2), Some(start + 30 * SECOND));
        schedule.end("a", true, start);
        schedule.observe([("b".into(), 3)], start + SECOND);
        assert_eq!(names(schedule.begin(start + SECOND, 2)), ["b"]);
    }
}
