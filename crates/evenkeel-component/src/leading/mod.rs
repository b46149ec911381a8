//! What the leader does: it waits for the API server, starts its controllers in order, and sees them end.

mod starting;

use crate::{
    connection::wait_for_server,
    metrics::RunningControllers,
    migration::{Migration, Place},
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

/// The controllers of a program.
pub trait Controllers: Send + Sync + 'static {
    /// Them, ready to be started under a lease.
    type Ready: Ready;

    /// Makes them ready: they write while `fence` is open, and run in `tasks`. Once for each lease.
    fn ready(&self, fence: &LeaderFence, tasks: &Tasks)
    -> impl Future<Output = Self::Ready> + Send;
}

/// Controllers that only have to be started.
pub trait Ready: Send + Sync + 'static {
    /// Starts the controller of this name.
    ///
    /// # Errors
    /// When it cannot start with its options.
    fn start(&self, controller: &'static str) -> Result<Started>;

    /// Looks again for what those lacked that did not start.
    fn look_again(&mut self) -> impl Future<Output = ()> + Send;
}

/// Whether a controller runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// It does.
    Yes,
    /// It does not, for this reason, which stays.
    Never(String),
    /// It does not, for this reason, which may pass.
    NotYet(String),
}

/// A controller that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Name of the controller, as in `--controllers`.
    pub name: &'static str,
    /// Older names that are still understood.
    pub aliases: &'static [&'static str],
}

/// Everything that the leader needs.
pub struct Leader<C> {
    /// What it starts.
    pub controllers: C,
    /// Which of them.
    pub chosen: Vec<Named>,
    /// Who is to run before all others, if it is chosen: it makes what others need, and never moves.
    pub first: Option<&'static str>,
    /// Asks for the server's health.
    pub client: Client,
    /// Clock of the pauses between starts of controllers.
    pub clock: Clock,
    /// Open while this process leads.
    pub fence: LeaderFence,
    /// How quickly controllers start and stop.
    pub pace: Pace,
    /// Where controllers that run are shown.
    pub shown: RunningControllers,
    /// Controllers that move, and the lease under which they run.
    pub second: Option<Second>,
}

/// How quickly controllers start and stop.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Controllers start between one and two of these after the program leads.
    pub start_interval: Duration,
    /// How often it is told which controllers have not ended yet.
    pub reminder: Duration,
}

/// The lease of the controllers that move.
pub struct Second {
    /// Which those are.
    pub migration: Migration,
    /// Whether this process has it.
    pub election: Arc<LeaderElector>,
}

impl<C: Controllers> Leader<C> {
    /// Leads until it is told to stop, and then until all controllers have ended.
    ///
    /// # Errors
    /// When the server does not become healthy, a controller cannot start, or the second lease is lost.
    pub async fn run(self, running: &RunContext) -> Result<()> {
        let stop = running.token();
        let server = wait_for_server(&self.client, &self.clock);
        let Some(healthy) = stop.run_until_cancelled(server).await else { return Ok(()) };
        healthy?;
        let (main, migrated) = self.places();
        let tasks = Tasks::under(stop.clone());
        let ready = self.controllers.ready(&self.fence, &tasks);
        let Some(ready) = stop.run_until_cancelled(ready).await else { return Ok(()) };
        let main = self.lead(ready, main, &tasks, running);
        let Some(second) = &self.second else { return main.await };
        let moved = self.second(second, migrated, running);
        tokio::try_join!(main, moved).map(|_| ())
    }

    /// The controllers of the main lease, and those of the second one.
    fn places(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let place = |one: &Named| match &self.second {
            Some(second) if self.first != Some(one.name) => second.migration.place(one),
            _ => Place::Main,
        };
        let all = |wanted| {
            let there = self.chosen.iter().filter(move |one| place(one) == wanted);
            there.map(|one| one.name).collect()
        };
        (all(Place::Main), all(Place::Migrated))
    }

    /// Starts the controllers of a lease, and waits for their end.
    async fn lead(
        &self,
        ready: C::Ready,
        names: Vec<&'static str>,
        tasks: &Tasks,
        running: &RunContext,
    ) -> Result<()> {
        let (clock, shown) = (self.clock.clone(), self.shown.clone());
        let starting = Starting { ready, clock, shown, interval: self.pace.start_interval };
        starting.run(self.first, names.clone(), tasks, &running.token()).await?;
        running.stopped().await;
        while timeout(self.pace.reminder, tasks.join()).await.is_err() {
            let running = tasks.running().join(", ");
            tracing::info!(%running, "Still waiting for some controllers to terminate");
        }
        self.shown.stopped(names);
        tracing::info!("All controllers terminated");
        Ok(())
    }

    /// Runs the controllers that move, while this process holds their lease as well.
    async fn second(
        &self,
        second: &Second,
        names: Vec<&'static str>,
        running: &RunContext,
    ) -> Result<()> {
        let (election, stop) = (&second.election, running.token());
        if !election.acquire_until(&stop).await {
            election.withdraw().await;
            return Ok(());
        }
        tracing::info!(lease = %second.migration.lease, "Starting migrated controllers");
        let tasks = Tasks::under(stop.clone());
        let work = async {
            let ready = self.controllers.ready(&self.fence.and(&election.fence()), &tasks).await;
            self.lead(ready, names, &tasks, running).await
        };
        let ended = tokio::select! {
            biased;
            ended = work => ended,
            () = election.renew() => Err(ManagerError::LeaderElectionLost.into()),
        };
        // Where all went well nothing runs any more. Writes are over in either case: giving back closes the fence first.
        tasks.shut_down(Duration::ZERO).await;
        election.step_down().await;
        ended
    }
}
