//! State that a reflector shares with the cache's readers: store, resourceVersion and event handlers.

use super::{
    CacheEvent,
    caches::Scope,
    store::{Events, Store, Table, same_version},
};
use crate::{
    client::Metadata, clock::Clock, introspect::CacheState, latch::Latch, tasks::catch_call_panic,
};
use evenkeel_api::{View, views::IdentityMeta};
use prometheus::{Histogram, IntGauge};
use std::{
    any::TypeId,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

type Handler<V> = Box<dyn Fn(&CacheEvent<V>) + Send + Sync>;

pub(crate) struct Shared<V> {
    clock: Clock,
    store: RwLock<Store<V>>,
    /// Written while the store is locked, so that the store contains every object up to this version.
    version: AtomicU64,
    synced: Latch,
    /// Locked during a change and its notifications, so that every handler receives every change once and in
    /// order.
    handlers: Mutex<Vec<Handler<V>>>,
    /// Error of the last list or watch; `None` while the watch is open.
    watch_error: Mutex<Option<Box<str>>>,
    queued_items_gauge: IntGauge,
    resource_version_gauge: IntGauge,
    processing_latency: Histogram,
}

impl<V: View> Shared<V> {
    pub(crate) fn new(
        clock: Clock,
        queued_items_gauge: IntGauge,
        resource_version_gauge: IntGauge,
        processing_latency: Histogram,
    ) -> Self {
        Self {
            clock,
            store: RwLock::new(Store::new()),
            version: AtomicU64::new(0),
            synced: Latch::default(),
            handlers: Mutex::default(),
            watch_error: Mutex::default(),
            queued_items_gauge,
            resource_version_gauge,
            processing_latency,
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Store<V>> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.synced.is_set()
    }

    pub(crate) fn synced(&self) -> &Latch {
        &self.synced
    }

    /// Sets or clears the error of the last list or watch.
    pub(crate) fn set_watch_error(&self, watch_error: Option<&str>) {
        *self.watch_error.lock().unwrap_or_else(PoisonError::into_inner) =
            watch_error.map(Box::from);
    }

    pub(crate) fn state(&self, scope: &Scope) -> CacheState {
        let kind = &scope.kind;
        let dot = if kind.group.is_empty() { "" } else { "." };
        let watch_error = self.watch_error.lock().unwrap_or_else(PoisonError::into_inner);
        CacheState {
            resource: format!("{}{dot}{}", kind.plural, kind.group),
            labels: scope.labels.clone(),
            fields: scope.fields.clone(),
            metadata_only: TypeId::of::<V>() == TypeId::of::<Metadata>(),
            objects: self.read().len(),
            resource_version: self.version(),
            synced: self.has_synced(),
            trouble: watch_error.as_deref().map(str::to_owned),
        }
    }

    pub(crate) fn declare(&self, name: &'static str, keys: super::store::IndexFunc<V>) -> usize {
        self.store.write().unwrap_or_else(PoisonError::into_inner).declare(name, keys)
    }

    /// Adds a handler. It first receives the cached objects.
    pub(crate) fn subscribe(&self, handler: Handler<V>) {
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let present: Vec<Arc<V>> = self.read().iter().cloned().collect();
        for object in present {
            notify(&handler, &CacheEvent::Added { object, initial: true });
        }
        handlers.push(handler);
    }

    /// Stores an object's current state.
    pub(crate) fn upsert(&self, object: Arc<V>) {
        let version = object.meta().version();
        self.change(version, |store| store.upsert(object, false));
    }

    /// Removes an object. `object` is its last state.
    pub(crate) fn delete(&self, object: &Arc<V>) {
        let version = object.meta().version();
        self.change(version, |store| {
            let meta = object.meta();
            store.delete(&meta.namespace, &meta.name, Some(Arc::clone(object)))
        });
    }

    /// Returns the cached object with this identity, in any version.
    pub(crate) fn stored_identity(&self, object: &IdentityMeta) -> Option<Arc<V>> {
        let store = self.read();
        let held = store.get(&object.namespace, &object.name)?;
        (held.meta().uid == object.uid).then(|| Arc::clone(held))
    }

    /// Removes an object when only its name could be decoded.
    pub(crate) fn delete_named(&self, namespace: &str, name: &str, version: u64) {
        self.change(version, |store| store.delete(namespace, name, None));
    }

    /// Sets the number of objects that were read but are not yet in the store.
    pub(crate) fn queued(&self, n: usize) {
        self.queued_items_gauge.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// Replaces the store's content by `now`.
    pub(crate) fn replace(&self, now: Table<V>, version: u64) {
        let initial = !self.has_synced();
        self.change(version, |store| store.replace(now, initial));
        self.synced.set();
    }

    /// Records a bookmark: the store is current up to this version.
    pub(crate) fn set_resource_version(&self, version: u64) {
        self.change(version, |_| Events::new());
    }

    /// Sends every object to the handlers again.
    pub(crate) fn resync(&self) {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let present: Vec<Arc<V>> = self.read().iter().cloned().collect();
        for object in present {
            let event = CacheEvent::Updated { old: Arc::clone(&object), new: object };
            handlers.iter().for_each(|handler| notify(handler, &event));
        }
    }

    /// Returns the cached object if it has the same version. An object that is decoded twice is then stored
    /// once.
    pub(crate) fn stored_version(&self, object: &V) -> Option<Arc<V>> {
        let store = self.read();
        let held = store.get(&object.meta().namespace, &object.meta().name)?;
        same_version(&**held, object).then(|| Arc::clone(held))
    }

    fn change(&self, version: u64, change: impl FnOnce(&mut Store<V>) -> Events<V>) {
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
    fn publish(&self, handlers: &[Handler<V>], events: &[CacheEvent<V>], version: u64) {
        if version != 0 {
            self.resource_version_gauge.set(i64::try_from(version).unwrap_or(i64::MAX));
        }
        if events.is_empty() {
            return;
        }
        let start = self.clock.instant();
        for event in events {
            handlers.iter().for_each(|handler| notify(handler, event));
        }
        self.processing_latency.observe(start.elapsed().as_secs_f64());
    }
}

/// Calls a handler. If it panics, the panic is logged, and the other handlers still run.
fn notify<V>(handler: &Handler<V>, event: &CacheEvent<V>) {
    if let Err(panic) = catch_call_panic(|| handler(event)) {
        tracing::error!(panic, "a cache's event handler panicked");
    }
}
