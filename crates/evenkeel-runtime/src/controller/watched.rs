//! Caches of one controller, which change while watches are added and stopped.

use super::track::{Object, View, Watch};
use crate::cache::{Informer, Reader, SubscriptionId};
use evenkeel_api::Kind;
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// Caches that a controller reads: those of its builder, and those of watches that were added later. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ControllerCaches(Arc<RwLock<Vec<Arc<Reader>>>>);

impl ControllerCaches {
    /// Returns the caches. One that several watches share is there several times.
    pub(crate) fn list(&self) -> Vec<Arc<Reader>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the test holds for a cache.
    pub(crate) fn any(&self, test: impl FnMut(&Arc<Reader>) -> bool) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().any(test)
    }

    /// Returns the first result of `find`.
    pub(crate) fn find_map<T>(&self, find: impl FnMut(&Arc<Reader>) -> Option<T>) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().find_map(find)
    }

    pub(super) fn add(&self, cache: &Arc<Reader>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(cache));
    }

    /// Removes one entry of an informer's cache. Other watches may have entries of their own.
    pub(super) fn remove(&self, informer: &Arc<Informer>) {
        let mut caches = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let found = caches.iter().rposition(|cache| Arc::ptr_eq(cache.informer(), informer));
        let removed = found.map(|at| caches.remove(at));
        drop(caches);
        drop(removed);
    }

    pub(super) fn clear(&self) {
        let cleared = std::mem::take(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner));
        drop(cleared);
    }
}

/// Subscription of a controller's queue to the events of an informer.
#[derive(Clone)]
pub(super) struct Subscribed {
    pub(super) informer: Arc<Informer>,
    pub(super) id: SubscriptionId,
}

impl Subscribed {
    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.informer, &other.informer)
    }
}

/// Looks up an object by namespace and name.
pub(super) type Find = dyn Fn(&str, &str) -> Option<CachedObject> + Send + Sync;

/// Object in a cache.
pub(super) struct CachedObject {
    pub(super) uid: Arc<str>,
    pub(super) is_being_deleted: bool,
}

/// Reads the version of the watch of a namespace (0 before the first list), or `None` if the cache does not hold it.
pub(super) type ReadVersion = dyn Fn(&str) -> Option<u64> + Send + Sync;

/// Functions of the barrier that read one cache.
pub(super) struct WatchedCache {
    /// Namespaces that each have a watch. Empty if one watch shows all.
    pub(super) namespaces: Vec<Arc<str>>,
    pub(super) version: Box<ReadVersion>,
    /// Looks up an object by namespace and name.
    pub(super) find: Box<Find>,
}

/// Caches of a controller, by kind.
#[derive(Default)]
pub(super) struct WatchedCaches(HashMap<Kind, WatchedCache>);

impl WatchedCaches {
    pub(super) fn of(caches: &[Arc<Reader>]) -> Self {
        let mut watched = HashMap::new();
        for cache in caches {
            // Of several caches of one kind, the barrier reads the first.
            let kind = cache.scope().kind.clone();
            watched.entry(kind).or_insert_with(|| WatchedCache::of(cache));
        }
        Self(watched)
    }
}

impl WatchedCache {
    fn of(cache: &Arc<Reader>) -> Self {
        let (version_cache, object_cache) = (Arc::clone(cache), Arc::clone(cache));
        Self {
            namespaces: match &cache.scope().namespaces[..] {
                [all] if all.is_empty() => Vec::new(),
                namespaces => namespaces.iter().map(|name| Arc::from(&**name)).collect(),
            },
            version: Box::new(move |namespace| match namespace {
                "" => Some(version_cache.version()),
                namespace => version_cache.version_in(namespace),
            }),
            find: Box::new(move |namespace, name| {
                let object = object_cache.get(namespace, name)?;
                let meta = object.meta();
                Some(CachedObject { uid: Arc::from(&*meta.uid), is_being_deleted: meta.deleting() })
            }),
        }
    }
}

impl WatchedCaches {
    /// Returns whether the controller has a cache of this kind.
    pub(super) fn has(&self, kind: &Kind) -> bool {
        self.0.contains_key(kind)
    }

    /// Returns the watch that shows the objects of a kind in a namespace, if the controller has one.
    pub(super) fn watch_of(&self, kind: &Kind, namespace: &str) -> Option<Watch> {
        let cache = self.0.get(kind)?;
        let namespace = match &cache.namespaces[..] {
            [] => Arc::from(""),
            namespaces => Arc::clone(namespaces.iter().find(|known| ***known == *namespace)?),
        };
        Some(Watch { kind: kind.clone(), namespace })
    }
}

impl View for WatchedCaches {
    fn version(&self, watch: &Watch) -> Option<u64> {
        let cache = self.0.get(&watch.kind)?;
        (cache.version)(&watch.namespace)
    }

    fn alive(&self, object: &Object) -> bool {
        let Some(cache) = self.0.get(&object.kind) else { return false };
        let Some(cached) = (cache.find)(&object.namespace, &object.name) else { return false };
        let is_same = object.uid.is_empty() || cached.uid == object.uid;
        is_same && !cached.is_being_deleted
    }
}

impl FromIterator<(Kind, WatchedCache)> for WatchedCaches {
    fn from_iter<I: IntoIterator<Item = (Kind, WatchedCache)>>(caches: I) -> Self {
        Self(caches.into_iter().collect())
    }
}
