//! Retry-After of rejected requests. It doubles while a priority level keeps rejecting requests, and falls slowly after
//! that.

use std::collections::VecDeque;

/// Maximum Retry-After in seconds.
const MAX_RETRY_AFTER: i64 = 32;

/// Number of rejected requests of a priority level by second.
///
/// Upstream: `droppedRequestsStats`.
#[derive(Debug, Clone)]
pub(super) struct DroppedRequests {
    /// Seconds with their numbers of rejected requests, without the current second.
    history: VecDeque<(i64, i64)>,
    /// Current second with its number of rejected requests.
    current: (i64, i64),
    /// Retry-After in seconds.
    retry_after: i64,
    /// Second in which Retry-After last rose.
    raised: i64,
}

impl Default for DroppedRequests {
    fn default() -> Self {
        Self { history: VecDeque::new(), current: (0, 0), retry_after: 1, raised: i64::MIN / 2 }
    }
}

impl DroppedRequests {
    /// Records a rejected request. Returns its Retry-After in seconds.
    pub(super) fn record(&mut self, second: i64) -> i64 {
        if self.current.0 == second {
            self.current.1 += 1;
            return self.retry_after;
        }
        self.history.push_back(self.current);
        let kept = (2 * self.retry_after).min(MAX_RETRY_AFTER);
        while self.history.front().is_some_and(|(old, _)| second - old > kept) {
            self.history.pop_front();
        }
        self.current = (second, 1);
        self.update(second);
        self.retry_after
    }

    /// Upstream: `updateRetryAfterIfNeededLocked`.
    fn update(&mut self, second: i64) {
        let recent =
            self.history.iter().rev().take_while(|(old, _)| second - old <= self.retry_after);
        let dropped: i64 = recent.map(|(_, requests)| requests).sum();
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
