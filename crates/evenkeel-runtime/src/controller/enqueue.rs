//! Interface of event handlers to the queue, through which they can only enqueue keys.

use super::{
    barrier::Barrier,
    causes::{Cause, Causes, Event},
};
use crate::{
    plan::Key,
    queue::{Priority, Queue},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Adds keys to a controller's queue on behalf of its event handlers.
pub struct Enqueue {
    queue: Queue<Key>,
    barrier: Arc<Barrier>,
    priority: Priority,
    /// Delay after the first event of a key, so that one pass handles all events until then.
    batch_period: Duration,
    /// Where the causes of keys are noted. `None` if nobody reads them.
    causes: Option<Arc<Causes>>,
    /// Event that is being handled. A cache's handlers run one after the other.
    event: Mutex<Option<Arc<Event>>>,
}

impl Enqueue {
    pub(super) fn new(
        queue: &Queue<Key>,
        barrier: &Arc<Barrier>,
        priority: Priority,
        batch_period: Duration,
        causes: Option<Arc<Causes>>,
    ) -> Self {
        let (queue, barrier, event) = (queue.clone(), Arc::clone(barrier), Mutex::default());
        Self { queue, barrier, priority, batch_period, causes, event }
    }

    /// Sets the event that is being handled, if causes are noted.
    pub(super) fn set_event(&self, event: impl FnOnce() -> Event) {
        if self.causes.is_some() {
            let event = Arc::new(event());
            *self.event.lock().unwrap_or_else(PoisonError::into_inner) = Some(event);
        }
    }

    fn note_cause(&self, key: &Key) {
        let Some(causes) = &self.causes else { return };
        let event = self.event.lock().unwrap_or_else(PoisonError::into_inner).clone();
        causes.note(key, event.map_or(Cause::Source, Cause::Event));
    }

    /// Adds a key. Keys of the initial list or of a resync have a lower priority than keys of changes.
    pub fn add(&self, key: Key) {
        self.add_with(key, self.priority);
    }

    /// Like [`Enqueue::add`], with an explicit priority.
    pub fn add_with(&self, key: Key, priority: Priority) {
        // If a key waits for the cache to show its own writes, the barrier enqueues it afterwards.
        if self.barrier.holds(&key) {
            return;
        }
        self.note_cause(&key);
        if self.batch_period.is_zero() {
            self.queue.add(key, priority);
        } else {
            self.queue.add_after_with_priority(key, self.batch_period, priority);
        }
    }

    /// Like [`Enqueue::add`], but one pass handles all events within `period` after the first one.
    pub fn add_within(&self, key: Key, period: Duration) {
        if period.is_zero() {
            self.add(key);
        } else {
            self.add_after(key, period);
        }
    }

    /// Adds a key after a delay. If a key is added several times, the earliest time applies.
    pub fn add_after(&self, key: Key, delay: Duration) {
        self.note_cause(&key);
        self.queue.add_after_with_priority(key, delay, self.priority);
    }
}
