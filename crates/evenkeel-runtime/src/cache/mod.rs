//! Caches of the cluster's objects (client-go: informers, listers, indexers). One reflector fills each cache, or one for
//! each of its namespaces.
//!
//! A [`Cache`] holds shared, immutable objects, which readers get as `Arc`s. An index is declared once and
//! always agrees with the objects. Event handlers receive every change in order, and only enqueue keys.
//!
//! Only [`Cache`] and [`Index`] know the objects' type. The informer that they share holds objects of any type.

mod backoff;
mod caches;
mod dynamic;
mod full;
mod informer;
mod initial_state;
mod object;
mod options;
mod packed;
mod part;
mod reflector;
mod sharded;
mod store;
#[cfg(test)]
mod tests;
mod whole;
mod written;

pub use caches::Caches;
pub(crate) use caches::Scope;
pub use dynamic::Dynamic;
pub use full::Full;
pub(crate) use informer::{Informer, Reader, SubscriptionId, WriteInFlight};
pub(crate) use object::Object;
pub use options::CacheOptions;

use crate::introspect::CacheState;
use evenkeel_api::{Kind, Text, View};
use object::{downcast, read_as};
use std::{marker::PhantomData, sync::Arc, time::Duration};
use store::Selection;

/// Function that calls back with each index key of an object.
type IndexKeys<V> = fn(&V, &mut dyn FnMut(&str));

/// Change of a cached object, as event handlers receive it.
#[doc(alias = "ResourceEventHandler")]
#[derive(Debug)]
pub enum CacheEvent<V: ?Sized> {
    /// The object is new in the cache.
    Added {
        /// The current state.
        object: Arc<V>,
        /// Whether the object was in the initial list, or was cached before the handler was added
        /// (`isInInitialList`).
        initial: bool,
    },
    /// The object changed. In a resync, both states are the same.
    Updated {
        /// The previous state.
        old: Arc<V>,
        /// The current state.
        new: Arc<V>,
    },
    /// The object was deleted. Holds its last known state.
    Deleted(Arc<V>),
}

impl<V: ?Sized> CacheEvent<V> {
    /// Returns the newest state in the event.
    pub fn object(&self) -> &Arc<V> {
        match self {
            Self::Added { object, .. }
            | Self::Updated { new: object, .. }
            | Self::Deleted(object) => object,
        }
    }
}

impl<V: ?Sized> Clone for CacheEvent<V> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => {
                Self::Added { object: Arc::clone(object), initial: *initial }
            }
            Self::Updated { old, new } => {
                Self::Updated { old: Arc::clone(old), new: Arc::clone(new) }
            }
            Self::Deleted(object) => Self::Deleted(Arc::clone(object)),
        }
    }
}

/// Cache of the objects of one type and selector. Clones share it.
///
/// ```no_run
/// use evenkeel_runtime::{cache::{Caches, Full}, client::Client, clock::Clock, tasks::Tasks};
/// use k8s_openapi::api::core::v1::Pod;
///
/// # async fn run(client: Client) {
/// let caches = Caches::new(client, Clock::system(), &prometheus::Registry::new());
/// let pods = caches.of::<Full<Pod>>();
/// let by_node = pods.index("node", |pod, key| {
///     if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
///         key(node);
///     }
/// });
/// caches.start(&Tasks::new());
/// pods.synced().await;
/// println!("{} of {} pods run on node-1", by_node.get("node-1").len(), pods.list().len());
/// # }
/// ```
pub struct Cache<V> {
    informer: Arc<Reader>,
    view: PhantomData<fn() -> V>,
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self::of(&self.informer)
    }
}

impl<V> Cache<V> {
    /// Returns the informer's cache, if it holds objects of this view.
    pub(crate) fn of_informer(informer: &Arc<Reader>) -> Option<Self>
    where
        V: View,
    {
        informer.is_of_view::<V>().then(|| Self::of(informer))
    }

    fn of(informer: &Arc<Reader>) -> Self {
        Self { informer: Arc::clone(informer), view: PhantomData }
    }

    /// Returns the objects and handlers of this cache, independent of their type.
    pub(crate) fn informer(&self) -> &Arc<Reader> {
        &self.informer
    }
}

impl<V> std::fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("scope", self.informer.scope()).finish_non_exhaustive()
    }
}

impl<V: View> Cache<V> {
    /// Returns the kind of the cached objects.
    pub fn kind(&self) -> &Kind {
        &self.informer.scope().kind
    }

