//! Starts controllers one after the other, and retries skipped ones later.

use super::{Ready, Started};
use crate::metrics::RunningControllers;
use anyhow::Result;
use evenkeel_runtime::{clock::Clock, tasks::Tasks};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval at which the server's resources are discovered again for skipped controllers.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);

/// Controllers of one lease that are about to start.
pub(super) struct Starting<R> {
    pub(super) ready: R,
    pub(super) clock: Clock,
    /// Metric of running controllers.
    pub(super) running_controllers: RunningControllers,
    /// Each controller starts after a random delay of one to two intervals.
    pub(super) interval: Duration,
}

impl<R: Ready> Starting<R> {
    /// Starts `first`, if it is among `names`, and then the others in random order. Skips a controller whose
    /// requirements are not met. If they can be met later, the controller starts then; upstream needs a restart
    /// for that.
    ///
    /// # Errors
    /// Fails if a controller cannot start with its options.
    pub(super) async fn run(
        self,
        first: Option<&'static str>,
        names: Vec<&'static str>,
        tasks: &Tasks,
        stop: &CancellationToken,
    ) -> Result<()> {
        let delay = |name: &'static str| match first {
            Some(first) if first == name => Duration::ZERO,
            _ => self.interval.mul_f64(1.0 + self.clock.draw(&("start", name))),
        };
        let mut order: Vec<_> = names.into_iter().map(|name| (delay(name), name)).collect();
        // Without an interval all delays are zero; even then, `first` starts before the others.
        order.sort_by_key(|(delay, name)| (*delay, first != Some(*name)));
        let (mut elapsed, mut skipped) = (Duration::ZERO, Vec::new());
        for (delay, name) in order {
            if delay > elapsed {
                let pause = self.clock.sleep(delay - elapsed);
                if stop.run_until_cancelled(pause).await.is_none() {
                    return Ok(());
                }
                elapsed = delay;
            }
            match self.start(name)? {
                Started::Yes => {}
                Started::Never(why) => {
                    tracing::info!(controller = name, %why, "Skipping controller");
                }
                Started::NotYet(why) => {
                    tracing::info!(controller = name, %why, "Skipping controller for now");
                    skipped.push(name);
                }
            }
        }
        if !skipped.is_empty() {
            tasks.spawn_until_cancelled("controllers that lack something", async move {
                self.retry_skipped(skipped).await;
                std::future::pending::<()>().await;
            });
        }
        Ok(())
    }

    fn start(&self, name: &'static str) -> Result<Started> {
        let started = self.ready.start(name)?;
        if started == Started::Yes {
            self.running_controllers.started(name);
            tracing::info!(controller = name, "Started controller");
        }
        Ok(started)
    }

    async fn retry_skipped(mut self, mut skipped: Vec<&'static str>) {
        while !skipped.is_empty() {
            self.clock.sleep(DISCOVERY_INTERVAL).await;
            self.ready.rediscover().await;
            skipped.retain(|name| match self.start(name) {
                Ok(started) => matches!(started, Started::NotYet(_)),
                Err(error) => {
                    tracing::error!(error = format!("{error:#}"), "A controller cannot start late");
                    false
                }
            });
        }
    }
}
