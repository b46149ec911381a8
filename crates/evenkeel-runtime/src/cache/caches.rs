//! All caches of a program: one per type and selector, shared by all readers.

use super::{
    Cache, CacheOptions, Dynamic, Full,
    dynamic::typing_decoder,
    informer::{Gauges, Informer, Reader},
    object::ObjectType,
    options::{CacheSelection, Selections, distinct},
    packed::packing_decoder,
    part::Feed,
    reflector::Reflector,
    whole::WholeObject,
};
use crate::{
    client::{Client, Metadata},
    clock::Clock,
    introspect::CacheState,
    metrics,
    sharding::Shards,
    tasks::{Tasks, watch},
};
use evenkeel_api::{Kind, Meta, View, selector::Selector};
use kube::api::DynamicObject;
use prometheus::{HistogramVec, IntGaugeVec, Registry};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Buckets of `informer_processing_latency_seconds`, the same as upstream.
const PROCESSING_LATENCY_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// All caches of a program. Clones share them.
///
/// Two requests for the same type and selector return the same cache. [`Caches::start`] starts the caches
/// requested so far, so that callers can declare indexes and handlers first. Later caches start immediately.
#[doc(alias = "SharedInformerFactory")]
#[derive(Clone)]
pub struct Caches {
    inner: Arc<Inner>,
}

/// State that the clones of [`Caches`] share.
struct Inner {
    client: Client,
    clock: Clock,
    /// Name of the program, a label of the metrics.
    program: Box<str>,
    /// Namespaces whose objects are cached; never empty. A single empty string stands for all namespaces.
    namespaces: Vec<Box<str>>,
    queued: IntGaugeVec,
    versions: IntGaugeVec,
    processing_latency: HistogramVec,
    /// Shards of a sharded program, which [`Caches::split`] sets.
    shards: OnceLock<Shards>,
    /// Whether initial states are read in pages, see [`Caches::list_in_pages`].
    lists_in_pages: AtomicBool,
    /// Resync period of all caches, which [`Caches::resync_all_every`] sets.
    resync_period: OnceLock<Duration>,
    state: Mutex<State>,
}

/// Caches of the program, and the task group of their reflectors.
#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// Task group of the reflectors. `None` until [`Caches::start`].
    tasks: Option<Tasks>,
    selections: Selections,
}

/// The objects of one cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) kind: Kind,
    /// Namespaces of the objects; never empty. A single empty string stands for all namespaces, and for cluster-scoped kinds.
    pub(crate) namespaces: Vec<Box<str>>,
    pub(crate) labels: String,
    pub(crate) fields: String,
}

impl Scope {
    /// Returns the number of the part of a cache that holds a namespace's objects.
    pub(crate) fn part_of(&self, namespace: &str) -> Option<usize> {
        self.namespaces.iter().position(|part| part.is_empty() || **part == *namespace)
    }

    /// Returns whether every object of the kind in a namespace is in the scope.
    pub(crate) fn selects_all_in(&self, namespace: &str) -> bool {
        self.part_of(namespace).is_some() && self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns whether an object of the kind is in the scope. With field selectors, this returns false, because the object's
    /// fields are not known here.
    pub(crate) fn selects(&self, meta: &Meta) -> bool {
        let in_namespace = self.part_of(&meta.namespace).is_some();
        let has_labels = || Selector::parse(&self.labels).is_ok_and(|it| it.matches(&meta.labels));
        in_namespace && self.fields.is_empty() && has_labels()
    }
}

/// Cache, with the reflector that fills it.
struct Entry {
    informer: Arc<Informer>,
    /// State that the readers share. It is dropped with the last reader of the cache.
    readers: Weak<Reader>,
    /// Cancelled to stop the reflector.
    token: CancellationToken,
    /// Starts the reflector. `None` once started.
    start: Option<Start>,
}

type Start = Box<dyn FnOnce(&Tasks) + Send>;

/// Resync period of a cache.
pub(crate) struct Resync(watch::Sender<Option<Duration>>);

impl Resync {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Requests resyncs at least once per `period`. Zero requests none.
    pub(crate) fn request(&self, period: Duration) {
        self.0.send_if_modified(|current| {
            let shorter = !period.is_zero() && current.is_none_or(|current| period < current);
            if shorter {
                *current = Some(period);
            }
            shorter
        });
    }

