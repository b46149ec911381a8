//! Caches of the cluster's objects (client-go: informers, listers, indexers). One reflector fills each cache.
//!
//! A [`Cache`] holds shared, immutable objects, which readers get as `Arc`s. An index is declared once and
//! always agrees with the objects. Event handlers receive every change in order, and only enqueue keys.

mod backoff;
mod caches;
mod full;
mod reflected;
mod reflector;
mod shared;
mod store;
#[cfg(test)]
mod tests;

pub use caches::Caches;
pub use full::Full;

use crate::introspect::CacheState;
use evenkeel_api::{Kind, Text, View};
use shared::Shared;
use std::{sync::Arc, time::Duration};
use store::IndexFunc;

/// Change of a cached object, as event handlers receive it.
#[doc(alias = "ResourceEventHandler")]
#[derive(Debug)]
pub enum CacheEvent<V> {
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

impl<V> CacheEvent<V> {
    /// Returns the newest state in the event.
    pub fn object(&self) -> &Arc<V> {
        match self {
            Self::Added { object, .. }
            | Self::Updated { new: object, .. }
            | Self::Deleted(object) => object,
        }
    }
}

impl<V> Clone for CacheEvent<V> {
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
    shared: Arc<Shared<V>>,
    scope: Arc<caches::Scope>,
    resync: caches::Resync,
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            scope: Arc::clone(&self.scope),
            resync: self.resync.clone(),
        }
    }
}

impl<V> std::fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl<V: View> Cache<V> {
    /// Returns the kind of the cached objects.
    pub fn kind(&self) -> &Kind {
        &self.scope.kind
    }

    /// Returns one object. `namespace` is empty for cluster-scoped objects.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        self.shared.read().get(namespace, name).cloned()
    }

    /// Returns all objects, in arbitrary order.
    pub fn list(&self) -> Vec<Arc<V>> {
        let store = self.shared.read();
        let mut all = Vec::with_capacity(store.len());
        all.extend(store.iter().cloned());
        all
    }

    /// Returns the objects of one namespace, in arbitrary order.
    pub fn namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        let store = self.shared.read();
        store.namespace(namespace).map(|table| table.iter().cloned().collect()).unwrap_or_default()
    }

    /// Counts the objects of one namespace.
    pub fn count(&self, namespace: &str) -> usize {
        self.shared.read().namespace(namespace).map_or(0, store::Table::len)
    }

    /// Counts all objects.
    pub fn len(&self) -> usize {
        self.shared.read().len()
    }

    /// Returns whether the cache has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Declares an index. `keys` calls back with each key of an object and may repeat keys. If the name is
    /// already declared, returns that index, which keeps its own `keys`.
    #[doc(alias = "AddIndexers")]
    pub fn index(&self, name: &'static str, keys: IndexFunc<V>) -> Index<V> {
        Index { shared: Arc::clone(&self.shared), index: self.shared.declare(name, keys) }
    }

    /// Adds an event handler. It first receives every cached object, then every change. It runs on the
    /// reflector's task: it may read caches and enqueue keys, but must not block or subscribe.
    #[doc(alias = "AddEventHandler")]
    pub fn subscribe(&self, handler: impl Fn(&CacheEvent<V>) + Send + Sync + 'static) {
        self.shared.subscribe(Box::new(handler));
    }

    /// Sends every object to the handlers again each `period`, as an update without a change. The shortest
    /// requested period applies.
    pub fn resync_every(&self, period: Duration) {
        self.resync.request(period);
    }

    /// Returns whether the initial list is complete.
    pub fn has_synced(&self) -> bool {
        self.shared.has_synced()
    }

    /// Waits until the initial list is complete.
    pub async fn synced(&self) {
        // The wait cannot fail, because `shared` owns the sender.
        self.shared.synced().wait().await;
    }

    /// Returns the counters and state of the cache, for introspection.
    pub fn state(&self) -> CacheState {
        self.shared.state(&self.scope)
    }

    /// Returns the newest resourceVersion of the cache, bookmarks included, or 0 before the first list.
    #[doc(alias = "LastSyncResourceVersion")]
    pub fn version(&self) -> u64 {
        self.shared.version()
    }
}

/// Index of a cache: objects by a declared key.
pub struct Index<V> {
    shared: Arc<Shared<V>>,
    index: usize,
}

impl<V> Clone for Index<V> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), index: self.index }
    }
}

impl<V> std::fmt::Debug for Index<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<V: View> Index<V> {
    /// Returns the objects under `key`, in arbitrary order.
    pub fn get(&self, key: &str) -> Vec<Arc<V>> {
        let store = self.shared.read();
        store
            .bucket(self.index, key)
            .map(|bucket| bucket.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Counts the objects under `key`.
    pub fn count(&self, key: &str) -> usize {
        self.shared.read().bucket(self.index, key).map_or(0, store::Table::len)
    }

    /// Calls `each` with the objects under `key` while the cache is locked. `each` must not use a cache.
    pub fn for_each(&self, key: &str, each: impl FnMut(&Arc<V>)) {
        if let Some(bucket) = self.shared.read().bucket(self.index, key) {
            bucket.iter().for_each(each);
        }
    }

    /// Returns all keys with the number of their objects, in arbitrary order.
    pub fn keys(&self) -> Vec<(Text, usize)> {
        self.shared.read().keys(self.index).map(|(key, count)| (key.into(), count)).collect()
    }
}
