//! Backoff of pods after failed attempts. It doubles with each failure, and ends at a whole second. The queue orders
//! pods whose backoff ends in the same second by priority.
//!
//! Upstream: `pkg/scheduler/backend/queue/backoff_queue.go`.

use evenkeel_api::time::{Timestamp, saturating_add};
use std::time::Duration;

/// Granularity of backoff expirations: pods whose backoff ends in one window are ordered by priority.
///
/// Upstream: `backoffQOrderingWindowDuration`.
pub(super) const BACKOFF_ORDERING_WINDOW: Duration = Duration::from_secs(1);

/// Parameters that determine when a pod may be retried.
#[derive(Debug, Clone)]
pub(crate) struct BackoffPolicy {
    pub(crate) initial_backoff: Duration,
    pub(crate) max_backoff: Duration,
    /// Feature gate `SchedulerPopFromBackoffQ`: pop pods from the backoff queue while the active queue is empty.
    pub(crate) pop_from_backoff_q: bool,
    pub(crate) pod_max_in_unschedulable_pods: Duration,
}

impl BackoffPolicy {
    /// Returns the start of the window in which the backoff of a pod ends, or `None` if the pod does not back off.
    /// `queued` is when the pod entered the queue. `unschedulable` and `errors` count its failed attempts.
    ///
    /// Upstream: `getBackoffTime`, `calculateBackoffDuration`.
    pub(super) fn backoff_expiration(
        &self,
        queued: Timestamp,
        unschedulable: u32,
        errors: u32,
    ) -> Option<Timestamp> {
        let failures = if errors > 0 { errors } else { unschedulable };
        if failures == 0 || self.max_backoff.is_zero() {
            return None;
        }
        let doubled = self.initial_backoff.saturating_mul(1_u32 << (failures - 1).min(30));
        Some(align_to_window(saturating_add(queued, doubled.min(self.max_backoff))))
    }
}

/// Returns whether a backoff that ends in the window that starts at `until` is still running.
///
/// Upstream: `isEntityBackingoff`.
pub(super) fn is_backing_off(until: Timestamp, now: Timestamp) -> bool {
    until >= align_to_window(now)
}

/// Rounds down to the start of a window, which is a whole second.
fn align_to_window(time: Timestamp) -> Timestamp {
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
    fn backoff_doubles_up_to_the_maximum() {
        let policy = BackoffPolicy {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            pop_from_backoff_q: true,
            pod_max_in_unschedulable_pods: Duration::ZERO,
        };
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        let expiration =
            |unschedulable, errors| policy.backoff_expiration(at(5_300), unschedulable, errors);
        assert_eq!(expiration(0, 0), None);
        for (count, seconds) in [(1, 6), (2, 7), (3, 9), (4, 13), (5, 15), (99, 15)] {
            assert_eq!(expiration(count, 0), Some(at(seconds * 1000)));
            assert_eq!(
                expiration(7, count),
                Some(at(seconds * 1000)),
                "errors are counted separately"
            );
        }
        assert!(is_backing_off(at(6000), at(6999)), "the backoff ends with its second");
        assert!(!is_backing_off(at(6000), at(7000)));
        let none = BackoffPolicy { max_backoff: Duration::ZERO, ..policy };
        assert_eq!(none.backoff_expiration(at(0), 5, 0), None);
    }
}