    /// Resyncs a cache after every period. A newly requested, shorter period restarts the timer.
    async fn run(clock: Clock, informer: Arc<Informer>) {
        let mut requested_period = informer.resync_period().0.subscribe();
        loop {
            let period = *requested_period.borrow_and_update();
            let elapsed = async {
                match period {
                    Some(period) => clock.sleep(period).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // The wait cannot fail, because `informer` owns the sender.
                _ = requested_period.changed() => {}
                () = elapsed => informer.resync(),
            }
        }
    }
}

impl Caches {
    /// Creates an empty set of caches, whose metrics are registered in `registry`.
    pub fn new(client: Client, clock: Clock, registry: &Registry) -> Self {
        Self::in_namespaces(client, clock, registry, [])
    }

    /// Like [`Caches::new`], but caches of namespaced kinds only hold the objects of these namespaces. Without namespaces, they
    /// hold the objects of all namespaces.
    pub fn in_namespaces<'n>(
        client: Client,
        clock: Clock,
        registry: &Registry,
        namespaces: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        let mut namespaces = distinct(namespaces);
        if namespaces.is_empty() {
            namespaces.push("".into());
        }
        const LABELS: &[&str] = &["name", "group", "version", "resource"];
        let program = client.user_agent().split('/').next().unwrap_or_default().into();
        let queued = metrics::int_gauges(
            registry,
            "informer_queued_items",
            "Objects that were read and are not yet in a cache: those of an initial state that is not complete.",
            LABELS,
        );
        let versions = metrics::int_gauges(
            registry,
            "informer_store_resource_version",
            "Newest resource version in a cache.",
            LABELS,
        );
        let processing_latency = metrics::histograms(
            registry,
            "informer_processing_latency_seconds",
            "Seconds that a cache's handlers took over a change.",
            PROCESSING_LATENCY_BUCKETS,
            LABELS,
        );
        Self {
            inner: Arc::new(Inner {
                client,
                clock,
                program,
                namespaces,
                queued,
                versions,
                processing_latency,
                shards: OnceLock::new(),
                lists_in_pages: AtomicBool::new(false),
                resync_period: OnceLock::new(),
                state: Mutex::default(),
            }),
        }
    }

    /// Sets which objects of `K` are cached, and which parts of them, in the cache that [`Caches::of`] returns. Call it
    /// before the first request of that cache.
    pub fn configure<K>(&self, options: CacheOptions<K>)
    where
        Full<K>: View,
    {
        self.state().selections.set::<Full<K>, _>(Full::<K>::kind(), options);
    }

    /// Like [`Caches::configure`], for the cache that [`Caches::dynamic`] returns.
    pub fn configure_dynamic(&self, kind: Kind, options: CacheOptions<DynamicObject>) {
        self.state().selections.set::<Dynamic, _>(kind, options);
    }

    /// Like [`Caches::configure`], for the cache that [`Caches::metadata`] returns.
    pub fn configure_metadata(&self, kind: Kind, options: CacheOptions<Metadata>) {
        self.state().selections.set::<Metadata, _>(kind, options);
    }

    /// Lets caches that are requested later read the initial state in pages and watch from there, as with the feature gate
    /// `WatchListClient` off. By default, the watch itself begins with the initial state (KEP-3157).
    pub fn list_in_pages(&self) {
        self.inner.lists_in_pages.store(true, Ordering::Relaxed);
    }

    /// Resyncs every cache that is requested later at least once per period, as [`Cache::resync_every`] does for one. The
    /// first period counts; zero requests none.
    #[doc(alias = "defaultResync")]
    pub fn resync_all_every(&self, period: Duration) {
        // A program has one period.
        let _ = self.inner.resync_period.set(period);
    }

    /// Makes later caches of the kinds of [`Sharding::sharded_watch`] hold only the objects of this process's shards.
    ///
    /// [`Sharding::sharded_watch`]: crate::sharding::Sharding::sharded_watch
    pub(crate) fn split(&self, shards: &Shards) {
        // A program has one set of shards.
        let _ = self.inner.shards.set(shards.clone());
    }

