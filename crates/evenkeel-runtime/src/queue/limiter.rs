//! Rate limiters of a workqueue: the default one, and the trait of an author's own.
//!
//! Upstream: `TypedRateLimiter`, `MaxOfRateLimiter`.

use crate::fast_map::FastMap;
use std::{hash::Hash, time::Duration};
use tokio::time::Instant;

/// Decides when a failed key of a workqueue is retried. A controller has one of its own with
/// [`ControllerBuilder::rate_limiter`](crate::operator::ControllerBuilder::rate_limiter).
///
/// ```
/// use evenkeel_runtime::{plan::Key, queue::RateLimiter};
/// use std::{collections::HashMap, time::Duration};
/// use tokio::time::Instant;
///
/// /// Retries a key each minute, and keys of the namespace `batch` each hour.
/// #[derive(Default)]
/// struct Fixed(HashMap<Key, u32>);
///
/// impl RateLimiter<Key> for Fixed {
///     fn when(&mut self, key: &Key, _now: Instant) -> Duration {
///         *self.0.entry(key.clone()).or_default() += 1;
///         Duration::from_secs(if &*key.namespace == "batch" { 3600 } else { 60 })
///     }
///     fn forget(&mut self, key: &Key) {
///         self.0.remove(key);
///     }
///     fn num_requeues(&self, key: &Key) -> u32 {
///         self.0.get(key).copied().unwrap_or_default()
///     }
/// }
/// ```
///
/// Upstream: `workqueue.TypedRateLimiter`.
#[doc(alias = "TypedRateLimiter")]
pub trait RateLimiter<K>: Send {
    /// Records a failure of a key, and returns the delay before its retry.
    fn when(&mut self, key: &K, now: Instant) -> Duration;

    /// Forgets the failures of a key: it succeeded, or is no longer retried.
    fn forget(&mut self, key: &K);

    /// Returns the number of failures of a key since it was last forgotten. [`Request::attempt`] is this number, and
    /// a limit of retries compares it.
    ///
    /// [`Request::attempt`]: crate::controller::Request::attempt
    fn num_requeues(&self, key: &K) -> u32;

    /// Returns the number of keys that failed and were not forgotten since, for reports. Default: 0.
    fn failing(&self) -> usize {
        0
    }
}

/// Token bucket that limits the retries of all keys of a workqueue together.
#[doc(alias = "BucketRateLimiter")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Interval at which the bucket gains a token.
    pub interval: Duration,
    /// Capacity of the bucket in tokens.
    pub burst: u32,
}

impl Bucket {
    /// Bucket of client-go's `DefaultTypedControllerRateLimiter`: 10 tokens per second, 100 at most.
    pub const DEFAULT: Self = Self { interval: Duration::from_millis(100), burst: 100 };
}

impl Default for Bucket {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Backoff policy of the keys of a workqueue.
#[doc(alias = "ItemExponentialFailureRateLimiter")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure. Each further consecutive failure doubles it.
    pub base_delay: Duration,
    /// Upper bound of the delay.
    pub max_delay: Duration,
    /// Token bucket that also limits all keys together. `None` sets no such limit.
    pub bucket: Option<Bucket>,
}

impl Default for Backoff {
    /// Returns client-go's `DefaultTypedControllerRateLimiter`: 5 ms to 1000 s, with the overall bucket.
    fn default() -> Self {
        Self {
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_secs(1000),
            bucket: Some(Bucket::DEFAULT),
        }
    }
}

/// Rate limiter that returns the longer delay of two: a key's exponential backoff, and a token bucket of all
/// keys. It is the default of every workqueue.
#[derive(Debug)]
pub struct BackoffLimiter<K> {
    backoff: Backoff,
    /// Consecutive failures by key.
    failures: FastMap<K, u32>,
    /// Time at which the bucket would be full again (the "theoretical arrival time" of a leaky bucket).
    full_at: Option<Instant>,
}

impl<K> Default for BackoffLimiter<K> {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

impl<K> BackoffLimiter<K> {
    /// Creates a rate limiter without failures.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: FastMap::default(), full_at: None }
    }

    /// Takes a token, perhaps a future one, and returns the time until the token exists.
    fn reserve_token(&mut self, bucket: Bucket, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + bucket.interval;
        self.full_at = Some(full_at);
        let capacity = bucket.interval.saturating_mul(bucket.burst);
        full_at.saturating_duration_since(now).saturating_sub(capacity)
    }
}

impl<K: Clone + Eq + Hash + Send> RateLimiter<K> for BackoffLimiter<K> {
    fn when(&mut self, key: &K, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let backoff = self.backoff.delay_after(*failures);
        *failures = failures.saturating_add(1);
        match self.backoff.bucket {
            Some(bucket) => backoff.max(self.reserve_token(bucket, now)),
            None => backoff,
        }
    }

    fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    fn failing(&self) -> usize {
        self.failures.len()
    }
}

/// Rate limiter of a queue. The default one is called without indirection.
pub(super) enum Limiter<K> {
    Backoff(BackoffLimiter<K>),
    Own(Box<dyn RateLimiter<K>>),
}

impl<K: Clone + Eq + Hash + Send + 'static> Limiter<K> {
    pub(super) fn as_dyn(&self) -> &dyn RateLimiter<K> {
        match self {
            Self::Backoff(limiter) => limiter,
            Self::Own(limiter) => &**limiter,
        }
    }

    pub(super) fn when(&mut self, key: &K, now: Instant) -> Duration {
        match self {
            Self::Backoff(limiter) => limiter.when(key, now),
            Self::Own(limiter) => limiter.when(key, now),
        }
    }

    pub(super) fn forget(&mut self, key: &K) {
        match self {
            Self::Backoff(limiter) => limiter.forget(key),
            Self::Own(limiter) => limiter.forget(key),
        }
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
        let mut limiter = BackoffLimiter::default();
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
        let mut limiter = BackoffLimiter::new(Backoff { base_delay, max_delay, bucket: None });
        let now = Clock::system().instant();
        let delays: Vec<u64> = (0..9).map(|_| limiter.when(&"a", now).as_secs()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        let mut limiter = BackoffLimiter::new(Backoff { base_delay, max_delay, bucket: None });
        assert!((0..200).all(|key| limiter.when(&key, now) == base_delay), "there is no bucket");
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_key_starts_with_the_base_delay() {
        let mut limiter = BackoffLimiter::default();
        let now = Clock::system().instant();
        assert_eq!(limiter.when(&"a", now), BASE_DELAY);
        assert_eq!(limiter.when(&"a", now), BASE_DELAY * 2);
        assert_eq!(limiter.num_requeues(&"a"), 2);
        limiter.forget(&"a");
        assert_eq!((limiter.num_requeues(&"a"), limiter.when(&"a", now)), (0, BASE_DELAY));
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_can_be_set() {
        let bucket = Some(Bucket { interval: Duration::from_secs(1), burst: 2 });
        let mut limiter = BackoffLimiter::new(Backoff { bucket, ..Backoff::default() });
        let now = Clock::system().instant();
        let delays: Vec<u128> = (0..4).map(|key| limiter.when(&key, now).as_millis()).collect();
        assert_eq!(delays, [5, 5, 1000, 2000]);
    }
}
