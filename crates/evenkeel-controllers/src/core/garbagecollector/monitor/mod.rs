//! Watches of all deletable resources, which start and stop as resources appear and disappear. Upstream:
//! `syncMonitors`.

mod resources;

use super::GarbageCollector;
use crate::wiring::monitors::{Follower, WithCache, with_cache};
use evenkeel_api::{Kind, View};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    discovery::Resource,
};
use futures::future::BoxFuture;
use resources::can_change_graph;
pub(super) use resources::is_deletable;

impl Follower for GarbageCollector {
    fn wants(&self, resource: &Resource) -> bool {
        is_deletable(resource)
    }

    fn start_watching(&self, kind: &Kind) -> BoxFuture<'static, ()> {
        with_cache(&self.0.env.caches, kind, Attach(self.clone()))
    }

    fn on_failed(&self) {
        self.0.sync_errors.inc();
    }

    fn on_settled(&self) {
        self.0.complete.set();
    }
}

/// Subscribes the collector to the events of a cache.
struct Attach(GarbageCollector);

impl WithCache for Attach {
    type Out = BoxFuture<'static, ()>;

    fn with<V: View>(self, cache: Cache<V>) -> BoxFuture<'static, ()> {
        let Self(collector) = self;
        let kind = cache.kind().clone();
        cache.subscribe(move |event| {
            let work = match event {
                CacheEvent::Added { object, .. } => {
                    collector.graph_mut().process_update(&kind, object.meta())
                }
                CacheEvent::Updated { old, new } if can_change_graph(old.meta(), new.meta()) => {
                    collector.graph_mut().process_update(&kind, new.meta())
                }
                CacheEvent::Updated { .. } => return,
                CacheEvent::Deleted(object) => {
                    collector.graph_mut().process_delete(&object.meta().uid)
                }
            };
            collector.enqueue(work);
        });
        Box::pin(async move { cache.synced().await })
    }
}
