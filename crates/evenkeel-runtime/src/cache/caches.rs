//! All caches of a program: one per type and selector, shared by all readers.

use super::{Cache, reflected::Reflected, reflector::Reflector, shared::Shared};
use crate::{
    client::{Client, Metadata},
    clock::Clock,
    introspect::CacheState,
    metrics,
    tasks::Tasks,
};
use evenkeel_api::{Kind, View};
use prometheus::{HistogramVec, IntGaugeVec, Registry};
use std::{
    any::{Any, TypeId},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Buckets of `informer_processing_latency_seconds`, as upstream's.
const PROCESSING_LATENCY_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// All caches of a program. Clones share them.
///
/// Two requests for the same type and selector return the same cache. [`Caches::start`] starts the caches
/// requested so far, so that callers can declare indexes and handlers first. Later caches start at once.
#[doc(alias = "SharedInformerFactory")]
#[derive(Clone)]
pub struct Caches {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    clock: Clock,
    program: Box<str>,
    /// The only namespace whose objects are cached, or empty for all namespaces.
    namespace: Box<str>,
    queued: IntGaugeVec,
    versions: IntGaugeVec,
    processing_latency: HistogramVec,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    tasks: Option<Tasks>,
}

/// The objects that one reflector lists and watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) kind: Kind,
    /// Namespace of the objects. Empty for all namespaces, and for cluster-scoped kinds.
    pub(crate) namespace: Box<str>,
    pub(crate) labels: String,
    pub(crate) fields: String,
}

struct Entry {
    view: TypeId,
    scope: Scope,
    /// The `Arc<Shared<V>>` of the cache.
    shared: Arc<dyn Any + Send + Sync>,
    status: Arc<dyn Reflected>,
    resync: Resync,
    token: CancellationToken,
    /// Starts the reflector. `None` once started.
    start: Option<Start>,
}

type Start = Box<dyn FnOnce(&Tasks) + Send>;

/// Resync period of a cache.
#[derive(Clone)]
pub(crate) struct Resync(Arc<watch::Sender<Option<Duration>>>);

impl Resync {
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    pub(crate) fn request(&self, period: Duration) {
        self.0.send_if_modified(|current| {
            let shorter = !period.is_zero() && current.is_none_or(|current| period < current);
            if shorter {
                *current = Some(period);
            }
            shorter
        });
    }

    /// Resyncs `cache` after every period. A newly requested, shorter period restarts the timer.
    async fn run(self, clock: Clock, cache: Arc<dyn Reflected>) {
        let mut requested_period = self.0.subscribe();
        loop {
            let period = *requested_period.borrow_and_update();
            let passed = async {
                match period {
                    Some(period) => clock.sleep(period).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // The wait cannot fail, because `self` owns the sender.
                _ = requested_period.changed() => {}
                () = passed => cache.resync(),
            }
        }
    }
}

impl Caches {
    /// Creates an empty set of caches, whose metrics are registered in `registry`.
    pub fn new(client: Client, clock: Clock, registry: &Registry) -> Self {
        Self::in_namespace(client, clock, registry, "")
    }

