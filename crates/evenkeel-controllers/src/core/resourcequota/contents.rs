//! What namespaces hold: the caches of all kinds that quotas can limit.

use super::plan::{Content, Observed, Part};
use evenkeel_api::{
    Text, View,
    quota::{Classes, Sort, Tracked},
    views::{DeviceClass, PersistentVolumeClaim, Pod, ResourceClaim, ResourceQuota, Service},
};
use evenkeel_runtime::cache::{Cache, Caches};
use std::{
    any::Any,
    collections::BTreeMap,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// The caches. Clones share them.
#[derive(Clone)]
pub(super) struct Contents(Arc<Shared>);

struct Shared {
    caches: Caches,
    /// By the name of their count.
    kinds: RwLock<BTreeMap<Text, Arc<Counted>>>,
    /// Whether all kinds that the server had at the start have been seen.
    complete: AtomicBool,
    classes: OnceLock<Cache<DeviceClass>>,
}

/// One kind.
struct Counted {
    tracked: Arc<Tracked>,
    cache: Box<dyn Held>,
}

/// A cache, whatever is read of its objects.
trait Held: Send + Sync {
    fn content(&self, sort: Sort, namespace: &str) -> Content;
    fn has_synced(&self) -> bool;
}

impl<V: View> Held for Cache<V> {
    fn content(&self, sort: Sort, namespace: &str) -> Content {
        let any: &dyn Any = self;
        let looked_into = match sort {
            Sort::Pods => any
                .downcast_ref::<Cache<Pod>>()
                .map(|cache| Content::Pods(cache.namespace(namespace))),
            Sort::Services => any
                .downcast_ref::<Cache<Service>>()
                .map(|cache| Content::Services(cache.namespace(namespace))),
            Sort::VolumeClaims => any
                .downcast_ref::<Cache<PersistentVolumeClaim>>()
                .map(|cache| Content::VolumeClaims(cache.namespace(namespace))),
            Sort::DeviceClaims => any
                .downcast_ref::<Cache<ResourceClaim>>()
                .map(|cache| Content::DeviceClaims(cache.namespace(namespace), Vec::new())),
            Sort::Plain => None,
        };
        looked_into.unwrap_or_else(|| Content::Number(self.count(namespace)))
    }

    fn has_synced(&self) -> bool {
        Self::has_synced(self)
    }
}

impl Contents {
    pub(super) fn new(caches: &Caches) -> Self {
        Self(Arc::new(Shared {
            caches: caches.clone(),
            kinds: RwLock::default(),
            complete: AtomicBool::new(false),
            classes: OnceLock::new(),
        }))
    }

    /// Takes a kind in.
    pub(super) fn add<V: View>(&self, tracked: &Arc<Tracked>, cache: Cache<V>) {
        if tracked.sort() == Sort::DeviceClaims {
            self.0.classes.get_or_init(|| self.0.caches.of());
        }
        let counted = Counted { tracked: tracked.clone(), cache: Box::new(cache) };
        let mut kinds = self.0.kinds.write().unwrap_or_else(PoisonError::into_inner);
        kinds.insert(tracked.count().into(), Arc::new(counted));
    }

    /// Forgets a kind.
    pub(super) fn remove(&self, tracked: &Tracked) {
        self.0.kinds.write().unwrap_or_else(PoisonError::into_inner).remove(tracked.count());
    }

    /// From now on what is not here is not there. Whether it was so before.
    pub(super) fn complete(&self) -> bool {
        self.0.complete.swap(true, Ordering::Relaxed)
    }

    /// Whether there is a kind that counts towards `name`.
    pub(super) fn counts(&self, name: &str) -> bool {
        let classes = self.classes();
        self.kinds().iter().any(|counted| counted.tracked.tracks(name, &classes))
    }

    /// What a quota counts, of the kinds that are seen whole; nothing before all that there is has been looked for.
    pub(super) fn of(&self, quota: Arc<ResourceQuota>) -> Option<Observed> {
        if !self.0.complete.load(Ordering::Relaxed) {
            return None;
        }
        let (classes, namespace) = (self.classes(), quota.meta.namespace.clone());
        let mut parts = Vec::new();
        for counted in self.kinds() {
            let tracked = counted.tracked.clone();
            let limits = quota.spec.hard.iter().any(|(name, _)| tracked.tracks(name, &classes));
            if limits && counted.cache.has_synced() {
                let mut content = counted.cache.content(tracked.sort(), &namespace);
                if let Content::DeviceClaims(_, pods) = &mut content {
                    *pods = self.0.caches.of::<Pod>().namespace(&namespace);
                }
                parts.push(Part { tracked, content });
            }
        }
        Some(Observed { quota, classes, parts })
    }

    /// The classes of devices.
    pub(super) fn classes(&self) -> Classes {
        let classes = self.0.classes.get().map(Cache::list).unwrap_or_default();
        classes.iter().map(|class| &**class).collect()
    }

    fn kinds(&self) -> Vec<Arc<Counted>> {
        self.0.kinds.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
