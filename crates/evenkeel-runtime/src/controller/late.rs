//! Watches that are added to a built controller, and stopped again.

use super::{
    Controller, Enqueue,
    build::{enqueue_owners, subscription},
    enqueue::{Filter, Handle, filtered},
    run::Shared,
    watched::Subscribed,
};
use crate::{
    cache::{Cache, CacheEvent, Caches, Object, Reader},
    latch::Latch,
    plan::Key,
    queue::Priority,
};
use evenkeel_api::View;
use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

/// Function that decides which events of a watch enqueue keys.
pub(crate) type EventFilter = Box<dyn Fn(&CacheEvent<dyn Object>) -> bool + Send + Sync>;

/// Access to a controller's queue for watches that are added later. It does not keep the controller alive. Clones share it.
#[derive(Clone)]
pub(crate) struct LateWatches {
    name: Arc<str>,
    shared: Weak<Shared>,
}

/// Watch that was added to a controller. It lasts as long as the controller, unless it is stopped.
pub(crate) struct LateWatch {
    shared: Weak<Shared>,
    subscribed: Subscribed,
    handle: Weak<Handle>,
}

impl Controller {
    /// Returns the access for watches that are added later.
    pub(crate) fn late_watches(&self) -> LateWatches {
        LateWatches { name: Arc::clone(&self.shared.name), shared: Arc::downgrade(&self.shared) }
    }
}

impl LateWatches {
    /// Returns the name of the controller.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Enqueues a key. Does nothing once the controller has ended.
    pub(crate) fn enqueue(&self, key: Key) {
        self.enqueue_with(key, Priority::NORMAL, Duration::ZERO);
    }

    /// Like [`LateWatches::enqueue`], with a priority and after a delay.
    pub(crate) fn enqueue_with(&self, key: Key, priority: Priority, delay: Duration) {
        if let Some(shared) = self.shared.upgrade() {
            shared.enqueue_from_source(key, priority, delay);
        }
    }

    /// Calls `map` with the events of objects in `cache` that pass the filter, beginning with the cached objects. Returns
    /// `None` if the controller has ended.
    pub(crate) fn add<V: View>(
        &self,
        cache: &Cache<V>,
        filter: Option<EventFilter>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Option<LateWatch> {
        let handle: Handle = Box::new(move |event, enqueue, _| {
            event.with(|event| map(event, enqueue));
        });
        self.subscribe(&self.shared.upgrade()?, cache.informer(), passing(filter, handle))
    }

    /// Like [`Self::add`], but enqueues the controllers of the objects, if they are of the root kind.
    pub(crate) fn add_owned<V: View>(
        &self,
        cache: &Cache<V>,
        filter: Option<EventFilter>,
    ) -> Option<LateWatch> {
        let shared = self.shared.upgrade()?;
        let root = shared.root.clone();
        let handle: Handle =
            Box::new(move |event, enqueue, _| enqueue_owners(&root, event, enqueue));
        self.subscribe(&shared, cache.informer(), passing(filter, handle))
    }

    /// Calls `handle` with the events of a cache of any type. Compiled once, unlike its typed callers.
    fn subscribe(
        &self,
        shared: &Arc<Shared>,
        reader: &Arc<Reader>,
        handle: Handle,
    ) -> Option<LateWatch> {
        let (reader, handle) = (Arc::clone(reader), Arc::new(handle));
        let Shared { queue, barrier, batch_period, causes, .. } = &**shared;
        // Add the cache before the first event, so that a key waits for writes of the kind from now on.
        shared.change_caches(|caches| caches.add(&reader));
        if let Some(replay) = &shared.replay {
            replay.subscriptions().push((Arc::clone(&reader), Arc::clone(&handle)));
        }
        let filter = Filter::of(shared.shards());
        let (normal_priority, low_priority) =
            Enqueue::by_priority(queue, barrier, *batch_period, &filter, causes.as_ref());
        let kept_handle = Arc::downgrade(&handle);
        let subscribed = subscription(reader, handle, normal_priority, low_priority, barrier)();
        shared.subscribed().push(subscribed.clone());
        let watch = LateWatch { shared: self.shared.clone(), subscribed, handle: kept_handle };
        if shared.ended.load(Ordering::SeqCst) {
            // It ended meanwhile, perhaps without this subscription.
            watch.unsubscribe(shared);
            return None;
        }
        Some(watch)
    }
}

/// Returns the handler of the events that pass the filter, or of all events without a filter.
fn passing(filter: Option<EventFilter>, handle: Handle) -> Handle {
    match filter {
        Some(filter) => filtered(handle, filter),
        None => handle,
    }
}

impl LateWatch {
    /// Returns the latch that is set once the cache of the watch has synced.
    pub(crate) fn synced(&self) -> &Latch {
        self.subscribed.informer.synced()
    }

    /// Ends the watch. Its keys in the queue stay. Stops the cache in `caches`, unless the cache has other readers.
    pub(crate) fn stop(self, caches: &Caches) {
        if let Some(shared) = self.shared.upgrade() {
            self.unsubscribe(&shared);
        }
        caches.stop_unread(&self.subscribed.informer);
    }

    /// Ends the watch, unless it ended with the controller.
    fn unsubscribe(&self, shared: &Shared) {
        let Self { subscribed, handle, .. } = self;
        let is_subscribed = {
            let mut all = shared.subscribed();
            let found = all.iter().position(|known| known.is(subscribed));
            found.map(|at| all.swap_remove(at)).is_some()
        };
        if !is_subscribed {
            return;
        }
        subscribed.informer.unsubscribe(subscribed.id);
        if let Some(replay) = &shared.replay {
            let is_of_watch = |known: &Arc<Handle>| Weak::as_ptr(handle) == Arc::as_ptr(known);
            replay.subscriptions().retain(|(_, known)| !is_of_watch(known));
        }
        shared.change_caches(|caches| caches.remove(&subscribed.informer));
    }
}