    /// Returns the cache of `V`'s resource in all namespaces, or in the namespaces of [`Caches::in_namespaces`]. The
    /// cache has the options of [`Caches::configure`].
    pub fn of<V: View>(&self) -> Cache<V> {
        self.configured(V::kind(), ObjectType::of::<V>())
    }

    /// Returns the cache of [`Caches::of`] if it was requested before and is not stopped. Unlike `of`, this never starts a
    /// watch, so it suits reports about the program's existing caches.
    pub fn existing<V: View>(&self) -> Option<Cache<V>> {
        let object_type = ObjectType::of::<V>();
        let selection = self.state().selections.of::<V>(&V::kind());
        let scope = self.selected_scope(V::kind(), selection);
        Self::requested(&mut self.state(), &scope, &object_type).map(|reader| Cache::of(&reader))
    }

    /// Like [`Caches::of`], but the cache holds objects as JSON and decodes each object on read, unless the options transform
    /// them. A decoded object takes several times the memory of its JSON.
    pub(crate) fn packed<V: WholeObject>(&self) -> Cache<V> {
        self.configured(V::kind(), packed_type::<V>())
    }

    fn configured<V: View>(&self, kind: Kind, object_type: ObjectType) -> Cache<V> {
        let selection = self.state().selections.of::<V>(&kind);
        let object_type = object_type.transforming(selection.decode.clone());
        Cache::of(&self.informer(self.selected_scope(kind, selection), object_type))
    }

    /// Returns the scope of a kind with these options.
    fn selected_scope(&self, kind: Kind, selection: CacheSelection) -> Scope {
        let CacheSelection { namespaces, labels, fields, .. } = selection;
        let mut scope = self.scope(kind, &labels, &fields);
        if scope.kind.namespaced && !namespaces.is_empty() {
            scope.namespaces = namespaces;
        }
        scope
    }

    /// Returns the cache of `V`'s objects that match a label selector and a field selector. Both selectors have the query
    /// syntax; an empty selector selects all objects.
    pub fn selected<V: View>(&self, labels: &str, fields: &str) -> Cache<V> {
        Cache::of(&self.informer(self.scope(V::kind(), labels, fields), ObjectType::of::<V>()))
    }

    /// Returns the cache of `V`'s objects that match a label selector, in one namespace or in those of all caches. The cache
    /// holds them as JSON.
    pub(crate) fn selected_in<V: WholeObject>(
        &self,
        namespace: Option<&str>,
        labels: &str,
    ) -> Cache<V> {
        let mut scope = self.scope(V::kind(), labels, "");
        if let Some(namespace) = namespace {
            scope.namespaces = vec![namespace.into()];
        }
        Cache::of(&self.informer(scope, packed_type::<V>()))
    }

    /// Returns the metadata-only cache of any resource.
    #[doc(alias = "MetadataInformer")]
    pub fn metadata(&self, kind: Kind) -> Cache<Metadata> {
        self.configured(kind, ObjectType::of::<Metadata>())
    }

    /// Returns the cache of whole objects of a resource that is known only at run time. It holds them as JSON, and decodes each
    /// object on read. Each object has its `types`, although the server omits them in the items of lists.
    pub fn dynamic(&self, kind: Kind) -> Cache<Dynamic> {
        let selection = self.state().selections.of::<Dynamic>(&kind);
        let typed = |decode| typing_decoder(&kind, decode);
        let object_type = ObjectType::of::<Dynamic>()
            .decoding(Some(typed(packing_decoder::<Dynamic>())))
            .transforming(selection.decode.clone().map(typed));
        Cache::of(&self.informer(self.selected_scope(kind, selection), object_type))
    }

    /// Starts the reflectors of all caches. Caches that are requested later start immediately.
    pub fn start(&self, tasks: &Tasks) {
        let mut state = self.state();
        state.tasks = Some(tasks.clone());
        for entry in &mut state.entries {
            if let Some(start) = entry.start.take() {
                start(tasks);
            }
        }
    }

