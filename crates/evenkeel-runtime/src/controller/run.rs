//! Workers, which take keys from the queue, reconcile them, and requeue them if necessary.

use super::{
    barrier::{Barrier, WatchedCaches},
    metrics::Handles,
    reconcile::{Passed, Reconcile, Request},
};
use crate::{
    cache::Informer,
    client::full_text,
    clock::Clock,
    events::EventRecorder,
    introspect::{History, RecordedActions},
    plan::Key,
    queue::Queue,
    tasks::{Tasks, catch_panic},
};
use evenkeel_api::Kind;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Next number of a reconciliation, unique in the process, which identifies its log lines.
static RECONCILE_ID: AtomicU64 = AtomicU64::new(1);

/// Function that subscribes the queue to a cache's events.
pub(super) type Subscribe = Box<dyn FnOnce() + Send>;

/// Controller that is ready to run.
#[must_use = "a controller does nothing until run"]
pub struct Controller {
    pub(super) name: Arc<str>,
    pub(super) workers: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) subscribe: Vec<Subscribe>,
    pub(super) watched_caches: WatchedCaches,
}

pub(super) struct Shared {
    pub(super) name: Arc<str>,
    pub(super) queue: Queue<Key>,
    pub(super) barrier: Arc<Barrier>,
    pub(super) reconcile: Box<dyn Reconcile>,
    pub(super) metrics: Handles,
    pub(super) max_retries: Option<u32>,
    pub(super) events: EventRecorder,
    pub(super) clock: Clock,
    /// Whether the workers were started.
    pub(super) started: AtomicBool,
    pub(super) root: Kind,
    pub(super) workers: usize,
    pub(super) caches: Vec<Arc<Informer>>,
    pub(super) history: History,
}

impl Controller {
    /// Returns the name of the controller.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the controller's workqueue.
    pub fn queue(&self) -> Queue<Key> {
        self.shared.queue.clone()
    }

    /// Waits for the caches, then reconciles keys until `stop` is cancelled. Then finishes the keys in progress and
    /// writes their events.
    pub async fn run(self, stop: CancellationToken) {
        let Self { name, workers, shared, subscribe, watched_caches } = self;
        shared.barrier.set_caches(watched_caches);
        subscribe.into_iter().for_each(|subscribe| subscribe());
        for cache in &shared.caches {
            if stop.run_until_cancelled(cache.synced().wait()).await.is_none() {
                return;
            }
        }
        tracing::info!(controller = %name, workers, "starting workers");
        shared.started.store(true, Ordering::Relaxed);
        let tasks = Tasks::new();
        // This group stops after the workers, so that their last events are written.
        let late = Tasks::new();
        shared.events.start(&late);
        let barrier = Arc::clone(&shared.barrier);
        tasks.spawn_restarting_until_cancelled(format!("{name} barrier"), move || {
            let barrier = Arc::clone(&barrier);
            async move { barrier.sweep().await }
        });
        for n in 0..workers.max(1) {
            let shared = Arc::clone(&shared);
            tasks.spawn_restarting(format!("{name} worker {n}"), move || work(Arc::clone(&shared)));
        }
        stop.cancelled().await;
        // Cancel the tasks before the queue shuts down, because a worker that returns before counts as failed.
        tasks.token().cancel();
        shared.queue.shut_down_now();
        tasks.join().await;
        late.token().cancel();
        late.join().await;
        tracing::info!(controller = %name, "stopped");
    }
}

async fn work(shared: Arc<Shared>) {
    while let Some(key) = shared.queue.next().await {
        shared.queue.process(&key, shared.admitted(&key)).await;
    }
}

impl Shared {
    /// Reconciles a key, unless the barrier holds it.
    async fn admitted(&self, key: &Key) {
        match self.barrier.admit(key) {
            Ok(()) => self.handle(key).await,
            Err(kind) => self.metrics.stale(&kind.group, &kind.plural),
        }
    }

    async fn handle(&self, key: &Key) {
        let attempt = self.queue.num_requeues(key);
        let reconcile_id = RECONCILE_ID.fetch_add(1, Ordering::Relaxed);
        let span = tracing::info_span!(
            "reconcile",
            controller = &*self.name,
            namespace = &*key.namespace,
            name = &*key.name,
            attempt,
            reconcile_id
        );
        let request = Request { key: key.clone(), attempt, reconcile_id };
        let (start, now) = (self.clock.instant(), self.clock.now());
        self.metrics.active.inc();
        let mut recorded = RecordedActions::default();
        let passed = self.guarded(request, &mut recorded).instrument(span.clone()).await;
        self.metrics.active.dec();
        let took = start.elapsed();
        self.metrics.passed(took, passed.as_ref().err().map(|error| &*error.source));
        let text = passed.as_ref().err().map(|error| full_text(&*error.source));
        let result = match (&passed, &text) {
            (Err(_), Some(text)) => Err(&**text),
            (passed, _) => Ok(passed.as_ref().ok().copied().flatten()),
        };
        self.history.passed(key, (self.clock.now(), took), recorded, result);
        let _entered = span.enter();
        tracing::trace!(%now, "reconciled");
        self.conclude(key, attempt, passed, text.as_deref().unwrap_or_default());
    }

    /// Reconciles a key. A panic becomes a failure of this key only, which is retried with backoff, like with
    /// controller-runtime's `RecoverPanic`.
    async fn guarded(&self, request: Request, recorded: &mut RecordedActions) -> Passed {
        // A panic leaves no invalid state: the planner is only borrowed, and our locks ignore poison.
        let work = async { self.reconcile.reconcile(request, recorded).await };
        catch_panic(work).await.unwrap_or_else(|panic| {
            self.metrics.panics.inc();
            tracing::error!(panic, "reconciliation panicked");
            Err(super::Error::message(format!("panic: {panic}")))
        })
    }

    /// Requeues or forgets a key after a pass, and logs its error.
    fn conclude(&self, key: &Key, attempt: u32, passed: Passed, text: &str) {
        match passed {
            Ok(requeue) => {
                self.queue.forget(key);
                self.metrics.result(if requeue.is_some() { "requeue_after" } else { "success" });
                if let Some(after) = requeue {
                    self.queue.add_after(key.clone(), after);
                }
            }
            Err(error) => {
                self.metrics.result("error");
                if error.terminal {
                    self.queue.forget(key);
                    tracing::error!(error = text, "reconciliation failed, not retried");
                } else if self.max_retries.is_some_and(|max| attempt >= max) {
                    self.queue.forget(key);
                    tracing::error!(
                        error = text,
                        "reconciliation failed too often, given up until the next change"
                    );
                } else {
                    // A single failure, for example a conflict or a stale cache, is usual. Warn only about the third
                    // consecutive one.
                    if attempt == 2 {
                        tracing::warn!(
                            error = text,
                            "reconciliation keeps failing, will be retried"
                        );
                    } else {
                        tracing::debug!(error = text, "reconciliation failed, will be retried");
                    }
                    self.queue.add_rate_limited(key.clone());
                }
            }
        }
    }
}
