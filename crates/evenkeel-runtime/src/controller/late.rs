//! Watches that are added to a built controller.

use super::{
    Controller, Enqueue,
    build::subscription,
    enqueue::{Filter, Handle},
    run::Shared,
};
use crate::{
    cache::{Cache, CacheEvent},
    plan::Key,
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
        self.shared.enqueue_from_source(key);
    }

    /// Calls `map` with the events of objects in `cache`, beginning with those in it.
    pub(crate) fn add<V: View>(
        &self,
        cache: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) {
        let handle: Handle = Box::new(move |event, enqueue, _| {
            event.with(|event| map(event, enqueue));
        });
        let (informer, handle) = (Arc::clone(cache.informer()), Arc::new(handle));
        let Shared { queue, barrier, batch_period, causes, .. } = &*self.shared;
        if let Some(replay) = &self.shared.replay {
            replay.subscriptions().push((Arc::clone(&informer), Arc::clone(&handle)));
        }
        let filter = Filter::of(self.shared.shards());
        let priorities =
            Enqueue::by_priority(queue, barrier, *batch_period, &filter, causes.as_ref());
        subscription(informer, handle, priorities, barrier)();
    }
}
