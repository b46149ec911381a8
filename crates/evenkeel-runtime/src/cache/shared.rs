//! What a reflector writes and its readers read: store, version, handlers.

use super::{
    CacheEvent,
    caches::Scope,
    store::{Events, Store, Table, same_version},
};
use crate::{client::Metadata, introspect::CacheState, latch::Latch, tasks::panic_text};
use evenkeel_api::{View, views::IdentityMeta};
use prometheus::{Histogram, IntGauge};
use std::{
    any::TypeId,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::time::Instant;

type Handler<V> = Box<dyn Fn(&CacheEvent<V>) + Send + Sync>;

pub(crate) struct Shared<V> {
    store: RwLock<Store<V>>,
    /// Written with the store's lock held, so that who reads a version finds its objects.
    version: AtomicU64,
    synced: Latch,
    /// Held while a change is made and told, so that every handler hears every change once and in order.
    handlers: Mutex<Vec<Handler<V>>>,
    /// Why the server is not followed just now.
    trouble: Mutex<Option<Box<str>>>,
    shown_queued: IntGauge,
    shown_version: IntGauge,
    told_seconds: Histogram,
}

impl<V: View> Shared<V> {
    pub(crate) fn new(
        shown_queued: IntGauge,
        shown_version: IntGauge,
        told_seconds: Histogram,
    ) -> Self {
        Self {
            store: RwLock::new(Store::new()),
            version: AtomicU64::new(0),
            synced: Latch::default(),
            handlers: Mutex::default(),
            trouble: Mutex::default(),
            shown_queued,
            shown_version,
            told_seconds,
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

    /// Says why the server cannot be followed, or that it is.
    pub(crate) fn set_trouble(&self, trouble: Option<&str>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble.map(Box::from);
    }

    pub(crate) fn state(&self, scope: &Scope) -> CacheState {
        let kind = &scope.kind;
        let dot = if kind.group.is_empty() { "" } else { "." };
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        CacheState {
            resource: format!("{}{dot}{}", kind.plural, kind.group),
            labels: scope.labels.clone(),
            fields: scope.fields.clone(),
            metadata_only: TypeId::of::<V>() == TypeId::of::<Metadata>(),
            objects: self.read().len(),
            resource_version: self.version(),
            synced: self.has_synced(),
            trouble: trouble.as_deref().map(str::to_owned),
        }
    }

    pub(crate) fn declare(&self, name: &'static str, keys: super::store::KeysOf<V>) -> usize {
        self.store.write().unwrap_or_else(PoisonError::into_inner).declare(name, keys)
    }

    /// Adds a handler; it hears of what is there already first.
    pub(crate) fn subscribe(&self, handler: Handler<V>) {
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let present: Vec<Arc<V>> = self.read().iter().cloned().collect();
        for object in present {
            tell(&handler, &CacheEvent::Added { object, initial: true });
        }
        handlers.push(handler);
    }

    /// Takes in an object as it is now.
    pub(crate) fn upsert(&self, object: Arc<V>) {
        let version = object.meta().version();
        self.change(version, |store| store.upsert(object, false));
    }

    /// Takes out an object whose last state is `object`.
    pub(crate) fn delete(&self, object: &Arc<V>) {
        let version = object.meta().version();
        self.change(version, |store| {
            let meta = object.meta();
            store.delete(&meta.namespace, &meta.name, Some(Arc::clone(object)))
        });
    }

    /// This object, in whatever version it is held.
    pub(crate) fn holding(&self, object: &IdentityMeta) -> Option<Arc<V>> {
        let store = self.read();
        let held = store.get(&object.namespace, &object.name)?;
        (held.meta().uid == object.uid).then(|| Arc::clone(held))
    }

    /// Takes out an object of which only the name could be read.
    pub(crate) fn delete_named(&self, namespace: &str, name: &str, version: u64) {
        self.change(version, |store| store.delete(namespace, name, None));
    }

    /// So many objects were read that are not in the store yet.
    pub(crate) fn queued(&self, n: usize) {
        self.shown_queued.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// Becomes exactly `now`.
    pub(crate) fn replace(&self, now: Table<V>, version: u64) {
        let initial = !self.has_synced();
        self.change(version, |store| store.replace(now, initial));
        self.synced.set();
    }

    /// Nothing has changed up to this version.
    pub(crate) fn advance(&self, version: u64) {
        self.change(version, |_| Events::new());
    }

    /// Tells handlers of every object again.
    pub(crate) fn resync(&self) {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let present: Vec<Arc<V>> = self.read().iter().cloned().collect();
        for object in present {
            let event = CacheEvent::Updated { old: Arc::clone(&object), new: object };
            handlers.iter().for_each(|handler| tell(handler, &event));
        }
    }

    /// The object that is held, if it is this version of it: what is decoded again need not be held twice.
    pub(crate) fn held(&self, object: &V) -> Option<Arc<V>> {
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
        if version != 0 {
            self.shown_version.set(i64::try_from(version).unwrap_or(i64::MAX));
        }
        if events.is_empty() {
            return;
        }
        let start = Instant::now();
        for event in &events {
            handlers.iter().for_each(|handler| tell(handler, event));
        }
        self.told_seconds.observe(start.elapsed().as_secs_f64());
    }
}

/// One handler's panic is no other's business.
fn tell<V>(handler: &Handler<V>, event: &CacheEvent<V>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(event))) {
        tracing::error!(panic = panic_text(&*panic), "a cache's event handler panicked");
    }
}
