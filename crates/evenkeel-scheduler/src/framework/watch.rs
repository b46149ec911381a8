//! Kinds beside pods and nodes: how plugins come by their objects, and are asked about their changes.

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

use super::{Edit, ObjectChange, Pending};

/// A kind whose changes plugins are asked about.
pub trait Watched: View {
    /// What plugins are asked.
    fn change(edit: Edit<Arc<Self>>) -> ObjectChange;
}

macro_rules! watched {
    ($($kind:ident),*) => {
        $(impl Watched for $kind {
            fn change(edit: Edit<Arc<Self>>) -> ObjectChange {
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
    DeviceTaintRule
);

impl Watched for PersistentVolumeClaim {
    fn change(edit: Edit<Arc<Self>>) -> ObjectChange {
        ObjectChange::Claim(edit)
    }
}

impl Watched for PersistentVolume {
    fn change(edit: Edit<Arc<Self>>) -> ObjectChange {
        ObjectChange::Volume(edit)
    }
}

impl Watched for StorageClass {
    fn change(edit: Edit<Arc<Self>>) -> ObjectChange {
        ObjectChange::Class(edit)
    }
}

fn edit<V>(event: &CacheEvent<V>) -> Edit<Arc<V>> {
    match event {
        CacheEvent::Added { object, .. } => Edit::Added(Arc::clone(object)),
        CacheEvent::Updated { old, new } => {
            Edit::Updated { old: Arc::clone(old), new: Arc::clone(new) }
        }
        CacheEvent::Deleted(object) => Edit::Deleted(Arc::clone(object)),
    }
}

/// Where changes of watched kinds go, and what must be complete before the first pod is tried.
pub(crate) struct Watches {
    sender: UnboundedSender<ObjectChange>,
    watched: Mutex<Asked>,
    shared: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// What plugins asked for.
#[derive(Default)]
struct Asked {
    kinds: HashSet<TypeId>,
    syncs: Vec<Pending<'static, ()>>,
    /// What begins to tell of changes once all plugins are connected; nothing is put off after that.
    later: Vec<Box<dyn FnOnce() + Send>>,
    connected: bool,
}

impl Watches {
    /// The changes come out of the receiver.
    pub(crate) fn new() -> (Self, UnboundedReceiver<ObjectChange>) {
        let (sender, receiver) = unbounded_channel();
        (Self { sender, watched: Mutex::default(), shared: Mutex::default() }, receiver)
    }

    /// The cache of a kind whose changes are told, once however often it is asked for.
    pub(crate) fn watch<V: Watched>(&self, caches: &Caches) -> Cache<V> {
        let cache = caches.of::<V>();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.kinds.insert(TypeId::of::<V>()) {
            let (sender, told) = (self.sender.clone(), cache.clone());
            // Sending fails once the scheduler has ended; then nobody needs to know.
            let tell = move || {
                told.subscribe(move |event| drop(sender.send(V::change(edit(event)))));
            };
            if watched.connected {
                tell();
            } else {
                watched.later.push(Box::new(tell));
            }
            let waits = cache.clone();
            watched.syncs.push(Box::pin(async move { waits.synced().await }));
        }
        cache
    }

    /// All plugins are connected: changes are told from now on, each after the plugins' own handlers have heard of it, so that
    /// no pod is tried before they know why.
    pub(crate) fn open(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.connected = true;
        let later = std::mem::take(&mut watched.later);
        drop(watched);
        later.into_iter().for_each(|tell| tell());
    }

    /// The cache of a kind that is filled before the first pod is tried.
    pub(crate) fn filled<V: View>(&self, caches: &Caches) -> Cache<V> {
        let cache = caches.of::<V>();
        let waits = cache.clone();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.syncs.push(Box::pin(async move { waits.synced().await }));
        cache
    }

    /// What the plugins of all profiles know together, one of each type.
    pub(crate) fn shared<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let one = shared.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        Arc::clone(one).downcast().unwrap_or_default()
    }

    /// What to wait for before the first pod is tried.
    pub(crate) fn syncs(&self) -> Vec<Pending<'static, ()>> {
        std::mem::take(&mut self.watched.lock().unwrap_or_else(PoisonError::into_inner).syncs)
    }
}
