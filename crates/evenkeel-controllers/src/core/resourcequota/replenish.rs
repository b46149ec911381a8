//! Events after which quotas are recounted. Upstream: `replenishQuota`, `update_filter.go`.

use super::contents::Contents;
use crate::wiring::monitors::{Follower, WithCache, with_cache};
use evenkeel_api::{
    Kind, View,
    quota::{Tracked, is_charged, is_terminating, service_type, volume_classes},
    time::Timestamp,
    views::{ContainerStatus, PersistentVolumeClaim, Pod, ResourceQuota, Service},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Caches},
    clock::Clock,
    discovery::Resource,
    plan::Key,
    queue::{Priority, Queue},
};
use futures::future::BoxFuture;
use std::{any::Any, sync::Arc};

/// Enqueues quotas when the usage of what they limit may decrease.
#[derive(Clone)]
pub(super) struct Replenish {
    pub(super) caches: Caches,
    pub(super) quotas: Cache<ResourceQuota>,
    pub(super) contents: Contents,
    pub(super) queue: Queue<Key>,
    pub(super) clock: Clock,
}

impl Replenish {
    /// Enqueues the quotas that limit this kind, in one namespace or, if empty, in all. Upstream: `replenishQuota`.
    fn enqueue(&self, tracked: &Tracked, namespace: &str, priority: Priority) {
        let quotas = if namespace.is_empty() {
            self.quotas.list()
        } else {
            self.quotas.namespace(namespace)
        };
        if quotas.is_empty() {
            return;
        }
        let classes = self.contents.classes();
        for quota in quotas {
            if quota.spec.hard.iter().any(|(name, _)| tracked.tracks(name, &classes)) {
                self.queue.add(Key::of(&quota.meta), priority);
            }
        }
    }
}

impl Follower for Replenish {
    fn wants(&self, resource: &Resource) -> bool {
        resource.kind.namespaced
            && ["create", "delete", "list", "watch"].iter().all(|verb| resource.supports_verb(verb))
            && Tracked::new(&resource.kind.group, &resource.kind.plural).is_some()
    }

    fn take_up(&self, kind: &Kind) -> BoxFuture<'static, ()> {
        match Tracked::new(&kind.group, &kind.plural) {
            Some(tracked) => with_cache(&self.caches, kind, Attach(self.clone(), tracked)),
            None => Box::pin(async {}),
        }
    }

    fn put_down(&self, kind: &Kind) {
        if let Some(tracked) = Tracked::new(&kind.group, &kind.plural) {
            self.contents.remove(&tracked);
        }
    }

    fn settled(&self) {
        if !self.contents.complete() {
            for quota in self.quotas.list() {
                self.queue.add(Key::of(&quota.meta), Priority::NORMAL);
            }
        }
    }
}

/// Adds a kind, and subscribes to its events.
struct Attach(Replenish, Tracked);

impl WithCache for Attach {
    type Out = BoxFuture<'static, ()>;

    fn with<V: View>(self, cache: Cache<V>) -> BoxFuture<'static, ()> {
        let Self(this, tracked) = self;
        let tracked = Arc::new(tracked);
        this.contents.add(&tracked, cache.clone());
        let (heard, of_event) = (this.clone(), tracked.clone());
        cache.subscribe(move |event| {
            let less = match event {
                CacheEvent::Added { .. } => false,
                CacheEvent::Updated { old, new } => matters(&**old, &**new, heard.clock.now()),
                CacheEvent::Deleted(_) => true,
            };
            if less {
                let namespace = &event.object().meta().namespace;
                heard.enqueue(&of_event, namespace, Priority::NORMAL);
            }
        });
        Box::pin(async move {
            cache.synced().await;
            this.enqueue(&tracked, "", Priority::LOW);
        })
    }
}

/// Whether an update may decrease the usage. Upstream: `DefaultUpdateFilter`.
pub(super) fn matters(old: &dyn Any, new: &dyn Any, now: Timestamp) -> bool {
    fn both<'a, T: 'static>(old: &'a dyn Any, new: &'a dyn Any) -> Option<(&'a T, &'a T)> {
        old.downcast_ref().zip(new.downcast_ref())
    }
    if let Some((old, new)) = both::<Pod>(old, new) {
        pod_matters(old, new, now)
    } else if let Some((old, new)) = both::<Service>(old, new) {
        service_type(old) != service_type(new)
    } else if let Some((old, new)) = both::<PersistentVolumeClaim>(old, new) {
        // A requested size may decrease after a failed expansion (KEP-1790).
        let storage = |claim: &PersistentVolumeClaim| {
            let amounts = [&claim.spec.resources.requests, &claim.status.allocated_resources];
            amounts.map(|amounts| amounts.get("storage").copied())
        };
        storage(old) != storage(new) || volume_classes(old) != volume_classes(new)
    } else {
        false
    }
}

fn pod_matters(old: &Pod, new: &Pod, now: Timestamp) -> bool {
    let resized = |old: &[ContainerStatus], new: &[ContainerStatus]| {
        old.iter().any(|old| {
            let now = new.iter().find(|new| new.name == old.name);
            now.is_some_and(|now| now.resources != old.resources)
        })
    };
    resized(&old.status.container_statuses, &new.status.container_statuses)
        || resized(&old.status.init_container_statuses, &new.status.init_container_statuses)
        || is_terminating(old) != is_terminating(new)
        || is_charged(old, now) && !is_charged(new, now)
}
