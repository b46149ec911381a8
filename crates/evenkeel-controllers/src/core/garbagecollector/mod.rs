//! Garbage collector: deletes objects whose owners do not exist, and completes foreground and orphaning deletion.
//!
//! It watches the metadata of every deletable resource and keeps the graph of owner references. For each object, it
//! decides from live reads. Upstream: `pkg/controller/garbagecollector`.
//!
//! Unlike other controllers, it does not use the controller builder: its keys are uids of objects of all kinds, two
//! queues feed its workers, and the workers wait until the graph is complete.

mod absent_owner_cache;
mod act;
mod graph;
mod inspect;
#[cfg(test)]
mod model;
mod monitor;
mod plan;
mod snapshot;
#[cfg(test)]
mod tests;

pub use snapshot::Snapshot;

use crate::{
    options::Flags,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
    wiring::monitors::Monitors,
};
use evenkeel_api::Text;
use evenkeel_runtime::{
    client::{ApiError, Client},
    controller::Env,
    discovery::ServerResources,
    events::EventRecorder,
    introspect::{History, Inspect},
    latch::Latch,
    metrics,
    plan::{EventRecord, Key, Target},
    queue::{Priority, Queue},
    tasks::Tasks,
};
use graph::{Graph, Uid, Work};
use prometheus::IntCounter;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio_util::sync::CancellationToken;

/// Options of the garbage collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether the controller runs. Flag `--enable-garbage-collector`. Default: true.
    pub enabled: bool,
    /// Number of workers for each of the two queues. Flag `--concurrent-gc-syncs`. Default: 20.
    pub concurrent_syncs: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { enabled: true, concurrent_syncs: 20 }
    }
}

impl Options {
    /// Reads the options from the command line's flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self {
            enabled: flags.bool("enable-garbage-collector"),
            concurrent_syncs: flags.positive("concurrent-gc-syncs"),
        }
    }
}

/// The garbage collector. Upstream: `newGarbageCollectorControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "garbage-collector-controller",
    aliases: &["garbagecollector"],
    queue: "garbage_collector_attempt_to_delete",
    client: "generic-garbage-collector",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let options = context.options.garbagecollector;
    if !options.enabled {
        return Ok(Started::No("--enable-garbage-collector is off"));
    }
    let client = (context.clients)(DESCRIPTOR.client).with_user_agent(DESCRIPTOR.client);
    let collector = GarbageCollector::new(
        context,
        client,
        options.concurrent_syncs,
        metrics::register(&context.registry, sync_errors()),
    );
    context.monitors.follow(&context.tasks, collector.clone());
    let inspect: Arc<dyn Inspect> = Arc::new(collector.clone());
    context.env.introspection.add(&inspect);
    let stop = context.tasks.token();
    context.tasks.spawn(DESCRIPTOR.name, async move {
        collector.run(stop).await;
        drop(inspect);
    });
    Ok(Started::Yes)
}

/// The garbage collector. Clones share their state.
#[derive(Clone)]
struct GarbageCollector(Arc<Shared>);

/// State that all clones of [`GarbageCollector`] share.
struct Shared {
    env: Env,
    client: Client,
    events: EventRecorder,
    /// Graph of owner references. Only a panic during a change of the graph poisons the lock.
    graph: RwLock<Graph>,
    monitors: Monitors,
    /// Set once the graph contains every object of every resource that can be watched. The workers wait for it, because
    /// a foreground deletion looks finished while dependents are missing from the graph.
    complete: Latch,
    /// Set when a change of the graph panicked. The graph may then be incomplete.
    broken: Latch,
    /// Objects that may have to be deleted. Upstream: `attemptToDelete`.
    attempt_to_delete: Queue<Uid>,
    /// Owners whose dependents have to be orphaned. Upstream: `attemptToOrphan`.
    attempt_to_orphan: Queue<Uid>,
    /// Number of workers for each queue.
    workers: usize,
    /// Failures, for `evenkeel explain`.
    history: History,
    /// Number of failed discoveries and of cache syncs that timed out.
    sync_errors: IntCounter,
}

/// Returns upstream's counter of resource syncs that failed.
fn sync_errors() -> IntCounter {
    IntCounter::new(
        "garbagecollector_controller_resources_sync_error_total",
        "Number of garbage collector resources sync errors",
    )
    .expect("name is a valid literal")
}

impl GarbageCollector {
    /// Builds a collector that writes with `client` and runs `workers` workers for each of its queues.
    fn new(
        context: &ControllerContext,
        client: Client,
        workers: usize,
        sync_errors: IntCounter,
    ) -> Self {
        let env = &context.env;
        Self(Arc::new(Shared {
            env: env.clone(),
            events: EventRecorder::new(
                client.clone(),
                "garbage-collector-controller",
                env.clock.clone(),
            ),
            client,
            graph: RwLock::default(),
            monitors: context.monitors.clone(),
            complete: Latch::default(),
            broken: Latch::default(),
            attempt_to_delete: Queue::new(
                "garbage_collector_attempt_to_delete",
                &env.metrics.queues,
                &env.clock,
            ),
            attempt_to_orphan: Queue::new(
                "garbage_collector_attempt_to_orphan",
                &env.metrics.queues,
                &env.clock,
            ),
            workers,
            sync_errors,
            history: History::default(),
        }))
    }

