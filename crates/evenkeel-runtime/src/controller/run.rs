//! Workers, which take keys from the queue, reconcile them, and requeue them if necessary.

use super::{
    barrier::Barrier,
    causes::{Cause, Causes},
    failures::Failures,
    metrics::ControllerMetrics,
    reconcile::{PassError, PassResult, Reconcile, Request},
    shards::Replay,
    watched::{ControllerCaches, Subscribed, WatchedCaches},
};
use crate::{
    cache::{Informer, Reader},
    client::full_text,
    clock::Clock,
    events::{EventRecorder, SeriesEventRecorder},
    introspect::{History, RecordedActions},
    latch::Latch,
    permissions::DeclaredAccess,
    plan::Key,
    queue::{Priority, Queue},
    sharding::{Admission, Shards},
    tasks::{Tasks, catch_panic},
};
use evenkeel_api::Kind;
use futures::{StreamExt as _, stream::BoxStream};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Next number of a reconciliation, unique in the process, which identifies its log lines.
static RECONCILE_ID: AtomicU64 = AtomicU64::new(1);

/// Function that subscribes the queue to a cache's events.
pub(super) type Subscribe = Box<dyn FnOnce() -> Subscribed + Send>;

/// Controller that is ready to run.
#[must_use = "a controller does nothing until run"]
pub struct Controller {
    pub(super) name: Arc<str>,
    pub(super) shared: Arc<Shared>,
    pub(super) subscribe: Vec<Subscribe>,
    pub(super) sources: Vec<BoxStream<'static, (Key, Priority)>>,
    pub(super) needs_leader_election: bool,
    pub(super) declared: DeclaredAccess,
}

/// Panic of a pass (one reconcile) that stops the program, because the controller does not recover from panics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the reconciliation of {key} panicked: {message}; the controller stops the program after a panic (`recover_panic(false)`)"
)]
pub struct ReconcilePanicked {
    /// Key of the pass.
    pub key: Key,
    /// Message of the panic.
    pub message: String,
}

/// First panic of a controller that does not recover from panics.
#[derive(Default)]
pub(super) struct PanicSignal {
    first: OnceLock<ReconcilePanicked>,
    panicked: Latch,
}

impl PanicSignal {
    fn set(&self, panicked: ReconcilePanicked) {
        if self.first.set(panicked).is_ok() {
            self.panicked.set();
        }
    }

    /// Waits for the first panic.
    async fn wait(&self) {
        self.panicked.wait().await;
    }

    fn get(&self) -> Option<ReconcilePanicked> {
        self.first.get().cloned()
    }
}

/// State that the workers of a controller share.
pub(super) struct Shared {
    pub(super) name: Arc<str>,
    pub(super) queue: Queue<Key>,
    pub(super) failures: Failures,
    pub(super) barrier: Arc<Barrier>,
    pub(super) reconcile: Box<dyn Reconcile>,
    pub(super) metrics: ControllerMetrics,
    pub(super) max_retries: Option<u32>,
    pub(super) events: EventRecorder,
    /// Records events in events.k8s.io.
    pub(super) series: Option<SeriesEventRecorder>,
    pub(super) clock: Clock,
    /// Name of the cluster. Empty for the program's own cluster.
    pub(super) cluster: Arc<str>,
    /// Whether the workers were started.
    pub(super) started: AtomicBool,
    pub(super) root: Kind,
    pub(super) workers: usize,
    /// Delay of a key after its first event.
    pub(super) batch_period: Duration,
    pub(super) caches: ControllerCaches,
    pub(super) subscribed: Mutex<Vec<Subscribed>>,
    /// Whether the controller has ended. Set while `subscribed` is locked.
    pub(super) ended: AtomicBool,
    pub(super) history: History,
    /// Causes of the keys in the queue, for reconcile functions.
    pub(super) causes: Option<Arc<Causes>>,
    /// Whether each failed pass is a warning.
    pub(super) logs_each_failure: bool,
    /// Whether a panic of a pass is only a failure of its key.
    pub(super) recovers_panics: bool,
    pub(super) panicked: PanicSignal,
    /// `None` if the controller is not sharded.
    pub(super) replay: Option<Replay>,
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

    /// Returns whether the controller runs only in the leader.
    pub(crate) fn needs_leader_election(&self) -> bool {
        self.needs_leader_election
    }

