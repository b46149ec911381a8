//! Cache of objects of any view: store, resourceVersions and event handlers. Reflectors fill it, and typed
//! [`Cache`](super::Cache)s read it.
//!
//! Upstream: `SharedIndexInformer`.

use super::{
    CacheEvent,
    caches::{Resync, Scope},
    object::{Object, ObjectType, downcast},
    part::Part,
    store::{Events, IndexFunc, Selection, Store, same_version},
    written::Written,
};
use crate::{
    clock::Clock,
    introspect::CacheState,
    latch::Latch,
    sharding::{ShardedCache, Shards},
    tasks::catch_call_panic,
};
use evenkeel_api::{DecodeError, Encoding, Meta, Text, View};
use prometheus::{Histogram, IntGauge};
use std::{
    any::TypeId,
    collections::BTreeMap,
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// Function that is called once a cache has synced.
type OnSynced = Box<dyn FnOnce() + Send>;

/// Event handler of a cache.
type Handler = Box<dyn Fn(&CacheEvent<dyn Object>) + Send + Sync>;

/// Reference that keeps the cache of an informer in use. Caches, indexes and controllers share it; the reflector holds only the
/// informer.
pub(crate) struct Reader(Arc<Informer>);

impl Reader {
    pub(super) fn of(informer: &Arc<Informer>) -> Arc<Self> {
        Arc::new(Self(Arc::clone(informer)))
    }

    /// Returns the informer, without keeping its cache in use.
    pub(crate) fn informer(&self) -> &Arc<Informer> {
        &self.0
    }
}

/// In-flight write of an object. The write's event is recognized until this value is dropped, and also afterwards if the
/// response was decoded.
pub(crate) struct WriteInFlight(Arc<Reader>);

impl WriteInFlight {
    pub(crate) fn of(cache: &Arc<Reader>) -> Self {
        cache.written.begin();
        Self(Arc::clone(cache))
    }

    /// Decodes the object in the response, which is JSON.
    pub(crate) fn decode_answer<V: View>(&self, answer: &[u8]) -> Result<Arc<V>, DecodeError> {
        self.0.decode_answer(answer)
    }
}

impl Drop for WriteInFlight {
    fn drop(&mut self) {
        self.0.written.end();
    }
}

impl Deref for Reader {
    type Target = Informer;

    fn deref(&self) -> &Informer {
        &self.0
    }
}

/// Number of a handler's subscription to an informer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SubscriptionId(u64);

pub(crate) struct Informer {
    scope: Scope,
    object_type: ObjectType,
    clock: Clock,
    store: RwLock<Store>,
    written: Written,
    /// Parts, in the order of the scope's namespaces.
    parts: Box<[Part]>,
    /// Handles of the parts, if they hold only the objects of the shards of this process. Otherwise empty.
    sharding: Box<[Arc<ShardedCache>]>,
    /// Set once all parts have synced.
    synced: Latch,
    /// Functions to call once all parts have synced, by the name of the caller.
    on_synced: Mutex<BTreeMap<String, OnSynced>>,
    /// Whether the server may not serve the kind yet.
    optional: AtomicBool,
    /// Locked during a change and its notifications, so that every handler receives every change once and in
    /// order.
    handlers: Mutex<Vec<(SubscriptionId, Handler)>>,
    /// Number of handlers. It can be read without the handlers' lock.
    handler_count: AtomicUsize,
    next_subscription: AtomicU64,
    resync_period: Resync,
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
        let parts = scope.namespaces.iter().map(|_| Part::default()).collect();
        Self {
            scope,
            object_type,
            clock,
            store: RwLock::new(Store::new()),
            written: Written::default(),
            parts,
            sharding: Box::default(),
            synced: Latch::default(),
            on_synced: Mutex::default(),
            optional: AtomicBool::new(false),
            handlers: Mutex::default(),
            handler_count: AtomicUsize::new(0),
            next_subscription: AtomicU64::new(0),
            resync_period: Resync::new(),
            gauges,
        }
    }

    /// Makes the cache hold only the objects of this process's shards, if the kind is sharded.
    pub(super) fn sharded(mut self, shards: Option<&Shards>) -> Self {
        let of_part = |shards| ShardedCache::of(shards, &self.scope.kind);
        let parts = shards.into_iter().flat_map(|shards| self.parts.iter().map(move |_| shards));
        self.sharding = parts.filter_map(of_part).map(Arc::new).collect();
        self
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the handle of a part that holds only the objects of the shards of this process.
    pub(super) fn sharding(&self, part: usize) -> Option<Arc<ShardedCache>> {
        self.sharding.get(part).cloned()
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

    /// Returns whether the cache will show a write, by the metadata that the server returned: it selects the object, or it
    /// shows the object now and will show its change or its removal. The objects that a field selector selects are not known
    /// here.
    pub(crate) fn will_show(&self, written: &Meta) -> bool {
        let is_shown = || {
            let object = self.get(&written.namespace, &written.name);
            object.is_some_and(|object| object.meta().uid == written.uid)
        };
        self.scope.selects(written) || is_shown()
    }

    /// Returns an object as its view. Also returns `None` if the cache holds another view.
    pub(crate) fn get_as<V: View>(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        if !self.is_of_view::<V>() {
            return None;
        }
        downcast(self.get(namespace, name)?)
    }

    /// Returns the object in the response to one of the program's own writes. `answer` is JSON.
    fn decode_answer<V: View>(&self, answer: &[u8]) -> Result<Arc<V>, DecodeError> {
        if self.transforms() {
            // The cache holds transformed objects, not those that the server sends.
            return V::decode(answer, Encoding::Json).map(Arc::new);
        }
        let decode = |answer: &[u8]| self.object_type.decode(answer, Encoding::Json);
        match downcast(self.written.of_answer(answer, decode)?) {
            Some(object) => Ok(object),
            None => V::decode(answer, Encoding::Json).map(Arc::new),
        }
    }

    /// Returns the object of a watch event.
    pub(super) fn decode_event(
        &self,
        object: &[u8],
        encoding: Encoding,
    ) -> Result<Arc<dyn Object>, DecodeError> {
        self.written.of_event(object, |object| self.object_type.decode(object, encoding))
    }

    /// Returns whether the objects are of this view.
    pub(crate) fn is_of_view<V: View>(&self) -> bool {
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

    /// Returns the version up to which all parts of the cache are current.
    pub(crate) fn version(&self) -> u64 {
        self.parts.iter().map(Part::version).min().unwrap_or(0)
    }

    /// Returns the version up to which the part with the objects of a namespace is current, or `None` if the cache does not
    /// hold that namespace.
    pub(crate) fn version_in(&self, namespace: &str) -> Option<u64> {
        self.parts.get(self.scope.part_of(namespace)?).map(Part::version)
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn gauges(&self) -> &Gauges {
        &self.gauges
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

    /// Calls `call` once the cache has synced; immediately if it has already synced. `call` must not block. It replaces an
    /// earlier function of the same caller.
    pub(crate) fn when_synced(&self, caller: String, call: impl FnOnce() + Send + 'static) {
        let mut waiting = self.on_synced.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_synced() {
            drop(waiting);
            call();
        } else {
            waiting.insert(caller, Box::new(call));
        }
    }

    /// Drops the waiting function of a caller of [`Informer::when_synced`].
    pub(crate) fn forget_waiting(&self, caller: &str) {
        self.on_synced.lock().unwrap_or_else(PoisonError::into_inner).remove(caller);
    }

    /// Returns whether cached objects differ from those of the server, because the options of the cache transform them.
    pub(crate) fn transforms(&self) -> bool {
        self.object_type.transforms()
    }

    /// Returns the counters and state of the cache, for introspection.
    pub(crate) fn state(&self) -> CacheState {
        let scope = &self.scope;
        let kind = &scope.kind;
        let dot = if kind.group.is_empty() { "" } else { "." };
        let errors = self.parts.iter().zip(&scope.namespaces).filter_map(|(part, namespace)| {
            let error = part.watch_error()?;
            let many = self.parts.len() > 1;
            Some(if many { format!("in namespace {namespace}: {error}") } else { error })
        });
        let errors: Vec<String> = errors.collect();
        CacheState {
            resource: format!("{}{dot}{}", kind.plural, kind.group),
            cluster: String::new(),
            labels: scope.labels.clone(),
            fields: scope.fields.clone(),
            metadata_only: self.object_type.is_metadata(),
            objects: self.read().len(),
            resource_version: self.version(),
            synced: self.has_synced(),
            trouble: (!errors.is_empty()).then(|| errors.join("; ")),
        }
    }

    pub(crate) fn declare(&self, name: &'static str, keys: IndexFunc) -> usize {
        self.store.write().unwrap_or_else(PoisonError::into_inner).declare(name, keys)
    }

    /// Adds a handler. It first receives the cached objects.
    pub(crate) fn subscribe(&self, handler: Handler) -> SubscriptionId {
        let id = SubscriptionId(self.next_subscription.fetch_add(1, Ordering::Relaxed));
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        for object in self.snapshot() {
            notify(&handler, &CacheEvent::Added { object, initial: true });
        }
        handlers.push((id, handler));
        self.handler_count.store(handlers.len(), Ordering::SeqCst);
        id
    }

    /// Removes a handler. The handler is no longer called once this returns. No handler of this informer may call this.
    pub(crate) fn unsubscribe(&self, id: SubscriptionId) {
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let removed: Vec<_> = handlers.extract_if(.., |(known, _)| *known == id).collect();
        self.handler_count.store(handlers.len(), Ordering::SeqCst);
        drop(handlers);
        // A handler may hold other readers, so it is dropped after the lock is released.
        drop(removed);
    }

    /// Returns whether a handler is subscribed.
    pub(super) fn has_handlers(&self) -> bool {
        self.handler_count.load(Ordering::SeqCst) > 0
    }

    /// Marks the cache as synced if all its parts are synced.
    pub(super) fn set_synced(&self) {
        if self.parts.iter().all(|part| part.synced.load(Ordering::SeqCst)) {
            self.synced.set();
            let mut waiting = self.on_synced.lock().unwrap_or_else(PoisonError::into_inner);
            let calls = std::mem::take(&mut *waiting);
            drop(waiting);
            calls.into_values().for_each(|call| call());
        }
    }

    /// Returns all cached objects.
    pub(crate) fn snapshot(&self) -> Vec<Arc<dyn Object>> {
        self.read().iter().cloned().collect()
    }

    /// Sends every object to the handlers again.
    pub(crate) fn resync(&self) {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        for object in self.snapshot() {
            let event = CacheEvent::Updated { old: Arc::clone(&object), new: object };
            handlers.iter().for_each(|(_, handler)| notify(handler, &event));
        }
    }

    /// Returns the cached object if it has the same version, so that an object that is decoded twice is stored once.
    pub(super) fn stored_version(&self, object: &dyn Object) -> Option<Arc<dyn Object>> {
        let store = self.read();
        let stored = store.get(&object.meta().namespace, &object.meta().name)?;
        same_version(&**stored, object).then(|| Arc::clone(stored))
    }

    /// Changes the store, sets the version of the part unless that is 0, and sends the events of the change to the
    /// handlers.
    pub(super) fn change(
        &self,
        part: usize,
        version: u64,
        change: impl FnOnce(&mut Store) -> Events,
    ) {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        let events = {
            let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
            let events = change(&mut store);
            if version != 0 {
                self.parts[part].version.store(version, Ordering::Release);
            }
            events
        };
        self.publish(&handlers, &events, version);
    }

    /// Sends the events of a change to the handlers.
    fn publish(
        &self,
        handlers: &[(SubscriptionId, Handler)],
        events: &[CacheEvent<dyn Object>],
        version: u64,
    ) {
        if version != 0 {
            self.gauges.resource_version.set(i64::try_from(self.version()).unwrap_or(i64::MAX));
        }
        if events.is_empty() {
            return;
        }
        let start = self.clock.instant();
        for event in events {
            handlers.iter().for_each(|(_, handler)| notify(handler, event));
        }
        self.gauges.processing_latency.observe(start.elapsed().as_secs_f64());
    }
}

/// Calls a handler. If it panics, the panic is logged, and the other handlers still run.
fn notify(handler: &Handler, event: &CacheEvent<dyn Object>) {
    if let Err(panic) = catch_call_panic(|| handler(event)) {
        tracing::error!(panic, "a cache's event handler panicked");
    }
}
