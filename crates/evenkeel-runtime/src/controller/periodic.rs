//! Passes over everything, again and again.

use super::{Env, run::Synced};
use crate::{cache::Cache, clock::Clock, tasks::Tasks};
use evenkeel_api::View;
use std::time::Duration;

/// A controller without a queue: it looks at all objects of its caches, waits, and looks again. For what no event of a
/// single object starts, such as a heartbeat that stays away.
#[must_use = "a periodic pass does nothing until started"]
#[doc(alias("UntilWithContext", "JitterUntil"))]
pub struct Periodic {
    name: String,
    clock: Clock,
    synced: Vec<Synced>,
}

impl Periodic {
    /// Passes of a controller of this name.
    pub fn new(env: &Env, name: &str) -> Self {
        Self { name: name.to_owned(), clock: env.clock.clone(), synced: Vec::new() }
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

    /// Runs a pass at once, and the next one `period` after each, until `tasks` are told to stop: a pass is then dropped
    /// wherever it waits.
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

    /// As [`Periodic::every`], with passes that return the time to the next one.
    pub fn start<F, Fut>(self, tasks: &Tasks, mut pass: F)
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Duration> + Send + 'static,
    {
        let Self { name, clock, synced } = self;
        tasks.spawn_until_cancelled(name, async move {
            for synced in synced {
                synced().await;
            }
            loop {
                let wait = pass().await;
                clock.sleep(wait).await;
            }
        });
    }
}
