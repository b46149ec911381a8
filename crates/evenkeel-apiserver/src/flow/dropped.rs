//! Retry-After of rejected requests. It doubles while a priority level keeps rejecting requests, and falls slowly after
//! that.

use std::collections::VecDeque;

/// Maximum Retry-After in seconds.
const MAX_RETRY_AFTER: i64 = 32;

/// Number of requests that a priority level rejected in one second.
#[derive(Debug, Clone, Copy)]
struct SecondCount {
    second: i64,
    requests: i64,
}

/// Number of rejected requests of a priority level by second.
///
/// Upstream: `droppedRequestsStats`.
#[derive(Debug, Clone)]
pub(super) struct DroppedRequests {
    /// Counts of earlier seconds, oldest first.
    history: VecDeque<SecondCount>,
    /// Count of the second of the latest rejection.
    current: SecondCount,
    /// Retry-After in seconds.
    retry_after: i64,
    /// Second in which Retry-After last rose.
    raised: i64,
}

impl Default for DroppedRequests {
    fn default() -> Self {
        Self {
            history: VecDeque::new(),
            current: SecondCount { second: 0, requests: 0 },
            retry_after: 1,
            // Long ago; half of the minimum so that differences do not overflow.
            raised: i64::MIN / 2,
        }
    }
}

impl DroppedRequests {
    /// Records a rejected request. Returns its Retry-After in seconds.
    pub(super) fn record(&mut self, second: i64) -> i64 {
        if self.current.second == second {
            self.current.requests += 1;
            return self.retry_after;
        }
        self.history.push_back(self.current);
        let max_age = (2 * self.retry_after).min(MAX_RETRY_AFTER);
        while self.history.front().is_some_and(|oldest| second - oldest.second > max_age) {
            self.history.pop_front();
        }
        self.current = SecondCount { second, requests: 1 };
        self.update_retry_after(second);
        self.retry_after
    }

    /// Doubles Retry-After if the level rejected at least three requests per second during the last Retry-After
    /// seconds. Decrements it if the level rejected less than one request per second.
    ///
    /// Upstream: `updateRetryAfterIfNeededLocked`.
    fn update_retry_after(&mut self, second: i64) {
        let is_recent = |count: &&SecondCount| second - count.second <= self.retry_after;
        let recent = self.history.iter().rev().take_while(is_recent);
        let dropped: i64 = recent.map(|count| count.requests).sum();
        if second - self.raised >= self.retry_after && dropped >= 3 * self.retry_after {
            self.retry_after = (2 * self.retry_after).min(MAX_RETRY_AFTER);
            self.raised = second;
        } else if dropped < self.retry_after && self.retry_after > 1 {
            self.retry_after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_doubles_under_load_and_falls_by_one_second() {
        let mut dropped = DroppedRequests::default();
        // Rejects this many requests in each second. Returns each second's last Retry-After.
        let mut seconds = |seconds: std::ops::Range<i64>, requests: i64| {
            seconds
                .map(|second| {
                    (0..requests).map(|_| dropped.record(second)).last().unwrap_or_default()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(seconds(0..3, 2), [1, 1, 1]);
        assert_eq!(seconds(3..12, 20), [1, 2, 2, 4, 4, 4, 4, 8, 8]);
        assert_eq!(seconds(12..80, 20).last(), Some(&32));
        assert_eq!(seconds(200..205, 1), [31, 30, 29, 28, 27]);
    }
}