    /// Returns the kinds that the controller reads and writes.
    pub(crate) fn declared(&self) -> &DeclaredAccess {
        &self.declared
    }

    /// Returns the caches that must have synced before the controller works.
    pub(crate) fn required_caches(&self) -> Vec<Arc<Reader>> {
        let mut required = self.shared.caches.list();
        required.retain(|cache| !cache.is_optional());
        required
    }

    /// Subscribes to the caches, so that their events fill the queue before the controller runs.
    pub fn warm_up(&mut self) {
        for subscribe in self.subscribe.drain(..) {
            let subscribed = subscribe();
            self.shared.subscribed().push(subscribed);
        }
    }

    /// Waits for the caches, then reconciles keys until `stop` is cancelled. Then finishes the keys in progress and writes
    /// their events. Its subscriptions stay, because the whole program stops. A panic of a pass ends it earlier, if the
    /// controller does not [recover](super::Builder::recover_panic) from panics.
    pub async fn run(mut self, stop: CancellationToken) {
        self.work(stop).await;
    }

    /// Like [`Controller::run`], but ends the subscriptions. Returns the informers that the controller has read.
    ///
    /// # Errors
    /// Fails if a pass panicked and the controller does not recover from panics.
    pub(crate) async fn run_to_end(
        mut self,
        stop: CancellationToken,
    ) -> Result<Vec<Arc<Informer>>, ReconcilePanicked> {
        // This also applies if the controller is aborted, because the caches hold the subscriptions, and these hold the caches.
        let _end = EndGuard(Arc::clone(&self.shared));
        self.work(stop).await;
        self.shared.panicked.get().map_or_else(|| Ok(self.informers()), Err)
    }

    async fn work(&mut self, stop: CancellationToken) {
        self.warm_up();
        for cache in self.required_caches() {
            if stop.run_until_cancelled(cache.synced().wait()).await.is_none() {
                return;
            }
        }
        let sources = std::mem::take(&mut self.sources);
        let shared = Arc::clone(&self.shared);
        shared.work(sources, stop).await;
    }

    /// Drops the controller and its subscriptions. Returns the informers that it has read.
    pub(crate) fn end(self) -> Vec<Arc<Informer>> {
        let _end = EndGuard(Arc::clone(&self.shared));
        self.informers()
    }

    /// Returns the informers that the controller reads.
    fn informers(&self) -> Vec<Arc<Informer>> {
        self.shared.caches.list().iter().map(|cache| Arc::clone(cache.informer())).collect()
    }
}

/// Ends the subscriptions of a controller when it is dropped.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn run_worker(shared: Arc<Shared>) {
    while let Some(key) = shared.queue.next().await {
        shared.queue.process(&key, shared.handle_if_admitted(&key)).await;
    }
}

impl Shared {
    /// Reconciles keys until `stop` is cancelled.
    async fn work(
        self: &Arc<Self>,
        sources: Vec<BoxStream<'static, (Key, Priority)>>,
        stop: CancellationToken,
    ) {
        let (shared, name, workers) = (self, &self.name, self.workers);
        tracing::info!(controller = %name, workers, "starting workers");
        shared.started.store(true, Ordering::Relaxed);
        let tasks = Tasks::new();
        // This group stops after the workers, so that their last events are written.
        let event_tasks = Tasks::new();
        // A controller that is aborted, for example when the lease is lost, leaves no worker running.
        let _abort = (tasks.abort_on_drop(), event_tasks.abort_on_drop());
        shared.events.start(&event_tasks);
        shared.series.iter().for_each(|series| series.start(&event_tasks));
        let barrier = Arc::clone(&shared.barrier);
        tasks.spawn_restarting_until_cancelled(format!("{name} barrier"), move || {
            let barrier = Arc::clone(&barrier);
            async move { barrier.sweep().await }
        });
        if shared.replay.is_some() {
            let shared = Arc::clone(shared);
            tasks.spawn_restarting_until_cancelled(format!("{name} shards"), move || {
                let shared = Arc::clone(&shared);
                async move { shared.follow_shards().await }
            });
        }
        for (index, mut keys) in sources.into_iter().enumerate() {
            let (shared, stop) = (Arc::clone(shared), tasks.token());
            tasks.spawn_finite(format!("{name} source {index}"), async move {
                // A stream may never end, such as the stream of a timer.
                while let Some(Some((key, priority))) = stop.run_until_cancelled(keys.next()).await
                {
                    shared.enqueue_from_source(key, priority, Duration::ZERO);
                }
            });
        }
        for index in 0..workers.max(1) {
            let shared = Arc::clone(shared);
            tasks.spawn_restarting(format!("{name} worker {index}"), move || {
                run_worker(Arc::clone(&shared))
            });
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = shared.panicked.wait() => {}
        }
        // Cancel the tasks before the queue shuts down, because a worker that returns earlier counts as failed.
        tasks.token().cancel();
        shared.queue.shut_down_now();
        tasks.join().await;
        event_tasks.token().cancel();
        event_tasks.join().await;
        tracing::info!(controller = %name, "stopped");
    }

