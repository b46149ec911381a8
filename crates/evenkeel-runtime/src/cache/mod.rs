//! What the cluster looks like, kept up to date: one reflector per type, however many read it.
//!
//! A [`Cache`] holds shared, immutable objects. Readers take `Arc`s out; nobody can change what others see. Indexes are
//! declared once and always agree with the objects. Handlers hear of every change, in order, and only enqueue.

mod backoff;
mod caches;
mod full;
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
use store::KeysOf;

/// A change of a cached object.
#[derive(Debug)]
pub enum CacheEvent<V> {
    /// It is new here.
    Added {
        /// As it is.
        object: Arc<V>,
        /// It was there before the cache (or the handler) was: no hurry.
        initial: bool,
    },
    /// It changed. In a resync, both are the same.
    Updated {
        /// As it was.
        old: Arc<V>,
        /// As it is.
        new: Arc<V>,
    },
    /// It is gone; this is its last known state.
    Deleted(Arc<V>),
}

impl<V> CacheEvent<V> {
    /// The newest state that the event knows.
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

/// The objects of one type. Clones share them.
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
    /// Which resource it holds.
    pub fn kind(&self) -> &Kind {
        &self.scope.kind
    }

    /// One object; `namespace` is empty for cluster-scoped ones.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        self.shared.read().get(namespace, name).cloned()
    }

    /// All objects, in an order without meaning.
    pub fn list(&self) -> Vec<Arc<V>> {
        let store = self.shared.read();
        let mut all = Vec::with_capacity(store.len());
        all.extend(store.iter().cloned());
        all
    }

    /// The objects of one namespace, in an order without meaning.
    pub fn namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        let store = self.shared.read();
        store.namespace(namespace).map(|table| table.iter().cloned().collect()).unwrap_or_default()
    }

    /// How many objects one namespace has.
    pub fn count(&self, namespace: &str) -> usize {
        self.shared.read().namespace(namespace).map_or(0, store::Table::len)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Declares an index: `keys` says under which keys an object is found (no matter if it says one twice). A name that
    /// was declared before gives that index; its `keys` stay as they are.
    pub fn index(&self, name: &'static str, keys: KeysOf<V>) -> Index<V> {
        Index { shared: Arc::clone(&self.shared), at: self.shared.declare(name, keys) }
    }

    /// Calls `handler` with every change from now on, and before that with every object that is already there. It runs on
    /// the reflector's task while others wait: it may read caches and enqueue keys, and must not block or subscribe.
    pub fn subscribe(&self, handler: impl Fn(&CacheEvent<V>) + Send + Sync + 'static) {
        self.shared.subscribe(Box::new(handler));
    }

    /// Tells handlers of every object again, as an update without a change, each `period`. The shortest period asked for
    /// holds.
    pub fn resync_every(&self, period: Duration) {
        self.resync.ask(period);
    }

    /// Whether the initial state is complete.
    pub fn has_synced(&self) -> bool {
        self.shared.has_synced()
    }

    /// Waits until the initial state is complete.
    pub async fn synced(&self) {
        // The sender lives in `shared`, so that waiting cannot fail.
        self.shared.synced().wait().await;
    }

    /// What there is to know of it.
    pub fn state(&self) -> CacheState {
        self.shared.state(&self.scope)
    }

    /// The newest resource version that is in here, bookmarks included; 0 before there is one.
    pub fn version(&self) -> u64 {
        self.shared.version()
    }
}

/// Objects of a cache by a declared key.
pub struct Index<V> {
    shared: Arc<Shared<V>>,
    at: usize,
}

impl<V> Clone for Index<V> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), at: self.at }
    }
}

impl<V> std::fmt::Debug for Index<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("at", &self.at).finish_non_exhaustive()
    }
}

impl<V: View> Index<V> {
    /// The objects under `key`, in an order without meaning.
    pub fn get(&self, key: &str) -> Vec<Arc<V>> {
        let store = self.shared.read();
        store
            .bucket(self.at, key)
            .map(|bucket| bucket.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// How many objects are under `key`.
    pub fn count(&self, key: &str) -> usize {
        self.shared.read().bucket(self.at, key).map_or(0, store::Table::len)
    }

    /// Calls `each` with the objects under `key`, with the cache locked: no cache may be used in it.
    pub fn for_each(&self, key: &str, each: impl FnMut(&Arc<V>)) {
        if let Some(bucket) = self.shared.read().bucket(self.at, key) {
            bucket.iter().for_each(each);
        }
    }

    /// All keys with how many objects each has, in an order without meaning.
    pub fn keys(&self) -> Vec<(Text, usize)> {
        self.shared.read().keys(self.at).map(|(key, count)| (key.into(), count)).collect()
    }
}
