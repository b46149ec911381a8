//! Parts of a cache: the objects that one reflector lists and watches. A cache of several namespaces has one part for each;
//! every other cache has a single part.

use super::{
    caches::Scope,
    informer::Informer,
    object::{Object, ObjectType},
    store::{Events, Selection, Table},
};
use crate::sharding::ShardedCache;
use evenkeel_api::{
    DecodeError, Encoding, Text,
    views::{Identity, IdentityMeta},
};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
};

/// State of one part of a cache.
#[derive(Default)]
pub(super) struct Part {
    /// Version up to which the part is current. It is written while the store is locked, so that the store contains every
    /// object of the part up to this version.
    pub(super) version: AtomicU64,
    /// Whether the initial list is complete.
    pub(super) synced: AtomicBool,
    /// Number of objects that were read but are not yet in the store.
    queued: AtomicI64,
    /// Error of the last list or watch; `None` while the watch is open.
    watch_error: Mutex<Option<Box<str>>>,
}

impl Part {
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn watch_error(&self) -> Option<String> {
        let error = self.watch_error.lock().unwrap_or_else(PoisonError::into_inner);
        error.as_deref().map(str::to_owned)
    }
}

/// One part of an informer, from the view of the reflector that fills it.
#[derive(Clone)]
pub(super) struct Feed {
    informer: Arc<Informer>,
    index: usize,
}

impl Feed {
    /// Returns the feeds of all parts of an informer.
    pub(super) fn all(informer: &Arc<Informer>) -> Vec<Self> {
        let indexes = 0..informer.parts().len();
        indexes.map(|index| Self { informer: Arc::clone(informer), index }).collect()
    }

    pub(super) fn scope(&self) -> &Scope {
        self.informer.scope()
    }

    /// Returns the namespace of the part, or an empty one for all namespaces.
    pub(super) fn namespace(&self) -> &str {
        &self.scope().namespaces[self.index]
    }

    pub(super) fn object_type(&self) -> &ObjectType {
        self.informer.object_type()
    }

    /// Returns the handle of a part that holds only the objects of the shards of this process.
    pub(super) fn sharding(&self) -> Option<Arc<ShardedCache>> {
        self.informer.sharding(self.index)
    }

    /// Returns whether the server may not serve the kind yet.
    pub(super) fn is_optional(&self) -> bool {
        self.informer.is_optional()
    }

    /// Returns the cached objects of the part.
    pub(super) fn objects(&self) -> Vec<Arc<dyn Object>> {
        let selection = match self.namespace() {
            "" => Selection::All,
            namespace => Selection::Namespace(namespace),
        };
        let mut objects = Vec::with_capacity(self.informer.count(selection));
        self.informer.for_each(selection, &mut |object| objects.push(Arc::clone(object)));
        objects
    }

    fn part(&self) -> &Part {
        &self.informer.parts()[self.index]
    }

    /// Sets or clears the error of the last list or watch. Returns whether it changed.
    pub(super) fn set_watch_error(&self, watch_error: Option<&str>) -> bool {
        let mut current = self.part().watch_error.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = current.as_deref() != watch_error;
        if changed {
            *current = watch_error.map(Box::from);
        }
        changed
    }

    /// Sets the number of objects that were read but are not yet in the store.
    pub(super) fn set_queued_items(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let before = self.part().queued.swap(count, Ordering::Relaxed);
        self.informer.gauges().queued_items.add(count - before);
    }

    /// Returns the cached object if it has the same version, as [`Informer::stored_version`] does.
    pub(super) fn stored_version(&self, object: &dyn Object) -> Option<Arc<dyn Object>> {
        self.informer.stored_version(object)
    }

    /// Stores an object's current state and returns its resourceVersion.
    pub(super) fn upsert(&self, object: &[u8], encoding: Encoding) -> Result<Text, DecodeError> {
        let object = self.informer.decode_event(object, encoding)?;
        let (version, number) = version_of(&*object);
        self.change(number, |store| store.upsert(object, false));
        Ok(version)
    }

    /// Removes an object, given its last state, and returns its resourceVersion.
    ///
    /// If possible, only decodes the object's identity. The cached object is its last state, because the watch sent
    /// every change before the deletion.
    pub(super) fn delete(&self, object: &[u8], encoding: Encoding) -> Result<Text, DecodeError> {
        let last = Identity::decode(object, encoding).ok().and_then(|Identity { meta }| {
            self.stored_identity(&meta)?.at_version(&meta.resource_version)
        });
        let last = match last {
            Some(last) => last,
            None => self.object_type().decode(object, encoding)?,
        };
        let (version, number) = version_of(&*last);
        self.change(number, |store| {
            let meta = last.meta();
            store.delete(&meta.namespace, &meta.name, Some(Arc::clone(&last)))
        });
        Ok(version)
    }

    /// Returns the cached object with this identity, in any version.
    fn stored_identity(&self, object: &IdentityMeta) -> Option<Arc<dyn Object>> {
        let stored = self.informer.get(&object.namespace, &object.name)?;
        (stored.meta().uid == object.uid).then_some(stored)
    }

    /// Removes an object when only its name could be decoded.
    pub(super) fn delete_named(&self, namespace: &str, name: &str, version: u64) {
        self.change(version, |store| store.delete(namespace, name, None));
    }

    /// Replaces the part's content by `objects`, which are current at `version`.
    pub(super) fn replace(&self, objects: Table, version: u64) {
        let initial = !self.part().synced.load(Ordering::SeqCst);
        let namespace = self.namespace();
        self.change(version, |store| store.replace(namespace, objects, initial));
        // If two parts sync at the same time, at least one of them must see both as synced.
        self.part().synced.store(true, Ordering::SeqCst);
        self.informer.set_synced();
    }

    /// Records a bookmark: the part is current up to this version.
    pub(super) fn set_resource_version(&self, version: u64) {
        self.change(version, |_| Events::new());
    }

    fn change(&self, version: u64, change: impl FnOnce(&mut super::store::Store) -> Events) {
        self.informer.change(self.index, version, change);
    }
}

/// Returns an object's resourceVersion, as a string and as a number.
fn version_of(object: &dyn Object) -> (Text, u64) {
    let meta = object.meta();
    (meta.resource_version.clone(), meta.version())
}
