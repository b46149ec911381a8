//! How long a key that failed has to wait.

use std::{collections::HashMap, hash::Hash, time::Duration};
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1000);
/// Ten a second over all keys.
const INTERVAL: Duration = Duration::from_millis(100);
const BURST: u32 = 100;

/// The longer of a per-key exponential back-off and an overall bucket.
pub(super) struct Limiter<K> {
    failures: HashMap<K, u32>,
    /// When the bucket would be full again (the "theoretical arrival time" of a leaky bucket).
    full_at: Option<Instant>,
}

impl<K> Default for Limiter<K> {
    fn default() -> Self {
        Self { failures: HashMap::new(), full_at: None }
    }
}

impl<K: Eq + Hash> Limiter<K> {
    pub(super) fn delay(&mut self, key: &K, now: Instant) -> Duration
    where
        K: Clone,
    {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let own = backoff(*failures);
        *failures = failures.saturating_add(1);
        own.max(self.reserve(now))
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

/// 5 ms doubled `failures` times, at most 1000 s.
fn backoff(failures: u32) -> Duration {
    // 2^18 × 5 ms is past the longest already.
    (FIRST * 2u32.pow(failures.min(18))).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(backoff(failures), Duration::from_millis(millis), "{failures} failures");
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
