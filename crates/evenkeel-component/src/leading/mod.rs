//! Work of the leader: it waits for the API server, starts the controllers in order, and waits until they end.
//!
//! Upstream: `RunControllers`.

mod starting;

use crate::{
    connection::wait_for_server,
    metrics::RunningControllers,
    migration::{FilterResult, Migration},
};
use anyhow::Result;
use evenkeel_runtime::{
    client::{Client, LeaderFence},
    clock::Clock,
    leaderelection::LeaderElector,
    manager::{ManagerError, RunContext},
    tasks::Tasks,
};
use starting::Starting;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// Controllers of a program.
pub trait Controllers: Send + Sync + 'static {
    /// The controllers of one lease, ready to start.
    type Ready: Ready;

    /// Prepares the controllers of one lease. They write while `fence` is open, and run in `tasks`.
    fn ready(&self, fence: &LeaderFence, tasks: &Tasks)
    -> impl Future<Output = Self::Ready> + Send;
}

/// Controllers of one lease that are ready to start.
pub trait Ready: Send + Sync + 'static {
    /// Starts the controller of this name.
    ///
    /// # Errors
    /// Fails if the controller cannot start with its options.
    fn start(&self, controller: &'static str) -> Result<Started>;

    /// Discovers the server's resources again, for the skipped controllers.
    fn rediscover(&mut self) -> impl Future<Output = ()> + Send;
}

/// Result of starting a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// The controller runs.
    Yes,
    /// The controller is permanently skipped for this reason.
    Never(String),
    /// The controller is skipped for now, for this reason.
    NotYet(String),
}

/// Controller that `--controllers` enables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerName {
    /// Name of the controller, as in `--controllers`.
    pub name: &'static str,
    /// Former names of the controller, which flags still accept.
    pub aliases: &'static [&'static str],
}

/// Settings and parts of a leader.
pub struct Leader<C> {
    /// All controllers of the program.
    pub controllers: C,
    /// The enabled controllers.
    pub enabled: Vec<ControllerName>,
    /// The controller that starts before all others, if it is enabled: the others need the tokens that it
    /// creates. It never migrates.
    pub first: Option<&'static str>,
    /// Client for the check of the server's health.
    pub client: Client,
    /// Clock for the delays between the starts of controllers.
    pub clock: Clock,
    /// Fence that is open while this process leads.
    pub fence: LeaderFence,
    /// Intervals of starts and of log lines.
    pub intervals: StartIntervals,
    /// Metric of running controllers.
    pub running_controllers: RunningControllers,
    /// The migrated controllers, and the lease under which they run.
    pub migration_lease: Option<MigrationLease>,
}

/// Intervals of starting controllers and of log lines about them.
#[derive(Debug, Clone, Copy)]
pub struct StartIntervals {
    /// `--controller-start-interval`: each controller starts between one and two intervals after its lease is
    /// acquired.
    pub start_interval: Duration,
    /// Interval at which the log names the controllers that have not ended.
    pub reminder: Duration,
}

/// Lease of the migrated controllers.
pub struct MigrationLease {
    /// Configuration of the migration.
    pub migration: Migration,
    /// Elector of the migration lease.
    pub election: Arc<LeaderElector>,
}

impl<C: Controllers> Leader<C> {
    /// Runs the controllers until the program stops, and then waits until all of them have ended.
    ///
    /// # Errors
    /// Fails if the server does not become healthy, a controller cannot start, or the migration lease is lost.
    pub async fn run(self, running: &RunContext) -> Result<()> {
        let stop = running.token();
        let wait = wait_for_server(&self.client, &self.clock);
        let Some(server_is_healthy) = stop.run_until_cancelled(wait).await else { return Ok(()) };
        server_is_healthy?;
        let (main, migrated) = self.split_by_lease();
        let tasks = Tasks::under(stop.clone());
        let ready = self.controllers.ready(&self.fence, &tasks);
        let Some(ready) = stop.run_until_cancelled(ready).await else { return Ok(()) };
        let main = self.run_controllers(ready, main, &tasks, running);
        let Some(lease) = &self.migration_lease else { return main.await };
        let migrated = self.run_migrated(lease, migrated, running);
        tokio::try_join!(main, migrated).map(|_| ())
    }

    /// Splits the controllers by lease: the main lease, and the migration lease.
    fn split_by_lease(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let (mut main, mut migrated) = (Vec::new(), Vec::new());
        for controller in &self.enabled {
            let name = controller.name;
            let filter_result = match &self.migration_lease {
                Some(lease) if self.first != Some(name) => lease.migration.filter(controller),
                _ => FilterResult::ControllerNonMigrated,
            };
            match filter_result {
                FilterResult::ControllerNonMigrated => main.push(name),
                FilterResult::ControllerMigrated => migrated.push(name),
                // Another program runs this controller.
                FilterResult::ControllerUnowned => {}
            }
        }
        (main, migrated)
    }

    /// Starts the controllers of a lease, and waits for their end.
    async fn run_controllers(
        &self,
        ready: C::Ready,
        names: Vec<&'static str>,
        tasks: &Tasks,
        running: &RunContext,
    ) -> Result<()> {
        let starting = Starting {
            ready,
            clock: self.clock.clone(),
            running_controllers: self.running_controllers.clone(),
            interval: self.intervals.start_interval,
        };
        starting.run(self.first, names.clone(), tasks, &running.token()).await?;
        running.stopped().await;
        while timeout(self.intervals.reminder, tasks.join()).await.is_err() {
            let running = tasks.running().join(", ");
            tracing::info!(%running, "Still waiting for some controllers to terminate");
        }
        self.running_controllers.stopped(names);
        tracing::info!("All controllers terminated");
        Ok(())
    }

    /// Runs the migrated controllers while this process also holds their lease.
    async fn run_migrated(
        &self,
        lease: &MigrationLease,
        names: Vec<&'static str>,
        running: &RunContext,
    ) -> Result<()> {
        let (election, stop) = (&lease.election, running.token());
        if !election.acquire_until(&stop).await {
            election.withdraw().await;
            return Ok(());
        }
        tracing::info!(lease = %lease.migration.lease, "Starting migrated controllers");
        let tasks = Tasks::under(stop.clone());
        let work = async {
            let ready = self.controllers.ready(&self.fence.and(&election.fence()), &tasks).await;
            self.run_controllers(ready, names, &tasks, running).await
        };
        let ended = tokio::select! {
            biased;
            ended = work => ended,
            () = election.renew() => Err(ManagerError::LeaderElectionLost.into()),
        };
        // Usually all tasks have ended. A task that still runs cannot write, because the fence closes before the
        // lease is released.
        tasks.shut_down(Duration::ZERO).await;
        election.step_down().await;
        ended
    }
}
