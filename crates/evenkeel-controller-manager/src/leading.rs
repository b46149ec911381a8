//! What the leader does: it waits for the API server, finds out what that has, starts the controllers in order, and sees
//! them end.

use crate::{
    controllers::{self, Starting},
    migration::{Migration, Place},
};
use anyhow::Result;
use evenkeel_component::{
    connection::{Connection, wait_for_server},
    metrics::RunningControllers,
};
use evenkeel_controllers::{
    descriptor::{ControllerContext, Descriptor},
    needs::{Gates, Resources},
    options::Options,
};
use evenkeel_runtime::{
    client::{Client, Gate},
    controller::Env,
    health::Health,
    lease::LeaderElection,
    manager::{ManagerError, Running},
    tasks::Tasks,
};
use prometheus::Registry;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// Everything that the leader needs.
pub(crate) struct Leader {
    pub(crate) connection: Connection,
    pub(crate) env: Env,
    /// Open while this process leads.
    pub(crate) gate: Gate,
    pub(crate) chosen: Vec<Descriptor>,
    pub(crate) options: Options,
    pub(crate) gates: Gates,
    pub(crate) registry: Registry,
    pub(crate) health: Health,
    pub(crate) pace: Pace,
    /// Where controllers that run are shown.
    pub(crate) shown: RunningControllers,
    /// Controllers that move, and the lease under which they run.
    pub(crate) second: Option<Second>,
}

/// How quickly controllers start and stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Controllers start between one and two of these after the program leads.
    pub(crate) start_interval: Duration,
    /// How often it is told which controllers have not ended yet.
    pub(crate) reminder: Duration,
}

/// The lease of the controllers that move.
pub(crate) struct Second {
    pub(crate) migration: Migration,
    pub(crate) election: Arc<LeaderElection>,
}

impl Leader {
    /// Leads until it is told to stop, and then until all controllers have ended.
    ///
    /// # Errors
    /// When the server does not become healthy, a controller cannot start, or the second lease is lost.
    pub(crate) async fn run(self, running: &Running) -> Result<()> {
        let client = self.connection.client((1.0, 1));
        let stop = running.token();
        let resources = async {
            wait_for_server(&client, &self.env.clock).await?;
            Ok::<_, anyhow::Error>(discover(&client).await)
        };
        let Some(resources) = stop.run_until_cancelled(resources).await else { return Ok(()) };
        let resources = resources?;
        let (main, migrated) = self.places();
        let tasks = Tasks::under(stop.clone());
        let context = self.context(&self.gate, &tasks, resources.clone());
        let first = |descriptor: &Descriptor| descriptor.client == controllers::TOKENS_CLIENT;
        let (tokens, others): (Vec<_>, Vec<_>) = main.into_iter().partition(first);
        let token_controller = self.starting(&context, &client, tokens, Duration::ZERO);
        token_controller.run(&stop).await?;
        let work = async {
            let starting = self.starting(&context, &client, others, self.pace.start_interval);
            starting.run(&stop).await?;
            running.stopped().await;
            self.ended(&tasks).await;
            Ok(())
        };
        let Some(second) = &self.second else { return work.await };
        let moved = self.second(second, &client, migrated, resources, running);
        tokio::try_join!(work, moved).map(|_| ())
    }

    /// The controllers of the main lease, and those of the second one.
    fn places(&self) -> (Vec<Descriptor>, Vec<Descriptor>) {
        let place = |descriptor: &Descriptor| match &self.second {
            // It makes what others may need to start, and never moves.
            Some(second) if descriptor.client != controllers::TOKENS_CLIENT => {
                second.migration.place(descriptor.name)
            }
            _ => Place::Main,
        };
        let all = |wanted| {
            self.chosen.iter().filter(move |descriptor| place(descriptor) == wanted).copied()
        };
        (all(Place::Main).collect(), all(Place::Migrated).collect())
    }

    fn context(&self, gate: &Gate, tasks: &Tasks, resources: Resources) -> ControllerContext {
        let env = Env { client: self.env.client.gated(gate), ..self.env.clone() };
        let clients = self.connection.clients(gate, tasks, controllers::SHARES);
        let (registry, options) = (self.registry.clone(), self.options.clone());
        ControllerContext {
            gates: self.gates.clone(),
            resources,
            health: self.health.clone(),
            ..ControllerContext::new(env, clients, tasks.clone(), registry, options)
        }
    }

    fn starting(
        &self,
        context: &ControllerContext,
        client: &Client,
        chosen: Vec<Descriptor>,
        interval: Duration,
    ) -> Starting {
        let (context, client, shown) = (context.clone(), client.clone(), self.shown.clone());
        Starting { chosen, context, client, shown, interval }
    }

    /// Waits until all tasks have ended, and says from time to time which have not.
    async fn ended(&self, tasks: &Tasks) {
        while timeout(self.pace.reminder, tasks.join()).await.is_err() {
            let running = tasks.running().join(", ");
            tracing::info!(%running, "Still waiting for some controllers to terminate");
        }
        self.shown.stopped(self.chosen.iter().map(|descriptor| descriptor.name));
        tracing::info!("All controllers terminated");
    }

    /// Runs the controllers that move, while this process holds their lease as well.
    async fn second(
        &self,
        second: &Second,
        client: &Client,
        chosen: Vec<Descriptor>,
        resources: Resources,
        running: &Running,
    ) -> Result<()> {
        let (election, stop) = (&second.election, running.token());
        if !election.acquire_until(&stop).await {
            election.withdraw().await;
            return Ok(());
        }
        tracing::info!(lease = %second.migration.lease, "Starting migrated controllers");
        let tasks = Tasks::under(stop.clone());
        let context = self.context(&self.gate.and(&election.gate()), &tasks, resources);
        let starting = self.starting(&context, client, chosen, self.pace.start_interval);
        let work = async {
            starting.run(&stop).await?;
            running.stopped().await;
            self.ended(&tasks).await;
            Ok(())
        };
        let ended = tokio::select! {
            biased;
            ended = work => ended,
            () = election.hold() => Err(ManagerError::LeaderElectionLost.into()),
        };
        // Where all went well nothing runs any more. Writes are over in either case: giving back closes the gate first.
        tasks.shut_down(Duration::ZERO).await;
        election.step_down().await;
        ended
    }
}

/// What the server has. Where that cannot be found out it counts as everything: controllers wait for what is missing.
pub(crate) async fn discover(client: &Client) -> Resources {
    match client.api_resources().await {
        Ok(found) => Resources::discovered(&found),
        Err(error) => {
            tracing::warn!(%error, "What the API server has cannot be found out");
            Resources::default()
        }
    }
}
