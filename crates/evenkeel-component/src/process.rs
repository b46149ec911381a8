//! What runs around a program's controllers: metrics, the connection to the API server, caches, the election, the secure
//! port.

use crate::secure_serving::Routes;
use crate::{
    command_line,
    connection::Connection,
    features::{self, FeatureGates},
    flags::Given,
    leading::Second,
    logging::Log,
    metrics::{self, Exposition, RunningControllers},
    migration::Migration,
    options::{ClientOptions, MetricsOptions, ServingOptions},
    serving::{self, Checks, Described, Pages},
    version,
};
use anyhow::Result;
use evenkeel_runtime::{
    cache::Caches,
    clock::Clock,
    lease::{self, Candidacy, Candidate},
    manager::{Group, Manager, shutdown_signal},
    tasks::Tasks,
};
use prometheus::Registry;
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// What a program is but for its controllers.
pub struct Parts<'a> {
    /// Its name, which is its component's and the first part of its user agents.
    pub name: &'static str,
    /// What was given to it.
    pub given: &'a Given,
    /// Its log.
    pub log: &'a Log,
    /// How to reach the API server.
    pub client: &'a ClientOptions,
    /// Which features are on.
    pub gates: &'a FeatureGates,
    /// How to be the leader; none to run without an election.
    pub election: Option<lease::Config>,
    /// What is served.
    pub serving: &'a ServingOptions,
    /// How metrics are shown.
    pub metrics: &'a MetricsOptions,
    /// What upstream's program says of its metrics.
    pub catalog: &'static str,
    /// What `/configz` shows.
    pub configz: Value,
    /// Whether profiles are served.
    pub profiling: bool,
    /// How long what runs may take to stop.
    pub grace: Duration,
    /// What it serves of its own, and its health; none for what most programs have.
    pub own: Option<OwnPages<'a>>,
}

/// Adds a program's own pages, and says what its health is; the token is cancelled when the program is asked to stop.
pub type OwnPages<'a> =
    Box<dyn FnOnce(&Manager, &CancellationToken, Routes) -> (Routes, Checks) + Send + 'a>;

/// A program that has everything but its controllers, which are added to its manager.
pub struct Process {
    /// The system's.
    pub clock: Clock,
    /// All metrics.
    pub registry: Registry,
    /// The way to the API server.
    pub connection: Connection,
    /// What runs.
    pub manager: Manager,
    /// Where running controllers are shown.
    pub shown: RunningControllers,
    election: Option<lease::Config>,
    around: Tasks,
    /// Cancelled when a signal asks the program to stop.
    stopping: CancellationToken,
}

impl Process {
    /// Makes everything ready. The secure port is taken; nothing runs yet.
    ///
    /// # Errors
    /// When a file cannot be read or the port cannot be had.
    pub async fn open(mut parts: Parts<'_>) -> Result<Self> {
        let (clock, registry, around) = (Clock::system(), Registry::new(), Tasks::new());
        let stopping = CancellationToken::new();
        parts.log.keep_flushed(&around, &clock);
        metrics::register_process(&registry)?;
        metrics::register_build(&registry, parts.gates.versions());
        parts.gates.register(&registry)?;
        let (connection, reload) =
            Connection::open(parts.name, parts.client, &clock, &registry).await?;
        let client = connection.client((1.0, 1));
        let caches =
            Caches::new(client.with_user_agent("shared-informers"), clock.clone(), &registry);
        let mut builder = Manager::builder(connection.transport.clone())
            .component(parts.name)
            .client(client)
            .caches(caches)
            .clock(clock.clone())
            .registry(registry.clone())
            .grace_period(parts.grace);
        if let Some(election) = &parts.election {
            builder = builder.election(election.clone());
        }
        let manager = builder.build()?;
        if parts.serving.port != 0 {
            let exposition = Exposition::new(&registry, parts.catalog, parts.metrics);
            let routes = exposition.routes(Routes::new());
            let (routes, checks) = match parts.own.take() {
                Some(own) => {
                    let (routes, checks) = own(&manager, &stopping, routes);
                    exposition.follow(&checks.livez);
                    exposition.follow(&checks.readyz);
                    (routes, checks)
                }
                None => (routes, Checks::usual(&manager)),
            };
            exposition.follow(&checks.healthz);
            let (name, pages) = (parts.name, pages(&parts, &manager, &clock));
            serving::add(&manager, name, parts.serving, routes, pages, checks, &clock).await?;
        }
        manager.add(Group::Others, "credentials", |running| async move {
            running.token().run_until_cancelled_owned(reload.run()).await;
            Ok(())
        });
        let shown = RunningControllers::register(&registry, parts.name);
        if let Some(election) = parts.election.as_ref().filter(|election| election.coordinated) {
            stand(&manager, parts.name, election, parts.gates);
        }
        let election = parts.election;
        Ok(Self { clock, registry, connection, manager, shown, election, around, stopping })
    }

    /// The second lease, of the controllers that move. The server has no part in it.
    ///
    /// # Errors
    /// When the election's times cannot work together.
    pub fn second(&self, migration: Option<&Migration>) -> Result<Option<Second>> {
        let Some((election, migration)) = self.election.as_ref().zip(migration) else {
            return Ok(None);
        };
        let name = migration.lease.clone();
        let config = lease::Config { name, coordinated: false, ..election.clone() };
        let election = self.manager.contender(config, "leaderMigration")?;
        Ok(Some(Second { migration: migration.clone(), election }))
    }

    /// Runs until a signal ends it, or it may lead no more.
    ///
    /// # Errors
    /// With what ended it, if that was no signal.
    pub async fn run(self) -> Result<()> {
        let (signal, stopping) = (shutdown_signal(), self.stopping);
        let shutdown = async move {
            signal.await;
            stopping.cancel();
        };
        self.manager.run(shutdown).await?;
        self.around.token().cancel();
        self.around.join().await;
        Ok(())
    }
}

/// In a coordinated election each replica stands for it with what it is; the oldest emulated version leads.
fn stand(manager: &Manager, name: &str, election: &lease::Config, gates: &FeatureGates) {
    let versions = gates.versions();
    let candidate = Candidate::new(
        manager.ungated(),
        Candidacy {
            // Upstream's place for it, wherever the lease is.
            namespace: "kube-system".to_owned(),
            identity: election.identity.clone(),
            lease: name.to_owned(),
            binary_version: format!("{}.0", features::BINARY),
            emulation_version: format!("{}.0", versions.emulated),
            strategy: "OldestEmulationVersion".to_owned(),
        },
    );
    manager.add(Group::Others, "lease candidate", |running| async move {
        running.token().run_until_cancelled_owned(candidate.run()).await;
        Ok(())
    });
}

/// What the program tells of itself on its secure port.
fn pages(parts: &Parts<'_>, manager: &Manager, clock: &Clock) -> Pages {
    let (gates, log) = (parts.gates, parts.log.clone());
    Pages {
        described: Described {
            version: version::reported().trim_start_matches('v').to_owned(),
            emulated: gates.versions().emulated.to_string(),
            started: clock.now(),
            clock: clock.clone(),
        },
        configz: parts.configz.clone(),
        flagz: gates.enabled("ComponentFlagz").then(|| command_line::flagz(parts.given)),
        statusz: gates.enabled("ComponentStatusz"),
        profiling: parts.profiling,
        set_verbosity: Some(Arc::new(move |verbosity| log.set_verbosity(verbosity))),
        controllers: Some(manager.env().introspection.clone()),
    }
}
