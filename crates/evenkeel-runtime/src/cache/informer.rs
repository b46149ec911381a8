//! Cache of objects of any view: store, resourceVersion and event handlers. A reflector fills it, and typed
//! [`Cache`](super::Cache)s read it.
//!
//! Upstream: `SharedIndexInformer`.

use super::{
    CacheEvent,
    caches::{Resync, Scope},
    object::{Object, ObjectType, downcast},
    store::{Events, IndexFunc, Selection, Store, Table, same_version},
};
use crate::{clock::Clock, introspect::CacheState, latch::Latch, tasks::catch_call_panic};
use evenkeel_api::{
    DecodeError, Encoding, Text, View,
    views::{Identity, IdentityMeta},
};
use prometheus::{Histogram, IntGauge};
use std::{
    any::TypeId,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Event handler of a cache.
type Handler = Box<dyn Fn(&CacheEvent<dyn Object>) + Send + Sync>;

pub(crate) struct Informer {
    scope: Scope,
    object_type: ObjectType,
    clock: Clock,
    store: RwLock<Store>,
    /// Written while the store is locked, so that the store contains every object up to this version.
    version: AtomicU64,
    synced: Latch,
    /// Whether the server may not serve the kind yet.
    optional: AtomicBool,
    /// Locked during a change and its notifications, so that every handler receives every change once and in
    /// order.
    handlers: Mutex<Vec<Handler>>,
    resync_period: Resync,
    /// Error of the last list or watch; `None` while the watch is open.
    watch_error: Mutex<Option<Box<str>>>,
    gauges: Gauges,
}

/// Metrics of one informer.
pub(super) struct Gauges {
    pub(super) queued_items: IntGauge,
    pub(super) resource_version: IntGauge,
    pub(super) processing_latency: Histogram,
}

impl Informer {
    pub(super) fn new(scope: Scope, object_type: ObjectType, clock: Clock, gauges: Gauges) -> Self {
        Self {
            scope,
            object_type,
            clock,
            store: RwLock::new(Store::new()),
            version: AtomicU64::new(0),
            synced: Latch::default(),
            optional: AtomicBool::new(false),
            handlers: Mutex::default(),
            resync_period: Resync::new(),
            watch_error: Mutex::default(),
            gauges,
        }
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn object_type(&self) -> &ObjectType {
        &self.object_type
    }

    pub(crate) fn resync_period(&self) -> &Resync {
        &self.resync_period
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<dyn Object>> {
        self.read().get(namespace, name).cloned()
    }

    /// Returns an object as its view, or `None` also if the cache holds another view.
    pub(crate) fn get_as<V: View>(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        if !self.holds::<V>() {
            return None;
        }
        downcast(self.get(namespace, name)?)
    }

    /// Returns whether the objects are of this view.
    pub(crate) fn holds<V: View>(&self) -> bool {
        self.object_type.id == TypeId::of::<V>()
    }

    /// Counts the selected objects.
    pub(super) fn count(&self, selection: Selection<'_>) -> usize {
        self.read().count(selection)
    }

    /// Calls `each` with the selected objects while the store is locked.
    pub(super) fn for_each(
        &self,
        selection: Selection<'_>,
        each: &mut dyn FnMut(&Arc<dyn Object>),
    ) {
        self.read().for_each(selection, each);
    }

    /// Returns the keys of an index with the number of their objects.
    pub(super) fn keys(&self, index: usize) -> Vec<(Text, usize)> {
        self.read().keys(index).map(|(key, count)| (key.into(), count)).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.synced.is_set()
    }

    pub(crate) fn mark_optional(&self) {
        self.optional.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_optional(&self) -> bool {
        self.optional.load(Ordering::Relaxed)
    }

    /// Returns whether readers need not wait: the cache has synced or is optional.
    pub(super) fn is_ready(&self) -> bool {
        self.has_synced() || self.is_optional()
    }

    pub(crate) fn synced(&self) -> &Latch {
        &self.synced
    }

    /// Sets or clears the error of the last list or watch. Returns whether it changed.
    pub(crate) fn set_watch_error(&self, watch_error: Option<&str>) -> bool {
        let mut current = self.watch_error.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = current.as_deref() != watch_error;
        if changed {
            *current = watch_error.map(Box::from);
        }
        changed
    }

    /// Returns the counters and state of the cache, for introspection.
    pub(crate) fn state(&self) -> CacheState {
        let scope = &self.scope;
        let kind = &scope.kind;
        let dot = if kind.group.is_empty() { "" } else { "." };
        let watch_error = self.watch_error.lock().unwrap_or_else(PoisonError::into_inner);
        CacheState {
            resource: format!("{}{dot}{}", kind.plural, kind.group),
            labels: scope.labels.clone(),
            fields: scope.fields.clone(),
            metadata_only: self.object_type.is_metadata(),
            objects: self.read().len(),
            resource_version: self.version(),
            synced: self.has_synced(),
            trouble: watch_error.as_deref().map(str::to_owned),
        }
    }

    pub(crate) fn declare(&self, name: &'static str, keys: IndexFunc) -> usize {
        self.store.write().unwrap_or_else(PoisonError::into_inner).declare(name, keys)
    }

    /// Adds a handler. It first receives the cached objects.
    pub(crate) fn subscribe(&self, handler: Handler) {
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        for object in self.snapshot() {
            notify(&handler, &CacheEvent::Added { object, initial: true });
        }
        handlers.push(handler);
    }

    /// Returns all cached objects.
    pub(crate) fn snapshot(&self) -> Vec<Arc<dyn Object>> {
        self.read().iter().cloned().collect()
    }

    /// Stores an object's current state and returns its resourceVersion.
    pub(super) fn upsert(&self, object: &[u8], encoding: Encoding) -> Result<Text, DecodeError> {
        let object = self.object_type.decode(object, encoding)?;
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
            None => self.object_type.decode(object, encoding)?,
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
        let store = self.read();
        let stored = store.get(&object.namespace, &object.name)?;
        (stored.meta().uid == object.uid).then(|| Arc::clone(stored))
    }

    /// Removes an object when only its name could be decoded.
    pub(crate) fn delete_named(&self, namespace: &str, name: &str, version: u64) {
        self.change(version, |store| store.delete(namespace, name, None));
    }

    /// Sets the number of objects that were read but are not yet in the store.
    pub(crate) fn set_queued_items(&self, count: usize) {
        self.gauges.queued_items.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Replaces the store's content by `objects`, which are those of `version`.
    pub(crate) fn replace(&self, objects: Table, version: u64) {
        let initial = !self.has_synced();
        self.change(version, |store| store.replace(objects, initial));
        self.synced.set();
    }

    /// Records a bookmark: the store is current up to this version.
    pub(crate) fn set_resource_version(&self, version: u64) {
        self.change(version, |_| Events::new());
    }

    /// Sends every object to the handlers again.
    pub(crate) fn resync(&self) {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        for object in self.snapshot() {
            let event = CacheEvent::Updated { old: Arc::clone(&object), new: object };
            handlers.iter().for_each(|handler| notify(handler, &event));
        }
    }

    /// Returns the cached object if it has the same version. An object that is decoded twice is then stored
    /// once.
    pub(super) fn stored_version(&self, object: &dyn Object) -> Option<Arc<dyn Object>> {
        let store = self.read();
        let stored = store.get(&object.meta().namespace, &object.meta().name)?;
        same_version(&**stored, object).then(|| Arc::clone(stored))
    }

    /// Changes the store, sets its version unless that is 0, and sends the events of the change to the handlers.
    fn change(&self, version: u64, change: impl FnOnce(&mut Store) -> Events) {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let events = {
            let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
            let events = change(&mut store);
            if version != 0 {
                self.version.store(version, Ordering::Release);
            }
            events
        };
        self.publish(&handlers, &events, version);
    }

    /// Sends the events of a change to the handlers.
    fn publish(&self, handlers: &[Handler], events: &[CacheEvent<dyn Object>], version: u64) {
        if version != 0 {
            self.gauges.resource_version.set(i64::try_from(version).unwrap_or(i64::MAX));
        }
        if events.is_empty() {
            return;
        }
        let start = self.clock.instant();
        for event in events {
            handlers.iter().for_each(|handler| notify(handler, event));
        }
        self.gauges.processing_latency.observe(start.elapsed().as_secs_f64());
    }
}

/// Returns an object's resourceVersion, as text and as a number.
fn version_of(object: &dyn Object) -> (Text, u64) {
    let meta = object.meta();
    (meta.resource_version.clone(), meta.version())
}

/// Calls a handler. If it panics, the panic is logged, and the other handlers still run.
fn notify(handler: &Handler, event: &CacheEvent<dyn Object>) {
    if let Err(panic) = catch_call_panic(|| handler(event)) {
        tracing::error!(panic, "a cache's event handler panicked");
    }
}
