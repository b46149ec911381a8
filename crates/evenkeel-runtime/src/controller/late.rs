//! Watches that are added to a built controller.

use super::{Controller, Enqueue, build::subscription, causes::Cause, run::Shared};
use crate::{
    cache::{Cache, CacheEvent, Object},
    plan::Key,
    queue::Priority,
};
use evenkeel_api::View;
use std::sync::Arc;

/// Access to a controller's queue for watches that are added later. Clones share it.
#[derive(Clone)]
pub(crate) struct LateWatches {
    shared: Arc<Shared>,
}

impl Controller {
    /// Returns the access for watches that are added later.
    pub(crate) fn late_watches(&self) -> LateWatches {
        LateWatches { shared: Arc::clone(&self.shared) }
    }
}

impl LateWatches {
    /// Returns the name of the controller.
    pub(crate) fn name(&self) -> &str {
        &self.shared.name
    }

    /// Enqueues a key.
    pub(crate) fn enqueue(&self, key: Key) {
        self.shared.note_cause(&key, Cause::Source);
        self.shared.queue.add(key, Priority::NORMAL);
    }

    /// Calls `map` with the events of objects in `cache`, beginning with those in it.
    pub(crate) fn add<V: View>(
        &self,
        cache: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) {
        let handle = Box::new(move |event: &CacheEvent<dyn Object>, enqueue: &Enqueue, _: &_| {
            event.with(|event| map(event, enqueue));
        });
        let Shared { queue, barrier, batch_period, causes, .. } = &*self.shared;
        let informer = Arc::clone(cache.informer());
        subscription(informer, handle, queue, barrier, *batch_period, causes.as_ref())();
    }
}
