//! Declares a controller: which kind it reconciles, and which events name which keys.

use super::{
    Context, Controller, Enqueue, Env, Error, Outcome, Request,
    barrier::{Barrier, Window, Windows},
    execute::{Executor, LocalWork},
    memory::Memories,
    pass::Planned,
    reconcile::{Enqueuer, Explain, Function, Reconcile},
    run::{Shared, Subscribe, Synced},
    status_throttle::StatusThrottle,
};
use crate::{
    cache::{Cache, CacheEvent},
    client::Client,
    events::EventRecorder,
    introspect::{CacheState, Description, History, Inspect},
    plan::{Key, Local, PassHandler, Planner},
    queue::{Backoff, Priority, Queue},
};
use evenkeel_api::{Kind, Meta, View, time::Timestamp};
use futures::future::BoxFuture;
use std::{
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

/// A controller under construction. The kind that it reconciles comes first and its function last, so that neither can
/// be missing or given twice.
#[must_use = "a builder does nothing until `planned` or `reconcile`"]
pub struct Builder {
    env: Env,
    shared: Client,
    local: Option<LocalWork>,
    name: Arc<str>,
    root: Kind,
    queue: Option<String>,
    workers: usize,
    max_retries: Option<u32>,
    component: Option<String>,
    event_source: Option<String>,
    stale_skips: Option<&'static str>,
    passes: Option<&'static str>,
    batch: Duration,
    status_throttle: Duration,
    turns: bool,
    backoff: Backoff,
    subscriptions: Vec<Subscription>,
    synced: Vec<Synced>,
    windows: Windows,
    states: Vec<Box<dyn Fn() -> CacheState + Send + Sync>>,
    explain: Option<Explain>,
}

type Subscription = Box<dyn FnOnce(Queue<Key>, Arc<Barrier>, Duration) -> Subscribe + Send>;

impl Builder {
    /// A controller of the objects in `root`: each add, update and delete of one enqueues its key.
    pub fn new<V: View>(env: &Env, name: &str, root: &Cache<V>) -> Self {
        Self::watching(env, name, root, |event, enqueue| {
            enqueue.add(Key::of(event.object().meta()));
        })
    }

    /// Returns a builder of a controller of the objects in `root`. `map` gets each add, update and delete, and enqueues keys.
    pub fn watching<V: View>(
        env: &Env,
        name: &str,
        root: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Self {
        Self::of_keys(env, name, root.kind().clone()).watch(root, move |event, enqueue, barrier| {
            if let CacheEvent::Deleted(object) = event {
                // Writes for the deleted object do not matter to a new one of the same name.
                barrier.forget(&Key::of(object.meta()));
            }
            map(event, enqueue);
        })
    }

    /// Returns a builder of a controller without a cache of its root kind: its watches enqueue the keys. `root` is the kind of
    /// the keys' objects; a kind that does not exist if the keys are no objects.
    pub fn of_keys(env: &Env, name: &str, root: Kind) -> Self {
        Self {
            env: env.clone(),
            shared: env.client.clone(),
            local: None,
            name: Arc::from(name),
            root,
            queue: None,
            workers: 1,
            max_retries: None,
            component: None,
            event_source: None,
            stale_skips: None,
            passes: None,
            batch: Duration::ZERO,
            status_throttle: Duration::ZERO,
            turns: false,
            backoff: Backoff::default(),
            subscriptions: Vec::new(),
            synced: Vec::new(),
            windows: Windows::default(),
            states: Vec::new(),
            explain: None,
        }
    }

    /// Replaces the controller's name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Arc::from(name);
        self
    }

    /// Sets the name of the queue in metrics; the controller's name by default.
    pub fn queue(mut self, name: &str) -> Self {
        self.queue = Some(name.to_owned());
        self
    }

    /// Sets the number of keys that are reconciled concurrently; 1 by default.
    pub fn workers(mut self, n: usize) -> Self {
        self.workers = n;
        self
    }

    /// Limits the retries of a key in a row; after them, it waits for its next event. Unlimited by default.
    pub fn max_retries(mut self, n: u32) -> Self {
        self.max_retries = Some(n);
        self
    }

    /// Sets the component in events and the user agent; the controller's name by default.
    pub fn component(mut self, name: &str) -> Self {
        self.component = Some(name.to_owned());
        self
    }

    /// Sets the component in events, where it differs from the user agent's.
    pub fn event_source(mut self, name: &str) -> Self {
        self.event_source = Some(name.to_owned());
        self
    }

    /// Delays a key by `period` after the first event that names it, so that one pass handles all events until then (upstream's
    /// batch periods). No delay by default.
    pub fn batch_period(mut self, period: Duration) -> Self {
        self.batch = period;
        self
    }

    /// Throttles status writes of one key: the first change is written at once, those within `period` after a write together at
    /// its end. The status of a pass with other writes is not delayed. Default: no throttle.
    pub fn min_status_interval(mut self, period: Duration) -> Self {
        self.status_throttle = period;
        self
    }

    /// Plans keys one after the other, while actions of several keys run concurrently: for planners that observe what
    /// [`PassHandler::on_planned`] records of other keys' plans, such as allocated CIDRs.
    pub fn plans_in_turn(mut self) -> Self {
        self.turns = true;
        self
    }

    /// Sets the backoff of failed keys; client-go's default by default.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the client of the controller's writes, for credentials of its own.
    pub fn client(mut self, client: Client) -> Self {
        self.env.client = client;
        self
    }

    /// Names the counter of passes that were delayed because the cache does not show the key's own writes yet, such as
    /// `replicaset_controller_stale_sync_skips_total`.
    pub fn stale_skips_metric(mut self, name: &'static str) -> Self {
        self.stale_skips = Some(name);
        self
    }

    /// Counts passes by the status code of what failed in them (200 if nothing did) as `<name>_sync_total{code}`, and their
    /// seconds as `<name>_sync_duration_seconds{code}`: upstream's publishers of certificates have such metrics.
    pub fn passes_metric(mut self, name: &'static str) -> Self {
        self.passes = Some(name);
        self
    }

    /// Enqueues the controller of an object in `cache` on its events, if that is of the root kind.
    pub fn owns<V: View>(self, cache: &Cache<V>) -> Self {
        let root = self.root.clone();
        self.watch(cache, move |event, enqueue, _| {
            let owner = owner_key(&root, event.object().meta());
            if let CacheEvent::Updated { old, new } = event {
                if old.meta().resource_version == new.meta().resource_version {
                    return;
                }
                // When the controller reference changes, both owners are enqueued.
                if let Some(key) =
                    owner_key(&root, old.meta()).filter(|key| owner.as_ref() != Some(key))
                {
                    enqueue.add(key);
                }
            }
            if let Some(key) = owner {
                enqueue.add(key);
            }
        })
    }

    /// Events of objects in `cache` are shown to `map`, which names the keys they concern. It may look into caches and
    /// does nothing else.
    pub fn watches<V: View>(
        self,
        cache: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Self {
        self.watch(cache, move |event, enqueue, _| map(event, enqueue))
    }

    /// Waits for `cache` at start, and for own writes to show in it, but no event of it enqueues anything.
    pub fn reads<V: View>(self, cache: &Cache<V>) -> Self {
        self.watch(cache, |_, _, _| {})
    }

    /// Does the planner's [`Action::Local`](crate::plan::Action::Local), or says why it cannot.
    pub fn local_work(
        mut self,
        work: impl Fn(&Local) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Self {
        self.local = Some(Arc::new(work));
        self
    }

    /// Says what an async function sees of a key, and what it would do next (a line each), for who asks; `None` when there is
    /// nothing at the key. Planners speak for themselves ([`Planner::describe`]).
    pub fn explains(
        mut self,
        explain: impl Fn(&Key, Timestamp) -> Option<(Description, Vec<String>)> + Send + Sync + 'static,
    ) -> Self {
        self.explain = Some(Arc::new(explain));
        self
    }

    /// Runs a pure planner.
    pub fn planned(self, planner: impl Planner) -> Controller {
        self.planned_with(planner, ())
    }

    /// As [`Builder::planned`], with a handler that counts its passes and keeps event handlers informed.
    pub fn planned_with<P: Planner>(self, planner: P, handler: impl PassHandler<P>) -> Controller {
        let (status_throttle, turns) =
            (StatusThrottle::new(self.status_throttle), self.turns.then(Mutex::default));
        self.build(|executor, env| {
            let (memories, clock) = (Memories::default(), env.clock.clone());
            Box::new(Planned {
                planner,
                handler,
                memories,
                executor,
                clock,
                status_throttle,
                turns,
            })
        })
    }

    /// Runs an async function, for what has to do I/O midway.
    pub fn reconcile<F, Fut>(self, function: F) -> Controller
    where
        F: Fn(Request, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        let explain = self.explain.clone();
        self.build(|executor, env| {
            let Executor { client, events, barrier, .. } = executor;
            let env = Env { client, ..env.clone() };
            Box::new(Function { function, context: Context { env, events, barrier }, explain })
        })
    }

    /// Runs no planner: each key of this controller enqueues keys of another one, which `map` passes to its argument. For
    /// events that concern so many keys, or take so long to map, that no event handler should wait for it.
    pub fn enqueues(
        self,
        queue: Queue<Key>,
        map: impl Fn(&Key, &mut dyn FnMut(Key)) + Send + Sync + 'static,
    ) -> Controller {
        self.build(|_, _| Box::new(Enqueuer { map, queue }))
    }

    fn watch<V: View>(
        mut self,
        cache: &Cache<V>,
        handle: impl Fn(&CacheEvent<V>, &Enqueue, &Barrier) + Send + Sync + 'static,
    ) -> Self {
        let (kind, cache) = (cache.kind().clone(), cache.clone());
        let (seen, looked_up, waited_for) = (cache.clone(), cache.clone(), cache.clone());
        let state_of = cache.clone();
        self.states.push(Box::new(move || state_of.state()));
        let window = Window {
            version: Box::new(move || seen.version()),
            find: Box::new(move |namespace, name| {
                let found = looked_up.get(namespace, name)?;
                Some((Arc::from(&*found.meta().uid), found.meta().deleting()))
            }),
        };
        self.windows.0.entry(kind.clone()).or_insert(window);
        self.synced.push(Box::new(move || {
            let cache = waited_for.clone();
            Box::pin(async move { cache.synced().await })
        }));
        self.subscriptions.push(Box::new(move |queue, barrier, batch| {
            let fresh = Enqueue::new(&queue, &barrier, Priority::NORMAL, batch);
            let patient = Enqueue::new(&queue, &barrier, Priority::LOW, batch);
            Box::new(move || {
                cache.subscribe(move |event: &CacheEvent<V>| {
                    let meta = event.object().meta();
                    // First, so that a key that waited for this very event is not held back by it.
                    barrier.moved(&kind, &meta.namespace, &meta.name, &meta.uid);
                    handle(event, if gives_way(event) { &patient } else { &fresh }, &barrier);
                });
            })
        }));
        self
    }

    fn build(self, reconcile: impl FnOnce(Executor, &Env) -> Box<dyn Reconcile>) -> Controller {
        let Self {
            env,
            shared,
            local,
            name,
            queue,
            workers,
            max_retries,
            component,
            event_source,
            stale_skips,
            passes,
            batch,
            backoff,
            subscriptions,
            synced,
            windows,
            root,
            states,
            ..
        } = self;
        let component = component.as_deref().unwrap_or(&name);
        let queue = queue.as_deref().unwrap_or(&name);
        let queue = Queue::with_backoff(queue, &env.metrics.queues, backoff, &env.clock);
        let barrier = Arc::new(Barrier::new(queue.clone(), env.clock.clone()));
        let client = env.client.with_user_agent(component);
        let source = event_source.as_deref().unwrap_or(component);
        let events = EventRecorder::new(client.clone(), source, env.clock.clone());
        let executor =
            Executor { client, shared, events: events.clone(), barrier: barrier.clone(), local };
        let subscribe = subscriptions
            .into_iter()
            .map(|subscribe| subscribe(queue.clone(), Arc::clone(&barrier), batch))
            .collect();
        let shared = Shared {
            name: Arc::clone(&name),
            queue,
            barrier,
            reconcile: reconcile(executor, &env),
            metrics: env.metrics.of(&name, workers, stale_skips, passes),
            max_retries,
            events,
            clock: env.clock.clone(),
            started: AtomicBool::new(false),
            root,
            workers,
            caches: states,
            history: History::default(),
        };
        let shared = Arc::new(shared);
        let inspect: Arc<dyn Inspect> = Arc::clone(&shared) as _;
        env.introspection.add(&inspect);
        Controller { name, workers, shared, subscribe, synced, windows }
    }
}

/// Whether an event tells nothing new: the initial list, or an update that changed nothing (a resync).
fn gives_way<V: View>(event: &CacheEvent<V>) -> bool {
    match event {
        CacheEvent::Added { initial, .. } => *initial,
        CacheEvent::Updated { old, new } => {
            old.meta().resource_version == new.meta().resource_version
        }
        CacheEvent::Deleted(_) => false,
    }
}

/// Key of the object of the root kind that controls the object with this metadata.
fn owner_key(root: &Kind, meta: &Meta) -> Option<Key> {
    let owner = meta.controller()?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    if *owner.kind != *root.kind || group != root.group {
        return None;
    }
    let namespace = if root.namespaced { &*meta.namespace } else { "" };
    Some(Key::new(namespace, &owner.name))
}