    pub(super) fn shards(&self) -> Option<&Shards> {
        self.replay.as_ref().map(|replay| &replay.shards)
    }

    pub(super) fn subscribed(&self) -> MutexGuard<'_, Vec<Subscribed>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the caches that the controller reads. The barrier then waits for writes in these caches.
    pub(super) fn change_caches(&self, change: impl FnOnce(&ControllerCaches)) {
        // Changes are made one after the other, so that the barrier has the last state.
        let _turn = self.subscribed();
        change(&self.caches);
        self.barrier.set_caches(WatchedCaches::of(&self.caches.list()));
    }

    /// Ends all subscriptions, and stops reading caches. Watches that are added meanwhile end too.
    fn end(&self) {
        let subscribed = {
            let mut subscribed = self.subscribed();
            self.ended.store(true, Ordering::SeqCst);
            std::mem::take(&mut *subscribed)
        };
        for Subscribed { informer, id } in subscribed {
            informer.unsubscribe(id);
        }
        if let Some(replay) = &self.replay {
            replay.subscriptions().clear();
        }
        self.change_caches(ControllerCaches::clear);
    }

    async fn follow_shards(&self) {
        if let Some(replay) = &self.replay {
            replay.follow(&self.queue, &self.barrier, &*self.reconcile).await;
        }
    }

    /// Reconciles a key, unless this process does not serve it or the barrier holds it.
    async fn handle_if_admitted(&self, key: &Key) {
        let admission = match self.shards().map(|shards| shards.admit(key)) {
            None => None,
            Some(Some(admission)) => Some(admission),
            Some(None) => return self.forget(key),
        };
        match self.barrier.admit(key) {
            Ok(()) => self.handle(key, admission.as_ref()).await,
            Err(kind) => self.metrics.count_stale_skip(&kind.group, &kind.plural),
        }
    }

    /// Enqueues a key of a source after a delay, if this process serves it.
    pub(super) fn enqueue_from_source(&self, key: Key, priority: Priority, delay: Duration) {
        if self.shards().is_none_or(|shards| shards.serves(&key)) {
            self.record_cause(&key, Cause::Source);
            if delay.is_zero() {
                self.queue.add(key, priority);
            } else {
                self.queue.add_after_with_priority(key, delay, priority);
            }
        }
    }

    /// Records why a key is in the queue, if reports show that.
    pub(super) fn record_cause(&self, key: &Key, cause: Cause) {
        if let Some(causes) = &self.causes {
            causes.record(key, cause);
        }
    }

    /// Forgets a key that another process serves now.
    fn forget(&self, key: &Key) {
        self.failures.forget(key, &self.queue);
        self.barrier.forget(key);
    }