    /// Starts the caches for whose kind `is_needed` returns `true`. All other caches, and later ones, stay empty. This is for
    /// programs that read once and exit.
    pub fn start_some(&self, tasks: &Tasks, is_needed: impl Fn(&Kind) -> bool) {
        let mut state = self.state();
        for entry in
            state.entries.iter_mut().filter(|entry| is_needed(&entry.informer.scope().kind))
        {
            if let Some(start) = entry.start.take() {
                start(tasks);
            }
        }
    }

    /// Stops the [metadata cache](Caches::metadata) of a resource that is no longer served or needed. Returns whether it
    /// existed. Clones keep its last state. Caches of other views are not stopped: they belong to the controllers that read
    /// them, and they sync again when the resource is served again.
    pub fn stop(&self, kind: &Kind) -> bool {
        let is_metadata_cache = |informer: &Informer| {
            informer.object_type().is_metadata() && informer.scope().kind == *kind
        };
        let mut state = self.state();
        let stopped = state.entries.extract_if(.., |entry| is_metadata_cache(&entry.informer));
        stopped.inspect(|entry| entry.token.cancel()).count() > 0
    }

    /// Stops the cache of an informer that no longer has readers. A later request creates a new cache.
    pub(crate) fn stop_unread(&self, informer: &Arc<Informer>) {
        let is_unread = |entry: &mut Entry| {
            Arc::ptr_eq(&entry.informer, informer)
                && entry.readers.strong_count() == 0
                && !informer.has_handlers()
        };
        let stopped: Vec<Entry> = self.state().entries.extract_if(.., is_unread).collect();
        for entry in stopped {
            entry.token.cancel();
            tracing::debug!(
                kind = &*entry.informer.scope().kind.kind,
                "cache stopped, nobody reads it"
            );
        }
    }

    /// Returns the newest resourceVersion, including bookmarks, that all readers of this kind can see. It is the lowest version
    /// among the caches without selectors. Metadata caches count only if there are no other caches. Returns `None` without a
    /// cache.
    #[doc(alias = "LastSyncResourceVersion")]
    pub fn resource_version_of(&self, kind: &Kind) -> Option<u64> {
        let state = self.state();
        let is_unselected = |informer: &&Arc<Informer>| {
            let scope = informer.scope();
            scope.kind == *kind && scope.labels.is_empty() && scope.fields.is_empty()
        };
        let lowest_version = |of_metadata_caches: bool| {
            let informers = state.entries.iter().map(|entry| &entry.informer).filter(is_unselected);
            informers
                .filter(|informer| informer.object_type().is_metadata() == of_metadata_caches)
                .map(|informer| informer.version())
                .min()
        };
        lowest_version(false).or_else(|| lowest_version(true))
    }

    /// Returns the state of each cache, in the order of first requests.
    pub fn states(&self) -> Vec<CacheState> {
        self.state().entries.iter().map(|entry| entry.informer.state()).collect()
    }

    /// Returns the scope that each cache lists and watches.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        self.state().entries.iter().map(|entry| entry.informer.scope().clone()).collect()
    }

    /// Returns whether every cache has synced, except for [optional](Cache::mark_optional) ones.
    pub fn has_synced(&self) -> bool {
        self.state().entries.iter().all(|entry| entry.informer.is_ready())
    }

    /// Returns the kinds of the caches that have not synced, except for [optional](Cache::mark_optional) ones.
    pub fn unsynced(&self) -> Vec<Kind> {
        let state = self.state();
        let missing = state.entries.iter().filter(|entry| !entry.informer.is_ready());
        missing.map(|entry| entry.informer.scope().kind.clone()).collect()
    }

    /// Returns the states of the caches of [`Caches::unsynced`].
    pub(crate) fn unsynced_states(&self) -> Vec<CacheState> {
        let state = self.state();
        let missing = state.entries.iter().filter(|entry| !entry.informer.is_ready());
        missing.map(|entry| entry.informer.state()).collect()
    }

