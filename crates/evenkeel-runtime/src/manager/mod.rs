//! Runs a program: starts its parts in order, stops them in reverse, and holds the lease between.
//!
//! ```no_run
//! use evenkeel_runtime::{
//!     cache::Full,
//!     controller::{Context, Error, Outcome, Request},
//!     manager::{Manager, shutdown_signal},
//!     plan::Key,
//! };
//! use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Secret}};
//! use std::time::Duration;
//!
//! async fn reconcile(request: Request, context: Context) -> Result<Outcome, Error> {
//!     let maps = context.env.caches.of::<Full<ConfigMap>>();
//!     let Some(map) = maps.get(&request.key.namespace, &request.key.name) else {
//!         return Ok(Outcome::Settled); // it is gone
//!     };
//!     tracing::info!(entries = map.data.as_ref().map_or(0, |data| data.len()), "seen");
//!     Ok(Outcome::again(Duration::from_secs(300)))
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = Manager::builder(kube::Client::try_default().await?)
//!     .leader_election("default", "maps.example.com", "pod-1")
//!     .build()?;
//! manager
//!     .controller::<ConfigMap>()
//!     .owns::<Deployment>()
//!     .watches::<Secret>(|secret| vec![Key::of(secret.meta())])
//!     .max_concurrent(4)
//!     .reconcile(reconcile);
//! manager.run(shutdown_signal()).await?;
//! # Ok(())
//! # }
//! # use evenkeel_api::View;
//! ```

mod author;
mod builder;
mod run;
mod runnable;
mod signal;

pub use author::ControllerBuilder;
pub use builder::{BuildError, ManagerBuilder};
pub use runnable::{Group, ManagerError, Running};
pub use signal::shutdown_signal;

use crate::{
    client::{Client, Gate, Transport},
    controller::{Controller, Env},
    events::Recorder,
    health::{Health, LEADER_TOLERANCE},
    lease::{self, Config, ConfigError, LeaderElection},
};
use prometheus::Registry;
use runnable::Runnable;
use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A program under construction: what is shared, and what will run.
pub struct Manager {
    env: Env,
    /// What writes whether this process leads or not.
    client: Client,
    lease_metrics: Option<lease::Metrics>,
    registry: Registry,
    health: Health,
    readiness: Health,
    events: Recorder,
    election: Option<Arc<LeaderElection>>,
    grace: Duration,
    runnables: Mutex<Vec<Runnable>>,
}

impl Manager {
    /// A manager over this connection.
    pub fn builder(transport: impl Into<Transport>) -> ManagerBuilder {
        ManagerBuilder::new(transport.into())
    }

    /// Client, caches, clock and metrics that all parts share. Where there is an election, the client writes only while
    /// this process leads.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Where metrics are registered.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Checks behind `/healthz`.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Checks behind `/readyz`; `informer-sync` is among them.
    pub fn readiness(&self) -> &Health {
        &self.readiness
    }

    /// Events in the program's own name.
    pub fn events(&self) -> &Recorder {
        &self.events
    }

    /// The election, if there is one.
    pub fn election(&self) -> Option<&Arc<LeaderElection>> {
        self.election.as_ref()
    }

    /// Open while this process may write as the leader; always where there is no election. Clients that are made beside
    /// [`Manager::env`]'s are to be [gated](Client::gated) by it.
    pub fn gate(&self) -> Gate {
        self.election.as_ref().map_or_else(Gate::open, LeaderElection::gate)
    }

    /// The client that writes whether this process leads or not.
    pub fn ungated(&self) -> &Client {
        &self.client
    }

    /// Stands for another lease beside the manager's own, for work that moves between programs one part at a time. Whoever
    /// asks for it acquires, holds and gives it back; its health is checked under `name`.
    ///
    /// # Errors
    /// When the times cannot work together.
    pub fn contender(
        &self,
        config: Config,
        name: &str,
    ) -> Result<Arc<LeaderElection>, ConfigError> {
        let metrics = match &self.lease_metrics {
            Some(metrics) => metrics.clone(),
            None => lease::Metrics::register(&self.registry),
        };
        let (clock, events) = (self.env.clock.clone(), Some(self.events.clone()));
        let election = Arc::new(LeaderElection::new(&self.client, config, clock, events, metrics)?);
        let checked = Arc::clone(&election);
        self.health.add(name, move || checked.check(LEADER_TOLERANCE));
        Ok(election)
    }

    /// Adds something to run. `run` works until [`Running::stopped`]; those of [`Group::Serving`] call
    /// [`Running::ready`] when they serve. An error stops the whole program.
    pub fn add<F, Fut>(&self, group: Group, name: &str, run: F)
    where
        F: FnOnce(Running) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        self.runnables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Runnable::new(group, name, run));
    }

    /// Adds a controller, to run while this process leads.
    pub fn add_controller(&self, controller: Controller) {
        let name = controller.name().to_owned();
        self.add(Group::Leader, &name, move |running| async move {
            controller.run(running.token()).await;
            Ok(())
        });
    }
}