    /// Runs one pass over a key: reconciles it, records the result, and requeues or forgets it.
    async fn handle(&self, key: &Key, admission: Option<&Admission>) {
        let attempt = self.failures.of(key, &self.queue);
        let reconcile_id = RECONCILE_ID.fetch_add(1, Ordering::Relaxed);
        let span = tracing::info_span!(
            "reconcile",
            controller = &*self.name,
            cluster = (!self.cluster.is_empty()).then_some(&*self.cluster),
            namespace = &*key.namespace,
            name = &*key.name,
            attempt,
            reconcile_id
        );
        let because = self.causes.as_ref().and_then(|causes| causes.take(key));
        let cluster = Arc::clone(&self.cluster);
        let request = Request { key: key.clone(), attempt, reconcile_id, cluster };
        let (start, now) = (self.clock.instant(), self.clock.now());
        self.metrics.active.inc();
        let mut recorded = RecordedActions::default();
        let pass = self.reconcile_catching_panics(request, admission, &mut recorded);
        let pass_result = pass.instrument(span.clone()).await;
        self.metrics.active.dec();
        let Some(pass_result) = pass_result else {
            tracing::debug!(%key, "reconciliation dropped: another process may serve the key now");
            return self.forget(key);
        };
        let took = start.elapsed();
        let error = pass_result.as_ref().err().map(|failed| &failed.error);
        self.metrics.observe_pass(took, error.map(|error| &*error.source));
        let error_text = error.map(|error| full_text(&*error.source));
        let recorded_result = match (&pass_result, &error_text) {
            (Ok(requeue), _) => Ok(*requeue),
            (Err(_), text) => Err(text.as_deref().unwrap_or_default()),
        };
        let because = because.map(|cause| cause.to_string());
        self.history.passed(key, self.clock.now(), took, recorded, because, recorded_result);
        let _entered = span.enter();
        tracing::trace!(%now, "reconciled");
        self.requeue_or_forget(
            key,
            attempt,
            pass_result,
            error_text.as_deref().unwrap_or_default(),
        );
    }

    /// Reconciles a key. A panic becomes a failure of this key only, which is retried with backoff, like with
    /// controller-runtime's `RecoverPanic`. If the controller does not recover from panics, the panic ends it. Returns `None`
    /// if the term of the key's shard ended during the pass.
    async fn reconcile_catching_panics(
        &self,
        request: Request,
        admission: Option<&Admission>,
        recorded: &mut RecordedActions,
    ) -> Option<PassResult> {
        // A panic leaves no invalid state: the planner is only borrowed, and the locks ignore poisoning.
        let (fence, key) = (admission.map(Admission::fence), request.key.clone());
        let work = async { self.reconcile.reconcile(request, fence, recorded).await };
        let caught = match admission {
            Some(admission) => admission.run(catch_panic(work)).await?,
            None => catch_panic(work).await,
        };
        Some(caught.unwrap_or_else(|panic| {
            self.metrics.panics.inc();
            tracing::error!(panic, "reconciliation panicked");
            if !self.recovers_panics {
                self.panicked.set(ReconcilePanicked { key, message: panic.clone() });
            }
            Err(super::Error::message(format!("panic: {panic}")).into())
        }))
    }

    /// Requeues or forgets a key after a pass, and logs its error.
    fn requeue_or_forget(
        &self,
        key: &Key,
        attempt: u32,
        pass_result: PassResult,
        error_text: &str,
    ) {
        match pass_result {
            Ok(Some(after)) if after.is_zero() && self.reconcile.is_function() => {
                self.metrics.count_result("requeue");
                self.record_cause(key, Cause::Again);
                // Use the backoff, so that a loop without a delay cannot occur.
                self.failures.requeue_after_success(key, &self.queue);
            }
            Ok(requeue) => {
                self.failures.forget(key, &self.queue);
                self.metrics.count_result(if requeue.is_some() {
                    "requeue_after"
                } else {
                    "success"
                });
                if let Some(after) = requeue {
                    self.record_cause(key, Cause::Again);
                    self.queue.add_after(key.clone(), after);
                }
            }
            Err(PassError { error, requeue }) => {
                self.metrics.count_result("error");
                if error.terminal {
                    self.metrics.terminal_errors.inc();
                    self.failures.forget(key, &self.queue);
                    tracing::error!(error = error_text, "reconciliation failed, not retried");
                } else if self.max_retries.is_some_and(|max| attempt >= max) {
                    self.failures.forget(key, &self.queue);
                    tracing::error!(
                        error = error_text,
                        "reconciliation failed too often, given up until the next change"
                    );
                } else {
                    // A single failure, for example a conflict or a stale cache, is usual. Warn only about the third
                    // consecutive failure.
                    const QUIET_FAILURES: u32 = 2;
                    if attempt == QUIET_FAILURES || self.logs_each_failure {
                        tracing::warn!(
                            error = error_text,
                            attempt,
                            "reconciliation failed, will be retried"
                        );
                    } else {
                        tracing::debug!(
                            error = error_text,
                            "reconciliation failed, will be retried"
                        );
                    }
                    self.record_cause(key, Cause::Retry);
                    self.queue.add_rate_limited(key.clone());
                }
                if let Some(after) = requeue {
                    self.queue.add_after(key.clone(), after);
                }
            }
        }
    }
}
