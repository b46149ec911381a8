//! Caches of one controller, which change while watches are added and stopped.

use super::track::{Object, View, Watch};
use crate::{
    cache::{Informer, Reader, SubscriptionId},
    fast_map::FastMap,
};
use evenkeel_api::{Kind, Meta};
use std::sync::{Arc, PoisonError, RwLock};

/// Caches that a controller reads: those of its builder, and those of watches that were added later. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ControllerCaches(Arc<RwLock<Vec<Arc<Reader>>>>);

impl ControllerCaches {
    /// Returns the caches. A cache that several watches share occurs several times.
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

    /// Removes one entry of an informer's cache. Other watches may have their own entries.
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

/// State of an object in a cache.
pub(super) struct CachedObject {
    pub(super) uid: Arc<str>,
    pub(super) is_being_deleted: bool,
}

/// Reads the version of the watch of a namespace (0 before the first list), or `None` if the cache does not hold it.
pub(super) type ReadVersion = dyn Fn(&str) -> Option<u64> + Send + Sync;

/// Functions of the barrier that read one cache.
pub(super) struct WatchedCache {
    /// Number that distinguishes this cache from other caches of its kind.
    pub(super) id: usize,
    /// Namespaces that each have a watch. Empty if one watch shows all.
    pub(super) namespaces: Vec<Arc<str>>,
    pub(super) version: Box<ReadVersion>,
    /// Looks up an object by namespace and name.
    pub(super) find: Box<Find>,
    /// Returns whether the cache will show a write, by the metadata that the server returned.
    pub(super) shows: Box<dyn Fn(&Meta) -> bool + Send + Sync>,
}

/// Caches of a controller, by kind. There may be several of a kind, such as one of whole objects and one of metadata, and a
/// pass (one reconcile) may read any of them.
#[derive(Default)]
pub(super) struct WatchedCaches(FastMap<Kind, Vec<WatchedCache>>);

impl WatchedCaches {
    pub(super) fn of(caches: &[Arc<Reader>]) -> Self {
        let mut watched = FastMap::<Kind, Vec<WatchedCache>>::default();
        for cache in caches {
            let of_kind = watched.entry(cache.scope().kind.clone()).or_default();
            // Several watches may share a cache.
            if of_kind.iter().all(|known| known.id != id_of(cache)) {
                of_kind.push(WatchedCache::of(cache));
            }
        }
        Self(watched)
    }
}

/// Returns the number of a cache, which is unique as long as the cache exists.
fn id_of(cache: &Arc<Reader>) -> usize {
    Arc::as_ptr(cache.informer()).addr()
}

impl WatchedCache {
    fn of(cache: &Arc<Reader>) -> Self {
        let (version_cache, object_cache) = (Arc::clone(cache), Arc::clone(cache));
        let showing_cache = Arc::clone(cache);
        Self {
            id: id_of(cache),
            shows: Box::new(move |written| showing_cache.will_show(written)),
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

    /// Returns the watch of the objects in a namespace, if the cache has one.
    fn watch_in(&self, kind: &Kind, namespace: &str) -> Option<Watch> {
        let namespace = match &self.namespaces[..] {
            [] => Arc::from(""),
            namespaces => Arc::clone(namespaces.iter().find(|known| ***known == *namespace)?),
        };
        Some(Watch { kind: kind.clone(), namespace, cache: self.id })
    }

    /// Returns whether the cache still shows this object as alive.
    fn shows_alive(&self, object: &Object) -> bool {
        (self.find)(&object.namespace, &object.name)
            .is_some_and(|cached| cached.uid == object.uid && !cached.is_being_deleted)
    }
}

impl WatchedCaches {
    fn of_kind(&self, kind: &Kind) -> &[WatchedCache] {
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the controller has a cache of this kind.
    pub(super) fn has(&self, kind: &Kind) -> bool {
        self.0.contains_key(kind)
    }

    /// Returns the watches that show the objects of a kind in a namespace, with their versions.
    pub(super) fn versions_of(&self, kind: &Kind, namespace: &str) -> Vec<(Watch, u64)> {
        let caches = self.of_kind(kind).iter();
        let watches = caches.filter_map(|cache| cache.watch_in(kind, namespace));
        let versions = watches.map(|watch| (self.version(&watch), watch));
        versions.filter_map(|(version, watch)| Some((watch, version?))).collect()
    }

    /// Returns the watches that will show a write, by the metadata that the server returned. If no cache is known to show it,
    /// returns the first one, because the caller knows better.
    pub(super) fn watches_of_write(&self, kind: &Kind, written: &Meta) -> Vec<Watch> {
        let watch = |cache: &WatchedCache| cache.watch_in(kind, &written.namespace);
        let caches = self.of_kind(kind);
        if caches.len() > 1 {
            let showing = caches.iter().filter(|cache| (cache.shows)(written));
            let watches: Vec<Watch> = showing.filter_map(watch).collect();
            if !watches.is_empty() {
                return watches;
            }
        }
        caches.first().and_then(watch).into_iter().collect()
    }

    /// Returns the uid of an object in a cache.
    pub(super) fn uid_of(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<str>> {
        let caches = self.of_kind(kind).iter();
        let mut uids = caches.filter_map(|cache| Some((cache.find)(namespace, name)?.uid));
        uids.find(|uid| !uid.is_empty())
    }
}

impl View for WatchedCaches {
    fn version(&self, watch: &Watch) -> Option<u64> {
        let cache = self.of_kind(&watch.kind).iter().find(|cache| cache.id == watch.cache)?;
        (cache.version)(&watch.namespace)
    }

    fn is_alive(&self, object: &Object) -> bool {
        self.of_kind(&object.kind).iter().any(|cache| cache.shows_alive(object))
    }
}

impl FromIterator<(Kind, WatchedCache)> for WatchedCaches {
    fn from_iter<I: IntoIterator<Item = (Kind, WatchedCache)>>(caches: I) -> Self {
        let mut watched = FastMap::<Kind, Vec<WatchedCache>>::default();
        for (kind, cache) in caches {
            watched.entry(kind).or_default().push(cache);
        }
        Self(watched)
    }
}
