//! How long pods wait: doubling from try to try, ending with a whole second so that what ends in the same one is tried in order
//! of priority.

use evenkeel_api::time::Timestamp;
use std::time::Duration;

/// Back-offs end with such a window.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// How pods wait.
#[derive(Debug, Clone)]
pub(crate) struct Waits {
    pub(crate) initial_backoff: Duration,
    pub(crate) max_backoff: Duration,
    /// Whether what backs off from being unschedulable is tried early when nothing else waits.
    pub(crate) pops_early: bool,
    pub(crate) max_unschedulable: Duration,
}

impl Waits {
    /// The window with which the back-off ends of a pod that came back at `queued`; none if it does not back off.
    pub(super) fn until(
        &self,
        queued: Timestamp,
        unschedulable: u32,
        errors: u32,
    ) -> Option<Timestamp> {
        let count = if errors > 0 { errors } else { unschedulable };
        if count == 0 || self.max_backoff.is_zero() {
            return None;
        }
        let doubled = self.initial_backoff.saturating_mul(1_u32 << (count - 1).min(30));
        Some(window(later(queued, doubled.min(self.max_backoff))))
    }
}

/// Whether a back-off that ends with the window `until` is not over.
pub(super) fn backing_off(until: Timestamp, now: Timestamp) -> bool {
    until >= window(now)
}

pub(super) fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn window(time: Timestamp) -> Timestamp {
    let second = time.as_nanosecond().div_euclid(1_000_000_000);
    i64::try_from(second)
        .ok()
        .and_then(|second| Timestamp::from_second(second).ok())
        .unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits = Waits {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            pops_early: true,
            max_unschedulable: Duration::ZERO,
        };
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        let wait = |unschedulable, errors| waits.until(at(5_300), unschedulable, errors);
        assert_eq!(wait(0, 0), None);
        for (count, seconds) in [(1, 6), (2, 7), (3, 9), (4, 13), (5, 15), (99, 15)] {
            assert_eq!(wait(count, 0), Some(at(seconds * 1000)));
            assert_eq!(wait(7, count), Some(at(seconds * 1000)), "errors count for themselves");
        }
        assert!(backing_off(at(6000), at(6999)), "until its second is over");
        assert!(!backing_off(at(6000), at(7000)));
        let none = Waits { max_backoff: Duration::ZERO, ..waits };
        assert_eq!(none.until(at(0), 5, 0), None);
    }
}
