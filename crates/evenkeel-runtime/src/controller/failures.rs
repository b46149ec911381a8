//! Consecutive failures of keys. The queue's rate limiter also counts passes (reconciles) that requested an immediate requeue.

use crate::{
    fast_map::{FastMap, shrink_if_sparse},
    plan::Key,
    queue::Queue,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers of requeues without a failure, for keys that have any.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<FastMap<Key, u32>>);

impl Failures {
    /// Returns the number of consecutive failures of a key.
    pub(super) fn of(&self, key: &Key, queue: &Queue<Key>) -> u32 {
        let requested = self.lock().get(key).copied().unwrap_or_default();
        queue.num_requeues(key).saturating_sub(requested)
    }

    /// Requeues a key with backoff after a success.
    pub(super) fn requeue_after_success(&self, key: &Key, queue: &Queue<Key>) {
        queue.add_rate_limited(key.clone());
        self.lock().insert(key.clone(), queue.num_requeues(key));
    }

    /// Forgets the failures of a key.
    pub(super) fn forget(&self, key: &Key, queue: &Queue<Key>) {
        queue.forget(key);
        let mut requested = self.lock();
        requested.remove(key);
        shrink_if_sparse(&mut requested);
    }

    fn lock(&self) -> MutexGuard<'_, FastMap<Key, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn only_failures_in_a_row_are_counted() {
        let queue = Queue::unnamed(&Clock::system());
        let (failures, key) = (Failures::default(), Key::new("ns", "a"));
        let fails = || {
            queue.add_rate_limited(key.clone());
            failures.of(&key, &queue)
        };
        assert_eq!([fails(), fails()], [1, 2]);
        for _ in 0..4 {
            failures.requeue_after_success(&key, &queue);
            assert_eq!(failures.of(&key, &queue), 0);
        }
        assert_eq!([fails(), fails()], [1, 2]);
        assert_eq!(queue.num_requeues(&key), 8, "the backoff goes on");
        failures.forget(&key, &queue);
        assert_eq!([fails(), fails()], [1, 2]);
        failures.forget(&key, &queue);
        assert!(failures.lock().is_empty());
    }
}
