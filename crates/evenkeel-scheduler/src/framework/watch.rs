//! Caches of kinds other than pods and nodes, and the notification of plugins about their changes.

use evenkeel_api::{
    View,
    views::{
        CsiDriver, CsiNode, CsiStorageCapacity, DeviceClass, DeviceTaintRule, PersistentVolume,
        PersistentVolumeClaim, ResourceClaim, ResourceSlice, StorageClass, VolumeAttachment,
    },
};
use evenkeel_runtime::cache::{Cache, CacheEvent, Caches};
use std::{
    any::{Any, TypeId},
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Delta, ObjectChange, PluginFuture};

/// A kind whose changes plugins can register for.
pub trait Watched: View {
    /// Wraps a change of an object of this kind.
    fn change(edit: Delta<Arc<Self>>) -> ObjectChange;
}

macro_rules! watched {
    ($($kind:ident),*) => {
        $(impl Watched for $kind {
            fn change(edit: Delta<Arc<Self>>) -> ObjectChange {
                ObjectChange::$kind(edit)
            }
        })*
    };
}

watched!(
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    DeviceTaintRule,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass
);

/// Converts a cache event to a change of the object.
fn edit_of<V>(event: &CacheEvent<V>) -> Delta<Arc<V>> {
    match event {
        CacheEvent::Added { object, .. } => Delta::Added(Arc::clone(object)),
        CacheEvent::Updated { old, new } => {
            Delta::Updated { old: Arc::clone(old), new: Arc::clone(new) }
        }
        CacheEvent::Deleted(object) => Delta::Deleted(Arc::clone(object)),
    }
}

/// Caches that plugins requested, the channel for their changes, and the state that profiles share.
pub(crate) struct Watches {
    sender: UnboundedSender<ObjectChange>,
    requests: Mutex<CacheRequests>,
    shared: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// Caches that plugins requested so far.
#[derive(Default)]
struct CacheRequests {
    /// Kinds whose changes the scheduler receives.
    watched_kinds: HashSet<TypeId>,
    syncs: Vec<PluginFuture<'static, ()>>,
    /// Subscriptions that start once all plugins are connected.
    deferred: Vec<Box<dyn FnOnce() + Send>>,
    plugins_are_connected: bool,
}

impl Watches {
    /// Creates an empty set of caches, and the receiver of their changes.
    pub(crate) fn new() -> (Self, UnboundedReceiver<ObjectChange>) {
        let (sender, receiver) = unbounded_channel();
        (Self { sender, requests: Mutex::default(), shared: Mutex::default() }, receiver)
    }

    /// Returns the cache of a kind. The first call for a kind subscribes to its changes.
    pub(crate) fn watch<V: Watched>(&self, caches: &Caches) -> Cache<V> {
        let cache = caches.of::<V>();
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.watched_kinds.insert(TypeId::of::<V>()) {
            let sender = self.sender.clone();
            let source = cache.clone();
            // The send only fails after the scheduler has stopped.
            let subscribe = move || {
                source.subscribe(move |event| drop(sender.send(V::change(edit_of(event)))));
            };
            if requests.plugins_are_connected {
                subscribe();
            } else {
                requests.deferred.push(Box::new(subscribe));
            }
            let cache_to_sync = cache.clone();
            requests.syncs.push(Box::pin(async move { cache_to_sync.synced().await }));
        }
        cache
    }

    /// Subscribes to the watched kinds, once all plugins have subscribed their own handlers. A plugin therefore handles
    /// a change before the queue retries a pod because of it.
    pub(crate) fn start_deferred_subscriptions(&self) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.plugins_are_connected = true;
        let deferred = std::mem::take(&mut requests.deferred);
        drop(requests);
        deferred.into_iter().for_each(|subscribe| subscribe());
    }

    /// Returns the cache of a kind. The first attempt waits until the cache is synced.
    pub(crate) fn lister<V: View>(&self, caches: &Caches) -> Cache<V> {
        let cache = caches.of::<V>();
        let cache_to_sync = cache.clone();
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.syncs.push(Box::pin(async move { cache_to_sync.synced().await }));
        cache
    }

    /// Returns the state of type `T` that the plugins of all profiles share.
    pub(crate) fn shared<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let state = shared.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        Arc::clone(state).downcast().unwrap_or_default()
    }

    /// Takes the futures that resolve when the requested caches are synced.
    pub(crate) fn take_syncs(&self) -> Vec<PluginFuture<'static, ()>> {
        std::mem::take(&mut self.requests.lock().unwrap_or_else(PoisonError::into_inner).syncs)
    }
}
