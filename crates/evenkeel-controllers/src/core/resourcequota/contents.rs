//! Contents of namespaces: caches of all kinds that quotas can limit. Upstream: `QuotaMonitor`.

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

/// The caches; clones share them.
#[derive(Clone)]
pub(super) struct Contents(Arc<Shared>);

struct Shared {
    caches: Caches,
    /// Caches by resource name in quotas.
    kinds: RwLock<BTreeMap<Text, Arc<Counted>>>,
    /// Whether all kinds that the server had at the start are synced.
    complete: AtomicBool,
    classes: OnceLock<Cache<DeviceClass>>,
}

/// A counted kind.
struct Counted {
    tracked: Arc<Tracked>,
    cache: Box<dyn Held>,
}

/// A cache of any view.
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

    /// Adds a kind.
    pub(super) fn add<V: View>(&self, tracked: &Arc<Tracked>, cache: Cache<V>) {
        if tracked.sort() == Sort::DeviceClaims {
            self.0.classes.get_or_init(|| self.0.caches.of());
        }
        let counted = Counted { tracked: tracked.clone(), cache: Box::new(cache) };
        let mut kinds = self.0.kinds.write().unwrap_or_else(PoisonError::into_inner);
        kinds.insert(tracked.count().into(), Arc::new(counted));
    }

    /// Removes a kind.
    pub(super) fn remove(&self, tracked: &Tracked) {
        self.0.kinds.write().unwrap_or_else(PoisonError::into_inner).remove(tracked.count());
    }

    /// Declares the initial kinds complete. Returns whether they were before.
    pub(super) fn complete(&self) -> bool {
        self.0.complete.swap(true, Ordering::Relaxed)
    }

    /// Whether a kind counts towards the resource `name`.
    pub(super) fn counts(&self, name: &str) -> bool {
        let classes = self.classes();
        self.kinds().iter().any(|counted| counted.tracked.tracks(name, &classes))
    }

    /// Returns the observed state of a quota, of synced kinds; `None` before the initial kinds are complete.
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

    /// Returns the device classes.
    pub(super) fn classes(&self) -> Classes {
        let classes = self.0.classes.get().map(Cache::list).unwrap_or_default();
        classes.iter().map(|class| &**class).collect()
    }

    fn kinds(&self) -> Vec<Arc<Counted>> {
        self.0.kinds.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