    /// Like [`Caches::new`], but caches of namespaced kinds only hold the objects of `namespace`. If it is
    /// empty, they hold those of all namespaces.
    pub fn in_namespace(
        client: Client,
        clock: Clock,
        registry: &Registry,
        namespace: &str,
    ) -> Self {
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
                namespace: namespace.into(),
                queued,
                versions,
                processing_latency,
                state: Mutex::default(),
            }),
        }
    }

    /// Returns the cache of `V`'s resource in all namespaces, or in the only one of [`Caches::in_namespace`].
    pub fn of<V: View>(&self) -> Cache<V> {
        self.selected("", "")
    }

    /// Returns the cache of `V`'s objects that match a label selector and a field selector. Both are in query
    /// form; empty selects all.
    pub fn selected<V: View>(&self, labels: &str, fields: &str) -> Cache<V> {
        self.cache(self.scope(V::kind(), labels, fields))
    }

    /// Returns the metadata-only cache of any resource.
    #[doc(alias = "MetadataInformer")]
    pub fn metadata(&self, kind: Kind) -> Cache<Metadata> {
        self.cache(self.scope(kind, "", ""))
    }

    /// Starts the reflectors of all caches. Caches that are requested later start at once.
    pub fn start(&self, tasks: &Tasks) {
        let mut state = self.state();
        state.tasks = Some(tasks.clone());
        for entry in &mut state.entries {
            if let Some(start) = entry.start.take() {
                start(tasks);
            }
        }
    }

    /// Starts the caches for whose kind `is_needed` returns `true`. All other caches, and later ones, stay
    /// empty. For programs that read once and exit.
    pub fn start_some(&self, tasks: &Tasks, is_needed: impl Fn(&Kind) -> bool) {
        let mut state = self.state();
        for entry in state.entries.iter_mut().filter(|entry| is_needed(&entry.scope.kind)) {
            if let Some(start) = entry.start.take() {
                start(tasks);
            }
        }
    }

    /// Stops the [metadata cache](Caches::metadata) of a resource that is no longer served or needed. Returns
    /// whether it existed. Clones keep its last state. Caches of other views are not stopped: the controllers
    /// that read them own them, and they sync again when the resource is served again.
    pub fn stop(&self, kind: &Kind) -> bool {
        let of_metadata =
            |entry: &Entry| entry.view == TypeId::of::<Metadata>() && entry.scope.kind == *kind;
        let mut state = self.state();
        let stopped = state.entries.extract_if(.., |entry| of_metadata(entry));
        stopped.inspect(|entry| entry.token.cancel()).count() > 0
    }

    /// Returns the newest resourceVersion, bookmarks included, that all readers of this kind can see. It is the
    /// lowest among the caches without selectors. Metadata caches count only if there are no others. Returns
    /// `None` without a cache.
    #[doc(alias = "LastSyncResourceVersion")]
    pub fn resource_version_of(&self, kind: &Kind) -> Option<u64> {
        let state = self.state();
        let whole = |entry: &&Entry| {
            entry.scope.kind == *kind
                && entry.scope.labels.is_empty()
                && entry.scope.fields.is_empty()
        };
        let oldest = |metadata: bool| {
            let of_view = |entry: &&Entry| (entry.view == TypeId::of::<Metadata>()) == metadata;
            state
                .entries
                .iter()
                .filter(whole)
                .filter(of_view)
                .map(|entry| entry.status.version())
                .min()
        };
        oldest(false).or_else(|| oldest(true))
    }

    /// Returns the state of each cache, in the order of first requests.
    pub fn states(&self) -> Vec<CacheState> {
        self.state().entries.iter().map(|entry| entry.status.state(&entry.scope)).collect()
    }

    /// Returns whether every cache has synced.
    pub fn has_synced(&self) -> bool {
        self.state().entries.iter().all(|entry| entry.status.synced().is_set())
    }

    /// Returns the kinds of the caches that have not synced.
    pub fn unsynced(&self) -> Vec<Kind> {
        let state = self.state();
        let missing = state.entries.iter().filter(|entry| !entry.status.synced().is_set());
        missing.map(|entry| entry.scope.kind.clone()).collect()
    }

    /// Waits until every cache requested so far has synced or is stopped.
    ///
    /// Upstream: `WaitForCacheSync`.
    pub async fn synced(&self) {
        let waits: Vec<_> = {
            let state = self.state();
            state.entries.iter().map(|entry| (entry.status.synced(), entry.token.clone())).collect()
        };
        for (synced, token) in waits {
            let _ = token.run_until_cancelled(synced.wait()).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scope(&self, kind: Kind, labels: &str, fields: &str) -> Scope {
        let namespace = if kind.namespaced { self.inner.namespace.clone() } else { "".into() };
        Scope { kind, namespace, labels: labels.into(), fields: fields.into() }
    }

    fn cache<V: View>(&self, scope: Scope) -> Cache<V> {
        let mut state = self.state();
        let found = state
            .entries
            .iter()
            .find(|entry| entry.view == TypeId::of::<V>() && entry.scope == scope);
        if let Some(entry) = found
            && let Ok(shared) = Arc::clone(&entry.shared).downcast::<Shared<V>>()
        {
            return Cache { shared, scope: Arc::new(scope), resync: entry.resync.clone() };
        }
        let (shared, mut entry) = self.entry::<V>(&scope);
        if let Some(tasks) = &state.tasks
            && let Some(start) = entry.start.take()
        {
            start(tasks);
        }
        let resync = entry.resync.clone();
        state.entries.push(entry);
        Cache { shared, scope: Arc::new(scope), resync }
    }

    fn entry<V: View>(&self, scope: &Scope) -> (Arc<Shared<V>>, Entry) {
        let Inner { clock, program, queued, versions, processing_latency, .. } = &*self.inner;
        let labels = [&**program, &scope.kind.group, &scope.kind.version, &scope.kind.plural];
        let shared = Arc::new(Shared::<V>::new(
            clock.clone(),
            queued.with_label_values(&labels),
            versions.with_label_values(&labels),
            processing_latency.with_label_values(&labels),
        ));
        let (resync, token) = (Resync::new(), CancellationToken::new());
        let reflected: Arc<dyn Reflected> = shared.clone();
        let start = self.start_of(scope, &resync, &token, &reflected);
        let entry = Entry {
            view: TypeId::of::<V>(),
            scope: scope.clone(),
            shared: Arc::clone(&shared) as Arc<dyn Any + Send + Sync>,
            status: reflected,
            resync,
            token,
            start: Some(start),
        };
        (shared, entry)
    }

    /// Returns the closure that starts a cache's reflector and its resyncs.
    fn start_of(
        &self,
        scope: &Scope,
        resync: &Resync,
        token: &CancellationToken,
        cache: &Arc<dyn Reflected>,
    ) -> Start {
        let Inner { client, clock, .. } = &*self.inner;
        let (client, scope) = (client.clone(), scope.clone());
        let (resync, cache, clock, token) =
            (resync.clone(), Arc::clone(cache), clock.clone(), token.clone());
        let name = format!("{}.{}", scope.kind.plural, scope.kind.group);
        Box::new(move |tasks: &Tasks| {
            let (resynced, timer) = (Arc::clone(&cache), clock.clone());
            tasks.spawn_restarting_until(format!("resync {name}"), &token, move || {
                resync.clone().run(timer.clone(), Arc::clone(&resynced))
            });
            tasks.spawn_restarting_until(format!("reflector {name}"), &token, move || {
                let (client, cache) = (client.clone(), Arc::clone(&cache));
                Box::pin(Reflector::new(client, clock.clone(), scope.clone(), cache).run())
            });
        })
    }
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_list().entries(state.entries.iter().map(|entry| &entry.scope)).finish()
    }
}