    /// Waits until every cache requested so far has synced or is stopped.
    ///
    /// Upstream: `WaitForCacheSync`.
    pub async fn synced(&self) {
        let waits: Vec<_> = {
            let state = self.state();
            state
                .entries
                .iter()
                .filter(|entry| !entry.informer.is_optional())
                .map(|entry| (entry.informer.synced().clone(), entry.token.clone()))
                .collect()
        };
        for (synced, token) in waits {
            let _ = token.run_until_cancelled(synced.wait()).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scope(&self, kind: Kind, labels: &str, fields: &str) -> Scope {
        let namespaces =
            if kind.namespaced { self.inner.namespaces.clone() } else { vec!["".into()] };
        Scope { kind, namespaces, labels: labels.into(), fields: fields.into() }
    }

    /// Returns the informer of this view and scope, and creates it if it does not exist.
    fn informer(&self, scope: Scope, object_type: ObjectType) -> Arc<Reader> {
        let mut state = self.state();
        if let Some(reader) = Self::requested(&mut state, &scope, &object_type) {
            return reader;
        }
        let (informer, token) = (self.create(scope, object_type), CancellationToken::new());
        let mut start = Some(self.start_closure(&informer, &token));
        if let Some(tasks) = &state.tasks
            && let Some(start) = start.take()
        {
            start(tasks);
        }
        let reader = Reader::of(&informer);
        state.entries.push(Entry { informer, readers: Arc::downgrade(&reader), token, start });
        reader
    }

    /// Returns the informer of this view and scope if it exists.
    fn requested(
        state: &mut State,
        scope: &Scope,
        object_type: &ObjectType,
    ) -> Option<Arc<Reader>> {
        let is_requested = |informer: &Informer| {
            informer.object_type().id == object_type.id && informer.scope() == scope
        };
        let entry = state.entries.iter_mut().find(|entry| is_requested(&entry.informer))?;
        let known = entry.readers.upgrade();
        let reader = known.unwrap_or_else(|| Reader::of(&entry.informer));
        entry.readers = Arc::downgrade(&reader);
        Some(reader)
    }

    fn create(&self, scope: Scope, object_type: ObjectType) -> Arc<Informer> {
        let Inner { clock, program, queued, versions, processing_latency, .. } = &*self.inner;
        let labels = [&**program, &scope.kind.group, &scope.kind.version, &scope.kind.plural];
        let gauges = Gauges {
            queued_items: queued.with_label_values(&labels),
            resource_version: versions.with_label_values(&labels),
            processing_latency: processing_latency.with_label_values(&labels),
        };
        let informer = Informer::new(scope, object_type, clock.clone(), gauges);
        if let Some(period) = self.inner.resync_period.get() {
            informer.resync_period().request(*period);
        }
        Arc::new(informer.sharded(self.inner.shards.get()))
    }

    /// Returns the closure that starts a cache's reflectors and its resyncs.
    fn start_closure(&self, informer: &Arc<Informer>, token: &CancellationToken) -> Start {
        let Inner { client, clock, .. } = &*self.inner;
        let (client, clock) = (client.clone(), clock.clone());
        let in_pages = self.inner.lists_in_pages.load(Ordering::Relaxed);
        let (informer, token) = (Arc::clone(informer), token.clone());
        let kind = &informer.scope().kind;
        let name = format!("{}.{}", kind.plural, kind.group);
        Box::new(move |tasks: &Tasks| {
            let (resync_informer, resync_clock) = (Arc::clone(&informer), clock.clone());
            tasks.spawn_restarting_until(format!("resync {name}"), &token, move || {
                Resync::run(resync_clock.clone(), Arc::clone(&resync_informer))
            });
            for feed in Feed::all(&informer) {
                let (client, clock) = (client.clone(), clock.clone());
                let slash = if feed.namespace().is_empty() { "" } else { "/" };
                let name = format!("reflector {}{slash}{name}", feed.namespace());
                tasks.spawn_restarting_until(name, &token, move || {
                    let reflector = Reflector::new(client.clone(), clock.clone(), feed.clone());
                    Box::pin(reflector.listing_in_pages(in_pages).run())
                });
            }
        })
    }
}

/// Returns the type of objects that a cache holds as JSON.
fn packed_type<V: WholeObject>() -> ObjectType {
    ObjectType::of::<V>().decoding(Some(packing_decoder::<V>()))
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_list().entries(state.entries.iter().map(|entry| entry.informer.scope())).finish()
    }
}
