//! Schedule of periodic checks of objects. An object is checked when it changes, at regular intervals, and after a
//! failure with exponential backoff.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Intervals between the checks of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intervals {
    /// Interval after a success.
    pub(super) period: Duration,
    /// Interval after the first failure. It doubles with each further failure in a row.
    pub(super) first_backoff: Duration,
    /// Maximum interval after a failure.
    pub(super) max_backoff: Duration,
}

/// Schedule of the checks by object name. `I` is the type of a check's inputs: if they change, the check is due
/// immediately.
pub(super) struct Schedule<I> {
    intervals: Intervals,
    items: BTreeMap<Arc<str>, Scheduled<I>>,
}

/// Object whose checks are scheduled.
struct Scheduled<I> {
    inputs: I,
    /// Number of failures since the last success.
    failures: u32,
    due: Instant,
    is_running: bool,
    /// Whether the inputs changed while the check was running.
    is_stale: bool,
}

impl<I: PartialEq> Schedule<I> {
    pub(super) fn new(intervals: Intervals) -> Self {
        Self { intervals, items: BTreeMap::new() }
    }

    /// Replaces the objects. New objects and objects with changed inputs are due now.
    pub(super) fn observe(
        &mut self,
        inputs_by_name: impl IntoIterator<Item = (Arc<str>, I)>,
        now: Instant,
    ) {
        let mut previous = std::mem::take(&mut self.items);
        for (name, inputs) in inputs_by_name {
            let item = match previous.remove(&name) {
                Some(item) if item.inputs == inputs => item,
                Some(item) => Scheduled { inputs, due: now, is_stale: item.is_running, ..item },
                None => {
                    Scheduled { inputs, failures: 0, due: now, is_running: false, is_stale: false }
                }
            };
            self.items.insert(name, item);
        }
    }

    /// Marks due checks as running, and returns the names of their objects. At most `limit` checks run concurrently.
    pub(super) fn begin(&mut self, now: Instant, limit: usize) -> Vec<Arc<str>> {
        let free = limit.saturating_sub(self.running());
        let due = self.items.iter_mut().filter(|(_, item)| !item.is_running && item.due <= now);
        let mut names = Vec::new();
        for (name, item) in due.take(free) {
            item.is_running = true;
            names.push(name.clone());
        }
        names
    }

    /// Records the end of a check, and schedules the next one.
    pub(super) fn end(&mut self, name: &str, succeeded: bool, now: Instant) {
        let Some(item) = self.items.get_mut(name) else { return };
        item.is_running = false;
        item.failures = if succeeded { 0 } else { item.failures.saturating_add(1) };
        let delay = match item.failures {
            _ if item.is_stale => Duration::ZERO,
            0 => self.intervals.period,
            failures => backoff(&self.intervals, failures),
        };
        item.is_stale = false;
        item.due = now.checked_add(delay).unwrap_or(now);
    }

    /// Returns when the next check is due; `None` if no further check may begin before a running one ends.
    pub(super) fn next(&self, limit: usize) -> Option<Instant> {
        if self.running() >= limit {
            return None;
        }
        let waiting = self.items.values().filter(|item| !item.is_running);
        waiting.map(|item| item.due).min()
    }

    fn running(&self) -> usize {
        self.items.values().filter(|item| item.is_running).count()
    }
}

/// Returns the interval after a number of failures in a row, which is at least 1.
///
/// Upstream: `ItemExponentialFailureRateLimiter`.
fn backoff(intervals: &Intervals, failures: u32) -> Duration {
    let factor = 2u32.saturating_pow(failures.saturating_sub(1));
    intervals.first_backoff.saturating_mul(factor).min(intervals.max_backoff)
}

/// Sleeps until this time; forever if it is `None`.
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
        // An API that changes during its check is checked again immediately.
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
