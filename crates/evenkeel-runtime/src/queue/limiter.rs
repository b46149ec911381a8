//! Rate limiter of a workqueue.
//!
//! Upstream: `MaxOfRateLimiter`.

use std::{collections::HashMap, hash::Hash, time::Duration};
use tokio::time::Instant;

/// Interval at which the bucket gains a token.
const BUCKET_INTERVAL: Duration = Duration::from_millis(100);
/// Capacity of the bucket in tokens.
const BUCKET_BURST: u32 = 100;

/// Backoff policy of the keys of a workqueue.
#[doc(alias = "ItemExponentialFailureRateLimiter")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure. Each further consecutive failure doubles it.
    pub base_delay: Duration,
    /// Upper bound of the delay.
    pub max_delay: Duration,
    /// Whether a token bucket (10 per second, burst 100) also limits all keys together (`BucketRateLimiter`).
    pub bucket: bool,
}

impl Default for Backoff {
    /// Returns client-go's `DefaultTypedControllerRateLimiter`: 5 ms to 1000 s, with the overall bucket.
    fn default() -> Self {
        Self {
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_secs(1000),
            bucket: true,
        }
    }
}

/// Rate limiter that returns the longer delay of two: a key's exponential backoff, and a token bucket of all
/// keys.
pub(super) struct RateLimiter<K> {
    backoff: Backoff,
    /// Consecutive failures by key.
    failures: HashMap<K, u32>,
    /// Time at which the bucket would be full again (the "theoretical arrival time" of a leaky bucket).
    full_at: Option<Instant>,
}

impl<K> Default for RateLimiter<K> {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

impl<K> RateLimiter<K> {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: HashMap::new(), full_at: None }
    }
}

impl<K: Eq + Hash> RateLimiter<K> {
    /// Records a failure of a key, and returns the delay before its retry.
    pub(super) fn when(&mut self, key: &K, now: Instant) -> Duration
    where
        K: Clone,
    {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let backoff = self.backoff.delay_after(*failures);
        *failures = failures.saturating_add(1);
        if self.backoff.bucket { backoff.max(self.reserve_token(now)) } else { backoff }
    }

    /// Takes a token, perhaps a future one, and returns the time until the token exists.
    fn reserve_token(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + BUCKET_INTERVAL;
        self.full_at = Some(full_at);
        full_at.saturating_duration_since(now).saturating_sub(BUCKET_INTERVAL * BUCKET_BURST)
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Returns the number of keys that failed and were not forgotten since.
    pub(super) fn len(&self) -> usize {
        self.failures.len()
    }

    pub(super) fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

impl Backoff {
    /// Returns the base delay, doubled `failures` times, but at most the maximum delay.
    fn delay_after(&self, failures: u32) -> Duration {
        self.base_delay.saturating_mul(2u32.saturating_pow(failures)).min(self.max_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const BASE_DELAY: Duration = Duration::from_millis(5);

    #[test]
    fn the_backoff_doubles_up_to_the_maximum() {
        let table = [
            (0, 5),
            (1, 10),
            (2, 20),
            (10, 5120),
            (17, 655_360),
            (18, 1_000_000),
            (u32::MAX, 1_000_000),
        ];
        for (failures, millis) in table {
            let after = Backoff::default().delay_after(failures);
            assert_eq!(after, Duration::from_millis(millis), "{failures} failures");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_delays_keys_beyond_its_burst() {
        let mut limiter = RateLimiter::default();
        let now = Clock::system().instant();
        let delays: Vec<Duration> = (0..103).map(|key| limiter.when(&key, now)).collect();
        assert!(delays[..100].iter().all(|delay| *delay == BASE_DELAY));
        assert_eq!(delays[100..], [100, 200, 300].map(Duration::from_millis));
        let later = now + Duration::from_secs(1);
        assert_eq!(
            limiter.when(&200, later),
            BASE_DELAY,
            "a second makes ten tokens, three of which were owed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_may_have_its_own_backoff() {
        let [base_delay, max_delay] = [5, 300].map(Duration::from_secs);
        let mut limiter = RateLimiter::new(Backoff { base_delay, max_delay, bucket: false });
        let now = Clock::system().instant();
        let delays: Vec<u64> = (0..9).map(|_| limiter.when(&"a", now).as_secs()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        let mut limiter = RateLimiter::new(Backoff { base_delay, max_delay, bucket: false });
        assert!((0..200).all(|key| limiter.when(&key, now) == base_delay), "there is no bucket");
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_key_starts_with_the_base_delay() {
        let mut limiter = RateLimiter::default();
        let now = Clock::system().instant();
        assert_eq!(limiter.when(&"a", now), BASE_DELAY);
        assert_eq!(limiter.when(&"a", now), BASE_DELAY * 2);
        assert_eq!(limiter.num_requeues(&"a"), 2);
        limiter.forget(&"a");
        assert_eq!((limiter.num_requeues(&"a"), limiter.when(&"a", now)), (0, BASE_DELAY));
    }
}
