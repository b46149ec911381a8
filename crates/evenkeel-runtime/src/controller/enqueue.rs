//! Interface of event handlers to the queue, through which they can only enqueue keys.

use super::{
    barrier::Barrier,
    causes::{Cause, Causes, Event},
    status_throttle::StatusThrottle,
};
use crate::{
    cache::{CacheEvent, Object},
    plan::Key,
    queue::{Priority, Queue},
    sharding::Shards,
};
use std::{
    collections::BTreeSet,
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
    filter: Filter,
    /// Throttle of the status writes; `None` if they do not delay keys.
    status_throttle: Option<Arc<StatusThrottle>>,
    /// Records the causes of keys. `None` if no reader of causes is registered.
    causes: Option<Arc<Causes>>,
    /// Event that is being handled. A cache's handlers run one after the other.
    event: Mutex<Option<Arc<Event>>>,
}

/// Event handler of a cache, which enqueues the affected keys.
pub(super) type Handle = Box<dyn Fn(&CacheEvent<dyn Object>, &Enqueue, &Barrier) + Send + Sync>;

/// Returns a handler of only the events that pass `test`.
pub(super) fn filtered(
    handle: Handle,
    test: impl Fn(&CacheEvent<dyn Object>) -> bool + Send + Sync + 'static,
) -> Handle {
    Box::new(move |event, enqueue, barrier| {
        if test(event) {
            handle(event, enqueue, barrier);
        }
    })
}

/// Returns a handler that also enqueues an object whose deletion begins, whatever `handle` does with the event.
pub(super) fn enqueuing_deletions(handle: Handle) -> Handle {
    Box::new(move |event, enqueue, barrier| {
        handle(event, enqueue, barrier);
        let begins = match event {
            CacheEvent::Added { object, .. } => object.meta().deleting(),
            CacheEvent::Updated { old, new } => new.meta().deleting() && !old.meta().deleting(),
            CacheEvent::Deleted(_) => false,
        };
        if begins {
            enqueue.add(Key::of(event.object().meta()));
        }
    })
}

/// Selection of the keys to enqueue.
#[derive(Clone)]
pub(super) enum Filter {
    All,
    /// Keys that this process serves.
    Served(Shards),
    /// The keys that are in one of these shards.
    InShards(Shards, Arc<BTreeSet<u32>>),
}

impl Filter {
    pub(super) fn of(shards: Option<&Shards>) -> Self {
        shards.map_or(Self::All, |shards| Self::Served(shards.clone()))
    }

    pub(super) fn selects(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Served(shards) => shards.serves(key),
            Self::InShards(shards, only) => {
                only.contains(&shards.shard_of(key)) && shards.serves(key)
            }
        }
    }
}

impl Enqueue {
    pub(super) fn new(
        queue: &Queue<Key>,
        barrier: &Arc<Barrier>,
        priority: Priority,
        batch_period: Duration,
        filter: Filter,
        causes: Option<Arc<Causes>>,
    ) -> Self {
        let (queue, barrier, event) = (queue.clone(), Arc::clone(barrier), Mutex::default());
        Self {
            queue,
            barrier,
            priority,
            batch_period,
            filter,
            status_throttle: None,
            causes,
            event,
        }
    }

    /// Makes [`Enqueue::add_for_status`] wait for the throttle of status writes.
    pub(super) fn throttled(self, status_throttle: &Arc<StatusThrottle>) -> Self {
        Self { status_throttle: Some(Arc::clone(status_throttle)), ..self }
    }

    /// Returns the interfaces for ordinary events and for events of low priority of one cache.
    pub(super) fn by_priority(
        queue: &Queue<Key>,
        barrier: &Arc<Barrier>,
        batch_period: Duration,
        filter: &Filter,
        causes: Option<&Arc<Causes>>,
    ) -> (Self, Self) {
        let enqueue = |priority| {
            Self::new(queue, barrier, priority, batch_period, filter.clone(), causes.cloned())
        };
        (enqueue(Priority::NORMAL), enqueue(Priority::LOW))
    }

    /// Sets the event that is being handled, if causes are recorded.
    pub(super) fn set_event(&self, event: impl FnOnce() -> Event) {
        if self.causes.is_some() {
            let event = Arc::new(event());
            *self.event.lock().unwrap_or_else(PoisonError::into_inner) = Some(event);
        }
    }

    fn record_cause(&self, key: &Key) {
        let Some(causes) = &self.causes else { return };
        let event = self.event.lock().unwrap_or_else(PoisonError::into_inner).clone();
        causes.record(key, event.map_or(Cause::Source, Cause::Event));
    }

    /// Adds a key. Keys of the initial list or of a resync have a lower priority than keys of changes.
    pub fn add(&self, key: Key) {
        self.add_with(key, self.priority);
    }

    /// Like [`Enqueue::add`], with an explicit priority.
    pub fn add_with(&self, key: Key, priority: Priority) {
        if !self.filter.selects(&key) {
            return;
        }
        // If a key waits until the cache shows its own writes, the barrier enqueues it afterwards.
        if self.barrier.is_waiting(&key) {
            return;
        }
        self.record_cause(&key);
        if self.batch_period.is_zero() {
            self.queue.add(key, priority);
        } else {
            self.queue.add_after_with_priority(key, self.batch_period, priority);
        }
    }

    /// Like [`Enqueue::add_with`], but keys of the initial list or of a resync have at most their usual priority.
    pub fn add_limited(&self, key: Key, priority: Priority) {
        let is_change = self.priority >= Priority::NORMAL;
        self.add_with(key, if is_change { priority } else { priority.min(self.priority) });
    }

    /// Adds a key after an event that changes at most the status. If the status was written within
    /// [`Builder::min_status_interval`](super::Builder::min_status_interval), the key waits until the next status write is
    /// permitted, because an earlier reconcile could not write the status.
    pub fn add_for_status(&self, key: Key) {
        let throttle = self.status_throttle.as_ref();
        match throttle.and_then(|throttle| throttle.delay(&key, self.queue.clock().instant())) {
            Some(delay) => self.add_after(key, delay),
            None => self.add(key),
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
        if self.filter.selects(&key) {
            self.record_cause(&key);
            self.queue.add_after_with_priority(key, delay, self.priority);
        }
    }
}
