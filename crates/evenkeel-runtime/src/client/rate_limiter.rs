//! Client-side rate limit: a token bucket.
//!
//! Upstream: `tokenBucketRateLimiter`.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

use crate::clock::Clock;

/// Default of client-go in requests per second.
const DEFAULT_QPS: f64 = 5.0;
/// Default of client-go in requests.
const DEFAULT_BURST: f64 = 10.0;

/// Token bucket of `burst` tokens that refills `qps` tokens per second, by its clock.
///
/// A request takes its token immediately and then waits until the bucket would contain it, so that requests keep their
/// order.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    clock: Clock,
    qps: f64,
    burst: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Number of tokens; negative while requests wait.
    tokens: f64,
    /// Time of the last refill.
    refilled: Instant,
}

impl RateLimiter {
    /// Creates a full bucket. A negative `qps` means no limit and returns `None`. Zero means client-go's
    /// default: 5 for `qps`, 10 for `burst`.
    pub(crate) fn new(qps: f32, burst: u32, clock: &Clock) -> Option<Self> {
        if qps < 0.0 {
            return None;
        }
        let qps = if qps == 0.0 { DEFAULT_QPS } else { f64::from(qps) };
        let burst = if burst == 0 { DEFAULT_BURST } else { f64::from(burst) };
        Some(Self::new_full(qps, burst, clock.clone()))
    }

    /// Returns another, full bucket of the same size.
    pub(crate) fn full_copy(&self) -> Self {
        Self::new_full(self.qps, self.burst, self.clock.clone())
    }

    fn new_full(qps: f64, burst: f64, clock: Clock) -> Self {
        let bucket = Mutex::new(Bucket { tokens: burst, refilled: clock.instant() });
        Self { clock, qps, burst, bucket }
    }

    /// Waits for a token and returns the time that it waited.
    ///
    /// Upstream: `tryThrottle`.
    pub(crate) async fn wait(&self) -> Duration {
        let wait = self.reserve_token();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        wait
    }

    /// Takes a token, and returns the time until the bucket would contain it.
    fn reserve_token(&self) -> Duration {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.instant();
        let elapsed_seconds = now.saturating_duration_since(bucket.refilled).as_secs_f64();
        bucket.refilled = now;
        bucket.tokens = (bucket.tokens + elapsed_seconds * self.qps).min(self.burst) - 1.0;
        if bucket.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-bucket.tokens / self.qps).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_burst_are_sent_at_the_rate() {
        let limiter = RateLimiter::new(10.0, 3, &Clock::system()).unwrap();
        let start = Clock::system().instant();
        for _ in 0..3 {
            assert_eq!(limiter.wait().await, Duration::ZERO);
        }
        for _ in 0..10 {
            limiter.wait().await;
        }
        let took = start.elapsed();
        assert!(
            (Duration::from_millis(990)..Duration::from_millis(1020)).contains(&took),
            "{took:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_bucket_fills_only_to_the_burst() {
        let limiter = RateLimiter::new(100.0, 2, &Clock::system()).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!([limiter.reserve_token(), limiter.reserve_token()], [Duration::ZERO; 2]);
        assert!(!limiter.reserve_token().is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn a_negative_rate_is_no_limit() {
        assert!(RateLimiter::new(-1.0, 0, &Clock::system()).is_none());
        assert!(RateLimiter::new(0.0, 0, &Clock::system()).is_some());
    }
}
