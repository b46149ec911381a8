//! Watches of all deletable resources, which start and stop as resources appear and disappear. Upstream:
//! `syncMonitors`.

use super::GarbageCollector;
use crate::wiring::monitors::{Follower, WithCache, with_cache};
use evenkeel_api::{Kind, Meta, View};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    discovery::Resource,
};
use futures::future::BoxFuture;

/// Groups whose `events` are not collected, because events expire. Upstream: `DefaultIgnoredResources`.
const EVENTS: [&str; 2] = ["", "events.k8s.io"];

impl Follower for GarbageCollector {
    fn wants(&self, resource: &Resource) -> bool {
        is_deletable(resource)
    }

    fn take_up(&self, kind: &Kind) -> BoxFuture<'static, ()> {
        with_cache(&self.0.env.caches, kind, Attach(self.clone()))
    }

    fn failed(&self) {
        self.0.sync_errors.inc();
    }

    fn settled(&self) {
        self.0.complete.set();
    }
}

/// Subscribes the collector to a cache.
struct Attach(GarbageCollector);

impl WithCache for Attach {
    type Out = BoxFuture<'static, ()>;

    fn with<V: View>(self, cache: Cache<V>) -> BoxFuture<'static, ()> {
        let (this, kind) = (self.0, cache.kind().clone());
        cache.subscribe(move |event| {
            let work = match event {
                CacheEvent::Added { object, .. } => this.graph().observed(&kind, object.meta()),
                CacheEvent::Updated { old, new } if concerns_owners(old.meta(), new.meta()) => {
                    this.graph().observed(&kind, new.meta())
                }
                CacheEvent::Updated { .. } => return,
                CacheEvent::Deleted(object) => this.graph().deleted(&object.meta().uid),
            };
            this.enqueue(work);
        });
        Box::pin(async move { cache.synced().await })
    }
}

/// Whether objects of the resource are collected: it has the verbs delete, list and watch. Upstream:
/// `GetDeletableResources`.
pub(super) fn is_deletable(resource: &Resource) -> bool {
    let is_event = resource.kind.plural == "events" && EVENTS.contains(&&*resource.kind.group);
    !is_event && ["delete", "list", "watch"].iter().all(|verb| resource.supports_verb(verb))
}

/// Whether an update can change the graph. Most updates change only the status and cannot.
fn concerns_owners(old: &Meta, new: &Meta) -> bool {
    old.uid != new.uid
        || old.owners != new.owners
        || old.deletion != new.deletion
        || old.finalizers != new.finalizers
}
