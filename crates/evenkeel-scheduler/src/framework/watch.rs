//! Kinds beside pods and nodes: how plugins come by their objects, and are asked about their changes.

use evenkeel_api::{
    View,
    views::{
        CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim,
        StorageClass, VolumeAttachment,
    },
};
use evenkeel_runtime::cache::{Cache, CacheEvent, Caches};
use std::{
    any::TypeId,
    collections::HashSet,
    sync::{Mutex, PoisonError},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Change, Edit, ObjectChange, Pending};

/// A kind whose changes plugins are asked about.
pub trait Watched: View {
    /// What plugins are asked.
    fn change(edit: Edit<'_, Self>) -> ObjectChange<'_>;
}

macro_rules! watched {
    ($($kind:ident),*) => {
        $(impl Watched for $kind {
            fn change(edit: Edit<'_, Self>) -> ObjectChange<'_> {
                ObjectChange::$kind(edit)
            }
        })*
    };
}

watched!(CsiNode, CsiDriver, CsiStorageCapacity, VolumeAttachment);

impl Watched for PersistentVolumeClaim {
    fn change(edit: Edit<'_, Self>) -> ObjectChange<'_> {
        ObjectChange::Claim(edit)
    }
}

impl Watched for PersistentVolume {
    fn change(edit: Edit<'_, Self>) -> ObjectChange<'_> {
        ObjectChange::Volume(edit)
    }
}

impl Watched for StorageClass {
    fn change(edit: Edit<'_, Self>) -> ObjectChange<'_> {
        ObjectChange::Class(edit)
    }
}

/// A change of an object on its way to the scheduler's loop.
pub(crate) trait Told: Send {
    /// What plugins are asked.
    fn change(&self) -> Change<'_>;
}

impl<V: Watched> Told for CacheEvent<V> {
    fn change(&self) -> Change<'_> {
        Change::Object(V::change(match self {
            Self::Added { object, .. } => Edit::Added(&**object),
            Self::Updated { old, new } => Edit::Updated { old: &**old, new: &**new },
            Self::Deleted(object) => Edit::Deleted(&**object),
        }))
    }
}

/// Where changes of watched kinds go, and what must be complete before the first pod is tried.
pub(crate) struct Watches {
    sender: UnboundedSender<Box<dyn Told>>,
    watched: Mutex<(HashSet<TypeId>, Vec<Pending<'static, ()>>)>,
}

impl Watches {
    /// The changes come out of the receiver.
    pub(crate) fn new() -> (Self, UnboundedReceiver<Box<dyn Told>>) {
        let (sender, receiver) = unbounded_channel();
        (Self { sender, watched: Mutex::default() }, receiver)
    }

    /// The cache of a kind whose changes are told from now on, once however often it is asked for.
    pub(crate) fn watch<V: Watched>(&self, caches: &Caches) -> Cache<V> {
        let cache = caches.of::<V>();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.0.insert(TypeId::of::<V>()) {
            let sender = self.sender.clone();
            // Sending fails once the scheduler has ended; then nobody needs to know.
            cache.subscribe(move |event| drop(sender.send(Box::new(event.clone()))));
            let waits = cache.clone();
            watched.1.push(Box::pin(async move { waits.synced().await }));
        }
        cache
    }

    /// What to wait for before the first pod is tried.
    pub(crate) fn syncs(&self) -> Vec<Pending<'static, ()>> {
        std::mem::take(&mut self.watched.lock().unwrap_or_else(PoisonError::into_inner).1)
    }
}
