//! What an event handler may do: enqueue keys.

use super::barrier::Barrier;
use crate::{
    plan::Key,
    queue::{Priority, Queue},
};
use std::{sync::Arc, time::Duration};

/// Adds keys to a controller's queue, for its event handlers.
pub struct Enqueue {
    queue: Queue<Key>,
    barrier: Arc<Barrier>,
    priority: Priority,
    batch: Duration,
}

impl Enqueue {
    pub(super) fn new(
        queue: &Queue<Key>,
        barrier: &Arc<Barrier>,
        priority: Priority,
        batch: Duration,
    ) -> Self {
        Self { queue: queue.clone(), barrier: Arc::clone(barrier), priority, batch }
    }

    /// Adds a key. Keys of the initial list or a resync have a lower priority than those of changes.
    pub fn add(&self, key: Key) {
        self.add_with(key, self.priority);
    }

    /// As [`Enqueue::add`] with a priority of one's own.
    pub fn add_with(&self, key: Key, priority: Priority) {
        // A key that waits for its own writes to show is added by the barrier as soon as they do.
        if self.barrier.holds(&key) {
            return;
        }
        if self.batch.is_zero() {
            self.queue.add(key, priority);
        } else {
            self.queue.add_after_with_priority(key, self.batch, priority);
        }
    }

    /// As [`Enqueue::add`], but what happens within `period` after the first event that names the key is one pass.
    pub fn add_within(&self, key: Key, period: Duration) {
        if period.is_zero() {
            self.add(key);
        } else {
            self.add_after(key, period);
        }
    }

    /// The key is to be reconciled after this time; of several the earliest counts.
    pub fn add_after(&self, key: Key, delay: Duration) {
        self.queue.add_after_with_priority(key, delay, self.priority);
    }
}