    /// Runs the workers until `stop` is cancelled, then waits for the requests in flight.
    async fn run(self, stop: CancellationToken) {
        let tasks = Tasks::new();
        // The event recorder stops after the workers, so that their last events are written.
        let event_tasks = Tasks::new();
        self.0.events.start(&event_tasks);
        let complete = tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = self.0.broken.wait() => false,
            () = self.0.complete.wait() => true,
        };
        let n_workers = if complete { self.0.workers } else { 0 };
        for _ in 0..n_workers {
            for attempt in [Attempt::Delete, Attempt::Orphan] {
                let worker = self.clone();
                tasks.spawn_restarting("garbage collector", move || {
                    let worker = worker.clone();
                    async move { worker.run_worker(attempt).await }
                });
            }
        }
        // If this function returns before `stop`, the program ends. A broken graph must end the program, because with
        // an incomplete graph the collector would delete objects whose owners exist.
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.0.broken.wait() => tracing::error!("A panic has left the graph incomplete"),
        }
        // Cancel the workers before the queues shut down, so that no worker's return counts as a failure.
        tasks.token().cancel();
        self.0.attempt_to_delete.shut_down_now();
        self.0.attempt_to_orphan.shut_down_now();
        tasks.join().await;
        event_tasks.token().cancel();
        event_tasks.join().await;
    }

    /// Processes the objects of one queue until the queue shuts down.
    async fn run_worker(&self, attempt: Attempt) {
        let queue = match attempt {
            Attempt::Delete => &self.0.attempt_to_delete,
            Attempt::Orphan => &self.0.attempt_to_orphan,
        };
        while let Some(uid) = queue.next().await {
            queue.process(&uid, self.process(attempt, queue, &uid)).await;
        }
    }

    /// Processes one object. After a failure, requeues it with backoff.
    async fn process(&self, attempt: Attempt, queue: &Queue<Uid>, uid: &Uid) {
        let result = match attempt {
            Attempt::Delete => self.attempt_to_delete_item(uid).await,
            Attempt::Orphan => self.orphan_dependents(uid).await,
        };
        match result {
            Ok(()) => queue.forget(uid),
            Err(error) => {
                tracing::debug!(uid = &**uid, %error, "Failed to process the object; retrying with backoff");
                self.record_failure(uid, &error);
                queue.add_rate_limited(uid.clone());
            }
        }
    }

    /// Records a failure, for `evenkeel explain`.
    fn record_failure(&self, uid: &Uid, error: &ProcessError) {
        let coordinates = self.graph().node(uid).map(|node| node.coordinates.clone());
        let Some(coordinates) = coordinates else { return };
        let key = Key { namespace: coordinates.namespace.into(), name: coordinates.name.into() };
        self.0.history.failed(&key, self.0.env.clock.now(), &error.to_string());
    }

    /// Locks the graph for reading. If a change of the graph panicked, also ends the controller.
    fn graph(&self) -> RwLockReadGuard<'_, Graph> {
        self.0.graph.read().unwrap_or_else(|poisoned| {
            self.0.broken.set();
            poisoned.into_inner()
        })
    }

    /// Locks the graph for a change. If an earlier change panicked, also ends the controller.
    fn graph_mut(&self) -> RwLockWriteGuard<'_, Graph> {
        self.0.graph.write().unwrap_or_else(|poisoned| {
            self.0.broken.set();
            poisoned.into_inner()
        })
    }

    /// Returns the resources that the API server serves.
    fn discovered(&self) -> Arc<ServerResources> {
        self.0.monitors.discovered()
    }

    /// Enqueues the objects that a change of the graph affects, and records events about owner references to other
    /// namespaces.
    fn enqueue(&self, work: Work) {
        for uid in work.attempt_to_delete {
            self.0.attempt_to_delete.add(uid, Priority::NORMAL);
        }
        for uid in work.attempt_to_orphan {
            self.0.attempt_to_orphan.add(uid, Priority::NORMAL);
        }
        for (uid, owner) in work.invalid_namespace {
            let Some(coordinates) = self.graph().node(&uid).map(|node| node.coordinates.clone())
            else {
                continue;
            };
            let Some(resource) =
                self.discovered().of_kind(&coordinates.api_version, &coordinates.kind).cloned()
            else {
                continue;
            };
            let message = format!(
                "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
                owner.api_version,
                owner.kind,
                coordinates.namespace,
                owner.name,
                owner.uid,
                coordinates.namespace
            );
            let target =
                Target::new(resource.kind, &coordinates.namespace, &coordinates.name, &uid);
            self.0.events.record(&EventRecord::warning(
                target,
                "OwnerRefInvalidNamespace",
                message,
            ));
        }
    }
}

/// Kind of attempt that a worker makes for an object. Each kind has its own queue.
#[derive(Debug, Clone, Copy)]
enum Attempt {
    /// Deletes an object without existing owners. Upstream: `attemptToDeleteItem`.
    Delete,
    /// Removes the references of dependents to a deleted object. Upstream: `attemptToOrphan`.
    Orphan,
}

/// Error of an attempt. The object returns to its queue with backoff.
#[derive(Debug, thiserror::Error)]
enum ProcessError {
    /// The API server refused a request or did not respond.
    #[error("request failed: {0}")]
    Api(#[from] ApiError),
    /// Discovery found no resource for this kind, at least not yet. Upstream: `restMappingError`.
    #[error("no resource is known for {kind} in {api_version}")]
    UnknownKind {
        /// Group and version, as in the reference.
        api_version: Text,
        /// The kind, as in the reference.
        kind: Text,
    },
    /// The object of a virtual node exists, but its watch event has not arrived. Upstream: the "not observed
    /// yet" requeue of `attemptToDeleteWorker`.
    #[error("not seen by its watch yet")]
    Unobserved,
}
