//! Periodic passes over all objects.

use super::{
    Env, barrier::Barrier, execute::Executor, memory::Memories, pass::PlannerReconciler,
    reconcile::PassError, status_throttle::StatusThrottle,
};
use crate::{
    cache::{Cache, Reader},
    client::{Client, full_text},
    events::EventRecorder,
    introspect::RecordedActions,
    plan::{Key, PassHandler, Planner},
    queue::Queue,
    tasks::Tasks,
};
use evenkeel_api::View;
use futures::future::BoxFuture;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Controller without a queue, which periodically checks all objects of its caches. For conditions without an event of
/// an object, such as a missing heartbeat.
#[must_use = "a periodic pass does nothing until started"]
#[doc(alias("UntilWithContext", "JitterUntil"))]
pub struct Periodic {
    name: String,
    env: Env,
    client: Client,
    caches: Vec<Arc<Reader>>,
}

/// Function that starts a pass, which returns the delay before the next pass.
type StartPass = Box<dyn FnMut() -> BoxFuture<'static, Duration> + Send>;

impl Periodic {
    /// Creates the periodic passes of a controller with this name.
    pub fn new(env: &Env, name: &str) -> Self {
        let (env, client) = (env.clone(), env.client.clone());
        Self { name: name.to_owned(), env, client, caches: Vec::new() }
    }

    /// Sets the client for writes, for controllers with their own credentials.
    pub fn client(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// Waits for `cache` to sync before the first pass.
    pub fn reads<V: View>(mut self, cache: &Cache<V>) -> Self {
        self.caches.push(Arc::clone(cache.informer()));
        self
    }

    /// Runs a pass immediately, and another one `period` after the end of each, until `tasks` are cancelled.
    /// Cancellation drops a pass at its next await.
    pub fn every<F, Fut>(self, tasks: &Tasks, period: Duration, mut pass: F)
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.start(tasks, move || {
            let pass = pass();
            async move {
                pass.await;
                period
            }
        });
    }

    /// Like [`Periodic::every`], but each pass returns the delay before the next one. After a panic, the next pass
    /// starts after a task's backoff.
    pub fn start<F, Fut>(self, tasks: &Tasks, mut pass: F)
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Duration> + Send + 'static,
    {
        self.start_boxed(tasks, Box::new(move || Box::pin(pass())));
    }

    /// Does the work of [`Periodic::start`], compiled once for all controllers.
    fn start_boxed(self, tasks: &Tasks, pass: StartPass) {
        let Self { name, env: Env { clock, .. }, caches, .. } = self;
        let caches = Arc::new(caches);
        // The passes run one after the other, so the lock is always free.
        let start_pass = Arc::new(Mutex::new(pass));
        tasks.spawn_restarting_until_cancelled(name, move || {
            let (clock, caches, start_pass) =
                (clock.clone(), Arc::clone(&caches), Arc::clone(&start_pass));
            async move {
                for cache in &*caches {
                    cache.synced().wait().await;
                }
                loop {
                    let pass = start_pass.lock().unwrap_or_else(PoisonError::into_inner)();
                    let delay = pass.await;
                    clock.sleep(delay).await;
                }
            }
        });
    }

    /// Runs the passes of a planner with a single key without a name. The first pass runs immediately, and another one
    /// `period` after the end of each, or earlier if the plan requests it. Logs a failed pass, whose remaining work the
    /// next pass does.
    pub fn planned<P: Planner>(
        self,
        tasks: &Tasks,
        period: Duration,
        planner: P,
        handler: impl PassHandler<P>,
    ) {
        let (name, env) = (self.name.clone(), self.env.clone());
        let events = EventRecorder::new(self.client.clone(), &name, env.clock.clone());
        events.start(tasks);
        // The barrier has no caches, because the period is long enough for the caches to show a pass's own writes.
        let barrier = Arc::new(Barrier::new(Queue::unnamed(&env.clock), env.clock.clone()));
        let client = self.client.clone();
        let executor = Executor {
            client,
            shared_client: env.client.clone(),
            events,
            barrier,
            local_work: None,
        };
        let (memories, clock) = (Memories::default(), env.clock.clone());
        let status_throttle = Arc::new(StatusThrottle::new(Duration::ZERO));
        let passes = Arc::new(PlannerReconciler {
            planner,
            handler,
            memories,
            executor,
            clock,
            status_throttle,
            planning_lock: None,
        });
        self.start(tasks, move || {
            let (passes, name) = (Arc::clone(&passes), name.clone());
            async move {
                let mut recorded = RecordedActions::default();
                match passes.pass(&Key::new("", ""), None, &mut recorded).await {
                    Ok(requeue) => requeue.map_or(period, |requeue| requeue.min(period)),
                    Err(PassError { error, requeue }) => {
                        let error = full_text(&*error.source);
                        tracing::warn!(controller = name, error, "The periodic pass failed");
                        requeue.map_or(period, |requeue| requeue.min(period))
                    }
                }
            }
        });
    }
}