    /// Returns one object. `namespace` is empty for cluster-scoped objects.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        downcast(self.informer.get(namespace, name)?)
    }

    /// Returns all objects, in arbitrary order.
    pub fn list(&self) -> Vec<Arc<V>> {
        self.select(Selection::All)
    }

    /// Returns the objects of one namespace, in arbitrary order.
    pub fn namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        self.select(Selection::Namespace(namespace))
    }

    fn select(&self, selection: Selection<'_>) -> Vec<Arc<V>> {
        let mut selected = Vec::with_capacity(self.informer.count(selection));
        self.informer.for_each(selection, &mut |object| selected.extend(downcast(object.clone())));
        selected
    }

    /// Counts the objects of one namespace.
    pub fn count(&self, namespace: &str) -> usize {
        self.informer.count(Selection::Namespace(namespace))
    }

    /// Counts all objects.
    pub fn len(&self) -> usize {
        self.informer.count(Selection::All)
    }

    /// Returns whether the cache has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Declares an index. `keys` calls back with each key of an object and may repeat keys. If the name is
    /// already declared, returns that index, which keeps its own `keys`.
    #[doc(alias = "AddIndexers")]
    pub fn index(&self, name: &'static str, keys: IndexKeys<V>) -> Index<V> {
        let keys = move |object: &dyn Object, key: &mut dyn FnMut(&str)| {
            read_as(object, |object| keys(object, key));
        };
        Index { cache: self.clone(), index: self.informer.declare(name, Box::new(keys)) }
    }

    /// Adds an event handler. It first receives every cached object, then every change. It runs on the
    /// reflector's task: it may read caches and enqueue keys, but must not block or subscribe.
    #[doc(alias = "AddEventHandler")]
    pub fn subscribe(&self, handler: impl Fn(&CacheEvent<V>) + Send + Sync + 'static) {
        self.informer.subscribe(Box::new(move |event| event.with(&handler)));
    }

    /// Sends every object to the handlers again each `period`, as an update without a change. The shortest
    /// requested period applies.
    pub fn resync_every(&self, period: Duration) {
        self.informer.resync_period().request(period);
    }

    /// Marks the kind of the cache as one that the server may not serve yet, such as the kind of a
    /// CustomResourceDefinition that is installed later. [`Caches::synced`] does not wait for it. Once the kind is
    /// served, the cache fills.
    pub fn mark_optional(&self) {
        self.informer.mark_optional();
    }

    /// Returns whether the initial list is complete.
    pub fn has_synced(&self) -> bool {
        self.informer.has_synced()
    }

    /// Waits until the initial list is complete.
    pub async fn synced(&self) {
        self.informer.synced().wait().await;
    }

    /// Returns the counters and state of the cache, for introspection.
    pub fn state(&self) -> CacheState {
        self.informer.state()
    }

    /// Returns the newest resourceVersion of the cache, including bookmarks, or 0 before the first list.
    #[doc(alias = "LastSyncResourceVersion")]
    pub fn version(&self) -> u64 {
        self.informer.version()
    }
}

/// Index of a cache: objects by a declared key.
pub struct Index<V> {
    cache: Cache<V>,
    index: usize,
}

impl<V> Clone for Index<V> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), index: self.index }
    }
}

impl<V> std::fmt::Debug for Index<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<V: View> Index<V> {
    /// Returns the cache whose objects the index finds.
    pub fn cache(&self) -> &Cache<V> {
        &self.cache
    }

    /// Returns the objects under `key`, in arbitrary order.
    pub fn get(&self, key: &str) -> Vec<Arc<V>> {
        self.cache.select(Selection::Key(self.index, key))
    }

    /// Counts the objects under `key`.
    pub fn count(&self, key: &str) -> usize {
        self.cache.informer.count(Selection::Key(self.index, key))
    }

    /// Calls `each` with the objects under `key` while the cache is locked. `each` must not use a cache.
    pub fn for_each(&self, key: &str, mut each: impl FnMut(&V)) {
        self.cache.informer.for_each(Selection::Key(self.index, key), &mut |object| {
            read_as(&**object, &mut each);
        });
    }

    /// Returns the objects under `key` for which `keep` is true, in arbitrary order. The cache is locked meanwhile;
    /// `keep` must not use a cache.
    pub fn filter(&self, key: &str, mut keep: impl FnMut(&V) -> bool) -> Vec<Arc<V>> {
        let mut kept = Vec::new();
        self.cache.informer.for_each(Selection::Key(self.index, key), &mut |object| {
            kept.extend(downcast::<V>(Arc::clone(object)).filter(|object| keep(object)));
        });
        kept
    }

    /// Returns all keys with the number of their objects, in arbitrary order.
    pub fn keys(&self) -> Vec<(Text, usize)> {
        self.cache.informer.keys(self.index)
    }
}
