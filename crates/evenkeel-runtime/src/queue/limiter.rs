//! How long a key that failed has to wait.

use std::{collections::HashMap, hash::Hash, time::Duration};
use tokio::time::Instant;

/// Ten a second over all keys.
const INTERVAL: Duration = Duration::from_millis(100);
const BURST: u32 = 100;

/// How long keys that failed have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure; doubled with each further one in a row.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
    /// Whether all keys together wait for a bucket of ten a second, a hundred at once, as well.
    pub overall: bool,
}

impl Default for Backoff {
    /// client-go's `DefaultTypedControllerRateLimiter`: 5 ms to 1000 s, with the overall bucket.
    fn default() -> Self {
        Self { first: Duration::from_millis(5), longest: Duration::from_secs(1000), overall: true }
    }
}

/// The longer of a per-key exponential back-off and an overall bucket.
pub(super) struct Limiter<K> {
    backoff: Backoff,
    failures: HashMap<K, u32>,
    /// When the bucket would be full again (the "theoretical arrival time" of a leaky bucket).
    full_at: Option<Instant>,
}

impl<K> Default for Limiter<K> {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

impl<K> Limiter<K> {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: HashMap::new(), full_at: None }
    }
}

impl<K: Eq + Hash> Limiter<K> {
    pub(super) fn delay(&mut self, key: &K, now: Instant) -> Duration
    where
        K: Clone,
    {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let own = self.backoff.after(*failures);
        *failures = failures.saturating_add(1);
        if self.backoff.overall { own.max(self.reserve(now)) } else { own }
    }

    /// Takes a token, perhaps one that is yet to come, and says how long it is till then.
    fn reserve(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + INTERVAL;
        self.full_at = Some(full_at);
        full_at.saturating_duration_since(now).saturating_sub(INTERVAL * BURST)
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// How many keys failed and were not forgotten since.
    pub(super) fn len(&self) -> usize {
        self.failures.len()
    }

    pub(super) fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

impl Backoff {
    /// The first wait doubled `failures` times, at most the longest.
    fn after(&self, failures: u32) -> Duration {
        self.first.saturating_mul(2u32.saturating_pow(failures)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(5);

    #[test]
    fn doubles_up_to_the_longest() {
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
            let after = Backoff::default().after(failures);
            assert_eq!(after, Duration::from_millis(millis), "{failures} failures");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_holds_back_after_its_burst() {
        let mut limiter = Limiter::default();
        let now = Instant::now();
        let delays: Vec<Duration> = (0..103).map(|key| limiter.delay(&key, now)).collect();
        assert!(delays[..100].iter().all(|delay| *delay == FIRST));
        assert_eq!(delays[100..], [100, 200, 300].map(Duration::from_millis));
        let later = now + Duration::from_secs(1);
        assert_eq!(
            limiter.delay(&200, later),
            FIRST,
            "a second makes ten tokens, three of which were owed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_may_have_waits_of_its_own() {
        let [first, longest] = [5, 300].map(Duration::from_secs);
        let mut limiter = Limiter::new(Backoff { first, longest, overall: false });
        let now = Instant::now();
        let delays: Vec<u64> = (0..9).map(|_| limiter.delay(&"a", now).as_secs()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        let mut limiter = Limiter::new(Backoff { first, longest, overall: false });
        assert!((0..200).all(|key| limiter.delay(&key, now) == first), "there is no bucket");
    }

    #[tokio::test(start_paused = true)]
    async fn forgetting_starts_over() {
        let mut limiter = Limiter::default();
        let now = Instant::now();
        assert_eq!(limiter.delay(&"a", now), FIRST);
        assert_eq!(limiter.delay(&"a", now), FIRST * 2);
        assert_eq!(limiter.failures(&"a"), 2);
        limiter.forget(&"a");
        assert_eq!((limiter.failures(&"a"), limiter.delay(&"a", now)), (0, FIRST));
    }
}
