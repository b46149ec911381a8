//! Declaration of a controller: the kind that it reconciles, and the mapping of events to keys.

use super::{
    Context, Controller, Enqueue, Env, Error, Outcome, Request,
    barrier::Barrier,
    causes::{Causes, Event},
    enqueue::{Filter, Handle, enqueuing_deletions, filtered},
    execute::{Executor, LocalWork},
    failures::Failures,
    memory::Memories,
    pass::PlannerReconciler,
    reconcile::{EnqueueReconciler, Explain, FunctionReconciler, Reconcile},
    run::{PanicSignal, Shared, Subscribe},
    shards::Replay,
    status_throttle::StatusThrottle,
    watched::{ControllerCaches, Subscribed, WatchedCaches},
};
use crate::{
    cache::{Cache, CacheEvent, Object, Reader},
    client::Client,
    events::{EventRecorder, SeriesEventRecorder},
    introspect::{Description, History, Inspect},
    manager::ControllerDefaults,
    permissions::DeclaredAccess,
    plan::{Key, Local, PassHandler, Planner},
    queue::{Backoff, Priority, Queue, RateLimiter},
    sharding::Shards,
};
use evenkeel_api::{Kind, Meta, OwnerReference, View, time::Timestamp};
use futures::{StreamExt as _, future::BoxFuture, stream::BoxStream};
use std::{
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

/// Builder of a controller. The constructor takes the kind to reconcile, and the last call takes the function, so that
/// neither can be missing or set twice.
#[must_use = "a builder does nothing until `planned` or `reconcile`"]
pub struct Builder {
    env: Env,
    /// The program's client, which fills the caches.
    shared_client: Client,
    local_work: Option<LocalWork>,
    name: Arc<str>,
    /// Kind of the objects that the keys name.
    root: Kind,
    /// Name of the queue in metrics.
    queue: Option<String>,
    workers: usize,
    max_retries: Option<u32>,
    component: Option<String>,
    event_source: Option<String>,
    /// Name of the metric of [`Builder::stale_skips_metric`].
    stale_skips: Option<&'static str>,
    /// Prefix of the metrics of [`Builder::passes_metric`].
    passes: Option<&'static str>,
    batch_period: Duration,
    status_throttle: Arc<StatusThrottle>,
    plans_in_turn: bool,
    backoff: Backoff,
    /// Rate limiter that replaces the one of `backoff`.
    rate_limiter: Option<Box<dyn RateLimiter<Key>>>,
    recovers_panics: bool,
    needs_leader_election: bool,
    /// Kinds that the controller writes, for its permissions.
    declared: DeclaredAccess,
    /// Caches, each with the handler of its events.
    subscriptions: Vec<(Arc<Reader>, Handle)>,
    /// Caches of the controller once it is built, for functions that read them.
    caches: ControllerCaches,
    explain: Option<Explain>,
    sources: Vec<BoxStream<'static, (Key, Priority)>>,
    logs_each_failure: bool,
    /// Reporting instance for events.k8s.io, if the controller records these events.
    series_events: Option<String>,
}

/// Function that creates the reconciler of a controller.
type MakeReconcile =
    Box<dyn FnOnce(Executor, Option<SeriesEventRecorder>, &Env) -> Box<dyn Reconcile>>;

impl Builder {
    /// Returns a builder of a controller of the objects in `root`. Each add, update and delete of an object
    /// enqueues its key.
    pub fn new<V: View>(env: &Env, name: &str, root: &Cache<V>) -> Self {
        Self::of_keys(env, name, root.kind().clone()).watch(
            root.informer(),
            Box::new(|event, enqueue, barrier| {
                forget_deleted(event, barrier);
                enqueue.add(Key::of(event.object().meta()));
            }),
        )
    }

    /// Returns a builder of a controller of the objects in `root`. `map` receives each add, update and delete,
    /// and enqueues keys.
    pub fn watching<V: View>(
        env: &Env,
        name: &str,
        root: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Self {
        Self::of_keys(env, name, root.kind().clone()).watch(
            root.informer(),
            Box::new(move |event, enqueue, barrier| {
                forget_deleted(event, barrier);
                event.with(|event| map(event, enqueue));
            }),
        )
    }

    /// Returns a builder of a controller without a cache of its root kind. Its watches enqueue the keys. `root`
    /// is the kind of the keys' objects. If the keys are not objects, `root` is a kind that does not exist.
    pub fn of_keys(env: &Env, name: &str, root: Kind) -> Self {
        // A sharded controller runs in each process, independent of the leader.
        let client = env.shards.as_ref().map_or(&env.client, Shards::client).clone();
        Self {
            env: Env { client, ..env.clone() },
            shared_client: env.client.clone(),
            local_work: None,
            name: Arc::from(name),
            root,
            queue: None,
            workers: 1,
            max_retries: None,
            component: None,
            event_source: None,
            stale_skips: None,
            passes: None,
            batch_period: Duration::ZERO,
            status_throttle: Arc::new(StatusThrottle::new(Duration::ZERO)),
            plans_in_turn: false,
            backoff: Backoff::default(),
            rate_limiter: None,
            recovers_panics: true,
            needs_leader_election: true,
            declared: DeclaredAccess::default(),
            subscriptions: Vec::new(),
            caches: ControllerCaches::default(),
            explain: None,
            sources: Vec::new(),
            logs_each_failure: false,
            series_events: None,
        }
    }

    /// Replaces the controller's name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Arc::from(name);
        self
    }

    /// Sets the name of the queue in metrics. Default: the controller's name.
    pub fn queue(mut self, name: &str) -> Self {
        self.queue = Some(name.to_owned());
        self
    }

    /// Sets the number of keys that are reconciled concurrently. Default: 1.
    pub fn workers(mut self, n: usize) -> Self {
        self.workers = n;
        self
    }

    /// Limits the consecutive retries of a key. After the last retry, the key waits for its next event. Default: no
    /// limit.
    pub fn max_retries(mut self, n: u32) -> Self {
        self.max_retries = Some(n);
        self
    }

    /// Sets the component in events and in the user agent. Default: the controller's name.
    pub fn component(mut self, name: &str) -> Self {
        self.component = Some(name.to_owned());
        self
    }

    /// Sets the component in events, if it differs from the user agent's.
    pub fn event_source(mut self, name: &str) -> Self {
        self.event_source = Some(name.to_owned());
        self
    }

    /// Delays a key by `period` after the first event that enqueues it, so that one pass (one reconcile) handles all events
    /// until then (upstream's batch periods). Default: no delay.
    pub fn batch_period(mut self, period: Duration) -> Self {
        self.batch_period = period;
        self
    }

    /// Throttles the status writes of a key. The controller writes the first change immediately. It collects changes within
    /// `period` after a write, and writes them together at the end of the period. A pass with other writes always writes its
    /// status immediately. Default: no throttle.
    pub fn min_status_interval(mut self, period: Duration) -> Self {
        self.status_throttle = Arc::new(StatusThrottle::new(period));
        self
    }

    /// Plans keys one after the other, while the actions of several keys run concurrently. This is for planners that depend on
    /// the plans of other keys, for example on allocated CIDRs ([`PassHandler::on_planned`]).
    pub fn plans_in_turn(mut self) -> Self {
        self.plans_in_turn = true;
        self
    }

    /// Sets the backoff of failed keys. Default: client-go's.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the rate limiter of failed keys, instead of the backoff of [`Builder::backoff`].
    #[doc(alias = "RateLimiter")]
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<Key> + 'static) -> Self {
        self.rate_limiter = Some(Box::new(limiter));
        self
    }

    /// Sets whether a panic of a pass counts as a failure of its key, which is retried. Otherwise, a panic stops the manager
    /// with an error. Default: true.
    #[doc(alias = "RecoverPanic")]
    pub fn recover_panic(mut self, recover: bool) -> Self {
        self.recovers_panics = recover;
        self
    }

    /// Sets whether the controller runs only in the leader. Otherwise it runs in every replica, and no lease fences its
    /// writes. Default: true.
    #[doc(alias = "NeedLeaderElection")]
    pub fn needs_leader_election(mut self, needs: bool) -> Self {
        self.needs_leader_election = needs;
        self
    }

    /// Sets the options that all controllers of a manager have.
    pub(crate) fn defaults(self, defaults: &ControllerDefaults) -> Self {
        self.recover_panic(defaults.recovers_panics)
            .needs_leader_election(defaults.needs_leader_election)
    }

    /// Returns the declaration of the kinds that the controller writes, for changes.
    pub(crate) fn declared(&mut self) -> &mut DeclaredAccess {
        &mut self.declared
    }

    /// Sets the client for the controller's writes, for controllers with their own credentials.
    pub fn client(mut self, client: Client) -> Self {
        self.env.client = client;
        self
    }

    /// Sets the name of the counter of passes that were delayed because the cache does not yet show the key's
    /// own writes. An example is `replicaset_controller_stale_sync_skips_total`.
    pub fn stale_skips_metric(mut self, name: &'static str) -> Self {
        self.stale_skips = Some(name);
        self
    }

    /// Counts passes as `<name>_sync_total{code}`, and their seconds as `<name>_sync_duration_seconds{code}`.
    /// The code is the failed request's status code, 500 for another error, and 200 for a successful pass.
    /// Upstream's certificate publishers have such metrics.
    pub fn passes_metric(mut self, name: &'static str) -> Self {
        self.passes = Some(name);
        self
    }

    /// Enqueues the controller of an object in `cache` on the object's events, if the controller is of the root
    /// kind.
    pub fn owns<V: View>(mut self, cache: &Cache<V>) -> Self {
        let root = self.root.clone();
        self.declared.owns(cache.kind());
        let handle =
            Box::new(move |event: &_, enqueue: &_, _: &_| enqueue_owners(&root, event, enqueue));
        self.watch(cache.informer(), handle)
    }

    /// Calls `map` with the events of objects in `cache`. `map` enqueues the affected keys. It may read caches, and
    /// must do nothing else.
    pub fn watches<V: View>(
        self,
        cache: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Self {
        let handle = Box::new(move |event: &CacheEvent<dyn Object>, enqueue: &_, _: &_| {
            event.with(|event| map(event, enqueue));
        });
        self.watch(cache.informer(), handle)
    }

    /// Waits at the start until `cache` is filled, and before each pass until it shows the controller's own writes. Its
    /// events do not enqueue keys.
    pub fn reads<V: View>(self, cache: &Cache<V>) -> Self {
        self.watch(cache.informer(), Box::new(|_, _, _| {}))
    }

    /// Enqueues the keys of a stream while the controller runs.
    pub fn source(self, keys: BoxStream<'static, Key>) -> Self {
        self.source_with_priority(keys.map(|key| (key, Priority::NORMAL)).boxed())
    }

    /// Like [`Builder::source`], with a priority of each key.
    pub fn source_with_priority(mut self, keys: BoxStream<'static, (Key, Priority)>) -> Self {
        self.sources.push(keys);
        self
    }

    /// Logs every failed pass as a warning. By default, only the third consecutive failure of a key is a warning.
    pub fn logs_each_failure(mut self) -> Self {
        self.logs_each_failure = true;
        self
    }

    /// Records a function's events in events.k8s.io, with this reporting instance. See [`Context::series`].
    pub fn series_events(mut self, instance: &str) -> Self {
        self.series_events = Some(instance.to_owned());
        self
    }

    /// Limits the events of the last declared cache that enqueue keys to those that pass `test`.
    pub(crate) fn filter_last(
        mut self,
        test: impl Fn(&CacheEvent<dyn Object>) -> bool + Send + Sync + 'static,
    ) -> Self {
        if let Some((informer, handle)) = self.subscriptions.pop() {
            self.subscriptions.push((informer, filtered(handle, test)));
        }
        self
    }

    /// Enqueues an object of the root kind when its deletion begins, independent of the predicates of its cache. With a
    /// finalizer, a deletion is an update that may change nothing else.
    pub(crate) fn enqueues_deletions(mut self) -> Self {
        // The constructor declares the root's cache, before all others.
        if let Some((cache, handle)) = self.subscriptions.first_mut()
            && cache.scope().kind == self.root
        {
            let inner = std::mem::replace::<Handle>(handle, Box::new(|_, _, _| {}));
            *handle = enqueuing_deletions(inner);
        }
        self
    }

    /// Marks the cache that was declared last as [optional](Cache::mark_optional).
    pub(crate) fn optional_last(self) -> Self {
        if let Some((informer, _)) = self.subscriptions.last() {
            informer.mark_optional();
        }
        self
    }

    /// Resyncs the cache that was declared last. See [`Cache::resync_every`].
    pub(crate) fn resync_last(self, period: Duration) -> Self {
        if let Some((informer, _)) = self.subscriptions.last() {
            informer.resync_period().request(period);
        }
        self
    }

    /// Returns the controller's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of the objects that the keys name.
    pub(crate) fn root(&self) -> &Kind {
        &self.root
    }

    /// Returns the controller's caches: the declared ones, and those of later watches.
    pub(crate) fn caches(&self) -> ControllerCaches {
        self.caches.clone()
    }

    /// Sets the function that executes the planner's [`Action::Local`](crate::plan::Action::Local). It returns the
    /// reason of a failure.
    pub fn local_work(
        mut self,
        work: impl Fn(&Local) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Self {
        self.local_work = Some(Arc::new(work));
        self
    }

    /// Sets the explanation of an async function: its observations of a key, and its next actions, one per line. `None`
    /// means that no object exists at the key. Planners use [`Planner::describe`] instead.
    pub fn explains(
        mut self,
        explain: impl Fn(&Key, Timestamp) -> Option<(Description, Vec<String>)> + Send + Sync + 'static,
    ) -> Self {
        self.explain = Some(Arc::new(explain));
        self
    }

    /// Builds a controller that runs a pure planner.
    pub fn planned(self, planner: impl Planner) -> Controller {
        self.planned_with(planner, ())
    }

    /// Like [`Builder::planned`], with a handler that counts the planner's passes and notifies its event handlers.
    pub fn planned_with<P: Planner>(self, planner: P, handler: impl PassHandler<P>) -> Controller {
        let status_throttle = Arc::clone(&self.status_throttle);
        let planning_lock = self.plans_in_turn.then(Mutex::default);
        self.build(Box::new(move |executor, _, env| {
            let (memories, clock) = (Memories::default(), env.clock.clone());
            Box::new(PlannerReconciler {
                planner,
                handler,
                memories,
                executor,
                clock,
                status_throttle,
                planning_lock,
            })
        }))
    }

    /// Builds a controller that runs an async function, for work that needs I/O between its decisions.
    pub fn reconcile<F, Fut>(self, function: F) -> Controller
    where
        F: Fn(Request, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        let explain = self.explain.clone();
        self.build(Box::new(|executor, series, env| {
            let Executor { client, events, barrier, .. } = executor;
            let env = Env { client, ..env.clone() };
            Box::new(FunctionReconciler {
                function,
                context: Context { env, events, series, barrier, recorded: Arc::default() },
                explain,
            })
        }))
    }

    /// Builds a controller without a planner: `map` receives each key, and enqueues keys of another controller. This is for
    /// events that affect so many keys, or take so long to map, that event handlers should not wait.
    pub fn enqueues(
        self,
        queue: Queue<Key>,
        map: impl Fn(&Key, &mut dyn FnMut(Key)) + Send + Sync + 'static,
    ) -> Controller {
        // The keys of the other controller may be in any shard.
        let this = Self { env: Env { shards: None, ..self.env.clone() }, ..self };
        this.build(Box::new(|_, _, _| Box::new(EnqueueReconciler { map, queue })))
    }

    /// Calls `handle` with the events of a cache of any type. Compiled once, unlike its typed callers.
    fn watch(mut self, informer: &Arc<Reader>, handle: Handle) -> Self {
        self.subscriptions.push((Arc::clone(informer), handle));
        self
    }

    fn build(self, reconcile: MakeReconcile) -> Controller {
        let Self {
            env,
            shared_client,
            local_work,
            name,
            queue,
            workers,
            max_retries,
            component,
            event_source,
            stale_skips,
            passes,
            batch_period,
            status_throttle,
            backoff,
            rate_limiter,
            recovers_panics,
            needs_leader_election,
            mut declared,
            subscriptions,
            caches,
            root,
            sources,
            logs_each_failure,
            series_events,
            ..
        } = self;
        let component = component.as_deref().unwrap_or(&name);
        let queue = queue.as_deref().unwrap_or(&name);
        let queues = &env.metrics.queues;
        let queue = match rate_limiter {
            None => Queue::with_backoff(queue, queues, backoff, &env.clock),
            Some(limiter) => Queue::with_rate_limiter(queue, queues, limiter, &env.clock),
        };
        let barrier = Arc::new(Barrier::new(queue.clone(), env.clock.clone()));
        let client = env.client.with_user_agent(component);
        // The fence of a shard does not depend on the leader. Only the leader connects to other clusters.
        let is_leaders = needs_leader_election || env.shards.is_some() || !env.cluster.is_empty();
        let client = if is_leaders { client } else { client.without_fence() };
        let source = event_source.as_deref().unwrap_or(component);
        let events = EventRecorder::new(client.clone(), source, env.clock.clone());
        let series = series_events.map(|instance| {
            SeriesEventRecorder::new(client.clone(), source, &instance, env.clock.clone())
        });
        let executor = Executor {
            client,
            shared_client,
            events: events.clone(),
            barrier: barrier.clone(),
            local_work,
        };
        let reconcile = reconcile(executor, series.clone(), &env);
        let causes = reconcile.is_function().then(Arc::<Causes>::default);
        subscriptions.iter().for_each(|(cache, _)| caches.add(cache));
        declared.complete(&name, &root, subscriptions.iter().map(|(cache, _)| cache.scope()));
        declared.records_series = series.is_some();
        barrier.set_caches(WatchedCaches::of(&caches.list()));
        let subscriptions: Vec<(Arc<Reader>, Arc<Handle>)> = subscriptions
            .into_iter()
            .map(|(informer, handle)| (informer, Arc::new(handle)))
            .collect();
        let filter = Filter::of(env.shards.as_ref());
        let subscribe = subscriptions
            .iter()
            .map(|(informer, handle)| {
                let (period, causes) = (batch_period, causes.as_ref());
                let (informer, handle) = (Arc::clone(informer), Arc::clone(handle));
                let (normal_priority, low_priority) =
                    Enqueue::by_priority(&queue, &barrier, period, &filter, causes);
                let normal_priority = normal_priority.throttled(&status_throttle);
                subscription(informer, handle, normal_priority, low_priority, &barrier)
            })
            .collect();
        let replay = env.shards.clone().map(|shards| Replay {
            shards,
            subscriptions: Mutex::new(subscriptions),
            batch_period,
        });
        let shared = Shared {
            name: Arc::clone(&name),
            queue,
            failures: Failures::default(),
            barrier,
            history: if reconcile.is_function() { History::of_all() } else { History::default() },
            reconcile,
            causes,
            metrics: env.metrics.of(&name, workers, stale_skips, passes),
            max_retries,
            events,
            series,
            clock: env.clock.clone(),
            cluster: Arc::clone(&env.cluster),
            started: AtomicBool::new(false),
            root,
            workers,
            batch_period,
            caches,
            subscribed: Mutex::default(),
            ended: AtomicBool::new(false),
            logs_each_failure,
            recovers_panics,
            panicked: PanicSignal::default(),
            replay,
        };
        let shared = Arc::new(shared);
        let inspect: Arc<dyn Inspect> = Arc::clone(&shared) as _;
        env.introspection.add(&inspect);
        Controller { name, shared, subscribe, sources, needs_leader_election, declared }
    }
}

/// Returns the function that subscribes a queue to a cache's events.
pub(super) fn subscription(
    informer: Arc<Reader>,
    handle: Arc<Handle>,
    normal_priority: Enqueue,
    low_priority: Enqueue,
    barrier: &Arc<Barrier>,
) -> Subscribe {
    let (kind, barrier) = (informer.scope().kind.clone(), Arc::clone(barrier));
    Box::new(move || {
        let id = informer.subscribe(Box::new(move |event| {
            let meta = event.object().meta();
            // Call the barrier first, so that it does not hold back a key that waited for this event.
            barrier.on_cache_event(&kind, &meta.namespace, &meta.name, &meta.uid);
            let enqueue = if has_low_priority(event) { &low_priority } else { &normal_priority };
            enqueue.set_event(|| Event::of(&kind, event));
            handle(event, enqueue, &barrier);
        }));
        Subscribed { informer: Arc::clone(informer.informer()), id }
    })
}

/// Enqueues the controller of an event's object, if it is of the root kind.
pub(super) fn enqueue_owners(root: &Kind, event: &CacheEvent<dyn Object>, enqueue: &Enqueue) {
    let owner = owner_key(root, event.object().meta());
    if let CacheEvent::Updated { old, new } = event {
        if old.meta().resource_version == new.meta().resource_version {
            return;
        }
        // When the controller reference changes, enqueue both owners.
        if let Some(key) = owner_key(root, old.meta()).filter(|key| owner.as_ref() != Some(key)) {
            enqueue.add(key);
        }
    }
    if let Some(key) = owner {
        enqueue.add(key);
    }
}

/// Forgets the writes for a deleted object. They do not concern a new object of the same name.
fn forget_deleted(event: &CacheEvent<dyn Object>, barrier: &Barrier) {
    if let CacheEvent::Deleted(object) = event {
        barrier.forget(&Key::of(object.meta()));
    }
}

/// Returns whether an event has low priority because it contains no change: an object of the initial list, or a
/// resync.
fn has_low_priority(event: &CacheEvent<dyn Object>) -> bool {
    match event {
        CacheEvent::Added { initial, .. } => *initial,
        CacheEvent::Updated { old, new } => {
            old.meta().resource_version == new.meta().resource_version
        }
        CacheEvent::Deleted(_) => false,
    }
}

/// Returns the key of the object of the root kind that controls the object with this metadata.
fn owner_key(root: &Kind, meta: &Meta) -> Option<Key> {
    owner_as_key(root, meta, meta.controller()?)
}

/// Returns the keys of all owners of the root kind of the object with this metadata.
pub(crate) fn owner_keys(root: &Kind, meta: &Meta) -> Vec<Key> {
    meta.owners.iter().filter_map(|owner| owner_as_key(root, meta, owner)).collect()
}

/// Returns the key of an owner, if it is of the root kind.
fn owner_as_key(root: &Kind, meta: &Meta, owner: &OwnerReference) -> Option<Key> {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    if *owner.kind != *root.kind || group != root.group {
        return None;
    }
    let namespace = if root.namespaced { &*meta.namespace } else { "" };
    Some(Key::new(namespace, &owner.name))
}
