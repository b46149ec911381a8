//! Watches that are added to a built controller, and stopped again.

use super::{
    Controller, Enqueue,
    build::subscription,
    enqueue::{Filter, Handle},
    run::Shared,
    watched::{Subscribed, WatchedCaches},
};
use crate::{
    cache::{Cache, CacheEvent, Caches},
    plan::Key,
};
use evenkeel_api::View;
use std::sync::{Arc, Weak};

/// Access to a controller's queue for watches that are added later. It does not keep the controller. Clones share it.
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
        if let Some(shared) = self.shared.upgrade() {
            shared.enqueue_from_source(key);
        }
    }

    /// Calls `map` with the events of objects in `cache`, beginning with those in it. Returns `None` if the controller has
    /// ended.
    pub(crate) fn add<V: View>(
        &self,
        cache: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Option<LateWatch> {
        let shared = self.shared.upgrade()?;
        let handle: Handle = Box::new(move |event, enqueue, _| {
            event.with(|event| map(event, enqueue));
        });
        let (reader, handle) = (Arc::clone(cache.informer()), Arc::new(handle));
        let Shared { queue, barrier, batch_period, causes, .. } = &*shared;
        // Before the first event, so that a key waits for writes of the kind from now on.
        shared.caches.add(&reader);
        barrier.set_caches(WatchedCaches::of(&shared.caches.list()));
        if let Some(replay) = &shared.replay {
            replay.subscriptions().push((Arc::clone(&reader), Arc::clone(&handle)));
        }
        let filter = Filter::of(shared.shards());
        let priorities =
            Enqueue::by_priority(queue, barrier, *batch_period, &filter, causes.as_ref());
        let kept_handle = Arc::downgrade(&handle);
        let subscribed = subscription(reader, handle, priorities, barrier)();
        shared.subscribed().push(subscribed.clone());
        Some(LateWatch { shared: self.shared.clone(), subscribed, handle: kept_handle })
    }
}

impl LateWatch {
    /// Ends the watch. Its keys in the queue stay. Stops the cache in `caches`, unless somebody else reads it.
    pub(crate) fn stop(self, caches: &Caches) {
        let Self { shared, subscribed, handle } = self;
        if let Some(shared) = shared.upgrade() {
            let mut all = shared.subscribed();
            let found = all.iter().position(|known| known.is(&subscribed));
            let Some(_) = found.map(|at| all.swap_remove(at)) else { return };
            drop(all);
            subscribed.informer.unsubscribe(subscribed.id);
            if let Some(replay) = &shared.replay {
                let is_of_watch = |known: &Arc<Handle>| Weak::as_ptr(&handle) == Arc::as_ptr(known);
                replay.subscriptions().retain(|(_, known)| !is_of_watch(known));
            }
            shared.caches.remove(&subscribed.informer);
            shared.barrier.set_caches(WatchedCaches::of(&shared.caches.list()));
        }
        caches.stop_unread(&subscribed.informer);
    }
}
