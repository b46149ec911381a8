//! Passes over everything, again and again.

use super::{
    Env, barrier::Barrier, execute::Executor, memory::Memories, pass::Planned, run::Synced,
    status_throttle::StatusThrottle,
};
use crate::{
    cache::Cache,
    client::{Client, full_text},
    events::EventRecorder,
    introspect::RecordedActions,
    plan::{Key, PassHandler, Planner},
    queue::Queue,
    tasks::Tasks,
};
use evenkeel_api::View;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A controller without a queue: it looks at all objects of its caches, waits, and looks again. For what no event of a
/// single object starts, such as a heartbeat that stays away.
#[must_use = "a periodic pass does nothing until started"]
#[doc(alias("UntilWithContext", "JitterUntil"))]
pub struct Periodic {
    name: String,
    env: Env,
    client: Client,
    synced: Vec<Synced>,
}

impl Periodic {
    /// Passes of a controller of this name.
    pub fn new(env: &Env, name: &str) -> Self {
        let (env, client) = (env.clone(), env.client.clone());
        Self { name: name.to_owned(), env, client, synced: Vec::new() }
    }

    /// Writes with this client instead of the shared one, for credentials of its own.
    pub fn client(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// Waits for `cache` before the first pass.
    pub fn reads<V: View>(mut self, cache: &Cache<V>) -> Self {
        let cache = cache.clone();
        self.synced.push(Box::new(move || {
            let cache = cache.clone();
            Box::pin(async move { cache.synced().await })
        }));
        self
    }

    /// Runs a pass at once, and the next one `period` after each, until `tasks` are cancelled: a pass is then dropped
    /// at its next await.
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

    /// As [`Periodic::every`], with passes that return the time to the next one. After a pass that panics, the next one
    /// follows with a task's backoff.
    pub fn start<F, Fut>(self, tasks: &Tasks, pass: F)
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Duration> + Send + 'static,
    {
        let Self { name, env: Env { clock, .. }, synced, .. } = self;
        let synced = Arc::new(synced);
        // The passes of one task follow each other, so that the lock is never waited for.
        let pass = Arc::new(Mutex::new(pass));
        tasks.spawn_restarting_until_cancelled(name, move || {
            let (clock, synced, pass) = (clock.clone(), Arc::clone(&synced), Arc::clone(&pass));
            async move {
                for synced in &*synced {
                    synced().await;
                }
                loop {
                    let pass = pass.lock().unwrap_or_else(PoisonError::into_inner)();
                    let wait = pass.await;
                    clock.sleep(wait).await;
                }
            }
        });
    }

    /// Runs passes of a planner, whose key has no name: one at once, and the next one `period` after each, or sooner if its
    /// plan says so. A pass that fails is logged; what it left is the next one's.
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
        // Nothing waits for its writes to show: the period is longer.
        let barrier = Arc::new(Barrier::new(Queue::unnamed(&env.clock), env.clock.clone()));
        let client = self.client.clone();
        let executor =
            Executor { client, shared: env.client.clone(), events, barrier, local: None };
        let (memories, clock, status_throttle) =
            (Memories::default(), env.clock.clone(), StatusThrottle::new(Duration::ZERO));
        let passes = Arc::new(Planned {
            planner,
            handler,
            memories,
            executor,
            clock,
            status_throttle,
            turns: None,
        });
        self.start(tasks, move || {
            let (passes, name) = (Arc::clone(&passes), name.clone());
            async move {
                let mut recorded = RecordedActions::default();
                match passes.pass(&Key::new("", ""), &mut recorded).await {
                    Ok(requeue) => requeue.map_or(period, |sooner| sooner.min(period)),
                    Err(error) => {
                        let error = full_text(&*error.source);
                        tracing::warn!(controller = name, error, "The periodic pass failed");
                        period
                    }
                }
            }
        });
    }
}
