//! The garbage collector: deletes what its owners left behind, and carries out foreground and orphaning deletion.
//!
//! Watches the metadata of everything that can be deleted, keeps the graph of owners, and decides about one object at a
//! time from live reads. Upstream: `pkg/controller/garbagecollector`.

mod absent;
mod act;
mod graph;
mod inspect;
#[cfg(test)]
mod model;
mod monitor;
mod once;
mod plan;

pub use once::Snapshot;

use crate::{
    descriptor::{ControllerContext, Descriptor, StartError},
    monitors::Monitors,
    options::Flags,
};
use evenkeel_api::Text;
use evenkeel_runtime::{
    client::{ApiError, Client},
    controller::Env,
    discovery::Discovered,
    events::Recorder,
    introspect::{History, Inspect},
    latch::Latch,
    metrics,
    plan::{Key, Note, Target},
    queue::{Priority, Queue},
    tasks::Tasks,
};
use graph::{Graph, Uid, Work};
use prometheus::IntCounter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// What the controller can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether it runs at all; `--enable-garbage-collector`.
    pub enabled: bool,
    /// How many objects are worked on at the same time; `--concurrent-gc-syncs`.
    pub concurrent_syncs: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { enabled: true, concurrent_syncs: 20 }
    }
}

impl Options {
    /// What the flags say.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self {
            enabled: flags.bool("enable-garbage-collector"),
            concurrent_syncs: flags.workers("concurrent-gc-syncs"),
        }
    }
}

/// The garbage collector.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "garbage-collector-controller",
    aliases: &["garbagecollector"],
    queue: "garbage_collector_attempt_to_delete",
    client: "generic-garbage-collector",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let options = context.options.garbagecollector;
    if options.enabled {
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
    }
    Ok(())
}

/// The collector; clones share it.
#[derive(Clone)]
struct GarbageCollector(Arc<Shared>);

struct Shared {
    env: Env,
    client: Client,
    events: Recorder,
    graph: Mutex<Graph>,
    monitors: Monitors,
    /// The graph has all that there is, as far as it can be watched. Nobody works before: what a graph without the dependents
    /// says of an owner that waits for them is that nothing holds it.
    complete: Latch,
    delete: Queue<Uid>,
    orphan: Queue<Uid>,
    workers: usize,
    history: History,
    /// Times that resources could not be found, or their objects not be seen in time.
    sync_errors: IntCounter,
}

/// Upstream's count of times that the collector did not get sight of all resources.
fn sync_errors() -> IntCounter {
    IntCounter::new(
        "garbagecollector_controller_resources_sync_error_total",
        "Times that the resources to collect could not be found, or their objects not be seen in time.",
    )
    .expect("name is a valid literal")
}

impl GarbageCollector {
    /// A collector that writes with `client`, with this many workers for each of its queues.
    fn new(
        context: &ControllerContext,
        client: Client,
        workers: usize,
        sync_errors: IntCounter,
    ) -> Self {
        let env = &context.env;
        Self(Arc::new(Shared {
            env: env.clone(),
            events: Recorder::new(
                client.clone(),
                "garbage-collector-controller",
                env.clock.clone(),
            ),
            client,
            graph: Mutex::default(),
            monitors: context.monitors.clone(),
            complete: Latch::default(),
            delete: Queue::new("garbage_collector_attempt_to_delete", &env.metrics.queues),
            orphan: Queue::new("garbage_collector_attempt_to_orphan", &env.metrics.queues),
            workers,
            sync_errors,
            history: History::default(),
        }))
    }

    /// Runs until `stop`, then finishes what is under way.
    async fn run(self, stop: CancellationToken) {
        let tasks = Tasks::new();
        // Ends after the workers: their last events are still written.
        let late = Tasks::new();
        self.0.events.start(&late);
        let complete = stop.run_until_cancelled(self.0.complete.wait()).await.is_some();
        let workers = if complete { self.0.workers } else { 0 };
        for _ in 0..workers {
            for job in [Job::Delete, Job::Orphan] {
                let worker = self.clone();
                tasks.spawn("garbage collector", async move { worker.work(job).await });
            }
        }
        stop.cancelled().await;
        self.0.delete.shut_down_now();
        self.0.orphan.shut_down_now();
        tasks.join().await;
        late.token().cancel();
        late.join().await;
    }

    async fn work(&self, job: Job) {
        let queue = match job {
            Job::Delete => &self.0.delete,
            Job::Orphan => &self.0.orphan,
        };
        while let Some(uid) = queue.next().await {
            let done = match job {
                Job::Delete => self.visit(&uid).await,
                Job::Orphan => self.orphan(&uid).await,
            };
            match done {
                Ok(()) => queue.forget(&uid),
                Err(error) => {
                    tracing::debug!(uid = &*uid, %error, "Object could not be looked at");
                    self.remember(&uid, &error);
                    queue.add_rate_limited(uid.clone());
                }
            }
            queue.done(&uid);
        }
    }

    /// Notes a failure for who asks.
    fn remember(&self, uid: &Uid, error: &Failed) {
        let place = self.graph().node(uid).map(|node| node.place.clone());
        let Some(place) = place else { return };
        let key = Key { namespace: place.namespace.into(), name: place.name.into() };
        self.0.history.failed(&key, self.0.env.clock.now(), &error.to_string());
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.0.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn discovered(&self) -> Arc<Discovered> {
        self.0.monitors.discovered()
    }

    fn enqueue(&self, work: Work) {
        for uid in work.delete {
            self.0.delete.add(uid, Priority::NORMAL);
        }
        for uid in work.orphan {
            self.0.orphan.add(uid, Priority::NORMAL);
        }
        for (uid, owner) in work.invalid {
            let Some(place) = self.graph().node(&uid).map(|node| node.place.clone()) else {
                continue;
            };
            let Some(resource) =
                self.discovered().of_kind(&place.api_version, &place.kind).cloned()
            else {
                continue;
            };
            let message = format!(
                "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
                owner.api_version,
                owner.kind,
                place.namespace,
                owner.name,
                owner.uid,
                place.namespace
            );
            let target = Target::new(resource.kind, &place.namespace, &place.name, &uid);
            self.0.events.record(&Note::warning(target, "OwnerRefInvalidNamespace", message));
        }
    }
}

/// What a worker does with an object.
#[derive(Debug, Clone, Copy)]
enum Job {
    /// Looks whether it has to be deleted.
    Delete,
    /// Frees its dependents of it.
    Orphan,
}

/// Why an object has to be looked at again.
#[derive(Debug, thiserror::Error)]
enum Failed {
    /// A request failed.
    #[error("request failed: {0}")]
    Api(#[from] ApiError),
    /// The server does not say (yet) what this kind is.
    #[error("no resource is known for {kind} in {api_version}")]
    UnknownKind {
        /// Version.
        api_version: Text,
        /// Kind.
        kind: Text,
    },
    /// It is known from references only so far, but it exists.
    #[error("not seen by its watch yet")]
    Unobserved,
}
