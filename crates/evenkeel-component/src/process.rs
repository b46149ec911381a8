//! Parts of a program besides its controllers: metrics, the connection to the API server, caches, leader election and
//! the secure port.

use crate::secure_serving::{Identity, Routes, Tls};
use crate::{
    command_line,
    connection::{Connection, RateFactors},
    features::{self, FeatureGates},
    flags::ParsedFlags,
    leading::MigrationLease,
    logging::Log,
    metrics::{self, Exposition, RunningControllers},
    migration::Migration,
    options::{ClientOptions, MetricsOptions, ServingOptions},
    serving::{self, Checks, ComponentInfo, Pages},
    version,
};
use anyhow::Result;
use evenkeel_runtime::{
    cache::Caches,
    clock::Clock,
    leaderelection::{self, CandidateConfig},
    manager::{Manager, RunnableGroup, shutdown_signal},
    tasks::Tasks,
};
use futures::future::BoxFuture;
use prometheus::Registry;
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Settings of a program, except for its controllers.
pub struct Parts<'a> {
    /// Name of the program, with which its user agents begin.
    pub name: &'static str,
    /// Parsed command line.
    pub parsed_flags: &'a ParsedFlags,
    /// Log of the program. `/debug/flags/v` changes its verbosity.
    pub log: &'a Log,
    /// Options of the connection to the API server.
    pub client: &'a ClientOptions,
    /// Feature gates of the program.
    pub gates: &'a FeatureGates,
    /// Configuration of leader election. `None` disables it.
    pub election: Option<leaderelection::Config>,
    /// Options of the secure port.
    pub serving: &'a ServingOptions,
    /// Options of metrics.
    pub metrics: &'a MetricsOptions,
    /// Table of upstream's metrics and their stability levels.
    pub catalog: &'static str,
    /// Content of `/configz`.
    pub configz: Value,
    /// Least period after which caches send all objects to their handlers again (`--min-resync-period`). Zero means never.
    pub min_resync_period: Duration,
    /// Whether `/debug/pprof` is served (`--profiling`).
    pub profiling: bool,
    /// Maximum duration of an orderly stop.
    pub grace: Duration,
    /// The program's own pages and health checks. `None` means no own pages, and [`Checks::usual`].
    pub own_pages: Option<OwnPages<'a>>,
}

/// Function that adds a program's own pages and returns its health checks. The token is cancelled when the
/// program stops.
pub type OwnPages<'a> =
    Box<dyn FnOnce(&Manager, &CancellationToken, Routes) -> (Routes, Checks) + Send + 'a>;

/// Prepared program. The caller adds controllers to its manager.
pub struct Process {
    /// The system's clock.
    pub clock: Clock,
    /// Registry of all metrics of the program.
    pub registry: Registry,
    /// Connection to the API server.
    pub connection: Connection,
    /// Manager that runs the program's runnables.
    pub manager: Manager,
    /// Metric of running controllers.
    pub running_controllers: RunningControllers,
    election: Option<leaderelection::Config>,
    /// Certificate of the secure port. `None` if it is not served.
    identity: Option<Identity>,
    background: Tasks,
    /// Cancelled when a signal stops the program.
    stopping: CancellationToken,
}

impl Process {
    /// Prepares the program and binds the secure port. Nothing runs yet.
    ///
    /// # Errors
    /// Fails if a file cannot be read or the port cannot be bound.
    pub fn open(parts: Parts<'_>) -> BoxFuture<'_, Result<Self>> {
        Box::pin(Self::prepare(parts))
    }

    async fn prepare(mut parts: Parts<'_>) -> Result<Self> {
        let (clock, registry) = (Clock::system(), Registry::new());
        let stopping = CancellationToken::new();
        metrics::register_process(&registry)?;
        metrics::register_build(&registry, parts.gates.versions());
        parts.gates.register(&registry)?;
        let (connection, config_reloader) =
            Connection::open(parts.name, parts.client, &clock, &registry).await?;
        let client = connection.client(RateFactors::ONE);
        let caches =
            Caches::new(client.with_user_agent("shared-informers"), clock.clone(), &registry);
        configure_caches(&caches, parts.gates);
        // Programs that start together do not resync together. Upstream: `ResyncPeriod`.
        caches.resync_all_every(parts.min_resync_period.mul_f64(1.0 + clock.draw(&"resync")));
        let mut builder = Manager::builder(connection.transport.clone())
            .component(parts.name)
            .client(client)
            .caches(caches)
            .clock(clock.clone())
            .registry(registry.clone())
            .component_metrics()
            .grace_period(parts.grace)
            // As upstream: the programs wait until the server serves the resources that they watch.
            .cache_sync_timeout(None);
        if let Some(election) = &parts.election {
            let candidate = lease_candidate(parts.name, election, parts.gates);
            builder = builder.election(election.clone()).lease_candidate(candidate);
        }
        let manager = builder.build()?;
        let background = Tasks::of(manager.supervisor());
        parts.log.keep_flushed(&background, &clock);
        let mut identity = None;
        if parts.serving.port != 0 {
            let exposition = Exposition::new(&registry, parts.catalog, parts.metrics);
            let routes = exposition.routes(Routes::new());
            let (routes, checks) = match parts.own_pages.take() {
                Some(add_own_pages) => {
                    let (routes, checks) = add_own_pages(&manager, &stopping, routes);
                    exposition.observe_health(&checks.livez);
                    exposition.observe_health(&checks.readyz);
                    (routes, checks)
                }
                None => (routes, Checks::usual(&manager)),
            };
            exposition.observe_health(&checks.healthz);
            let pages = pages(&parts, &manager, &clock);
            let of_port = identity.insert(serving::identity(parts.name, parts.serving)?).clone();
            serving::add(&manager, parts.serving, of_port, routes, pages, checks, &clock).await?;
        }
        manager.add(RunnableGroup::Others, "credentials", |running| async move {
            running.token().run_until_cancelled_owned(config_reloader.run()).await;
            Ok(())
        });
        let running_controllers = RunningControllers::register(&registry, parts.name);
        let election = parts.election;
        Ok(Self {
            clock,
            registry,
            connection,
            manager,
            running_controllers,
            election,
            identity,
            background,
            stopping,
        })
    }

    /// Returns the migration lease with its elector, which is never coordinated. Returns `None` without leader
    /// election or migration.
    ///
    /// # Errors
    /// Fails if the configuration of leader election is invalid.
    pub fn migration_lease(&self, migration: Option<&Migration>) -> Result<Option<MigrationLease>> {
        let Some((election, migration)) = self.election.as_ref().zip(migration) else {
            return Ok(None);
        };
        let name = migration.lease.clone();
        let config = leaderelection::Config { name, coordinated: false, ..election.clone() };
        let election = self.manager.new_elector(config, "leaderMigration")?;
        Ok(Some(MigrationLease { migration: migration.clone(), election }))
    }

    /// Returns the Lease of the leader election. `None` without one.
    pub fn election(&self) -> Option<&leaderelection::Config> {
        self.election.as_ref()
    }

    /// Returns the TLS of another port of this program, for browsers. It has the certificate of the secure port;
    /// `options` are the options of [`Parts::serving`].
    ///
    /// # Errors
    /// Fails if a certificate cannot be read or created.
    pub fn browser_tls(&self, options: &ServingOptions) -> Result<Tls> {
        let identity = match &self.identity {
            Some(identity) => identity.clone(),
            None => serving::identity(self.manager.component(), options)?,
        };
        serving::browser_tls(identity, options)
    }

    /// Runs until a signal stops the program or its lease is lost.
    ///
    /// # Errors
    /// Returns the reason why the program stopped, unless a signal stopped it.
    pub fn run(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let (signal, stopping) = (shutdown_signal(), self.stopping);
            let shutdown = async move {
                signal.await;
                stopping.cancel();
            };
            self.manager.run(shutdown).await?;
            self.background.token().cancel();
            self.background.join().await;
            Ok(())
        })
    }
}

/// Sets the options of caches that feature gates control. Call it before the first one is requested.
pub fn configure_caches(caches: &Caches, gates: &FeatureGates) {
    if !gates.enabled("WatchListClient") {
        caches.list_in_pages();
    }
}

/// Returns the LeaseCandidate of a coordinated election. The server chooses the candidate with the oldest emulated
/// version.
fn lease_candidate(
    name: &str,
    election: &leaderelection::Config,
    gates: &FeatureGates,
) -> CandidateConfig {
    CandidateConfig {
        // Upstream uses this namespace, wherever the lease is.
        namespace: "kube-system".to_owned(),
        identity: election.identity.clone(),
        lease: name.to_owned(),
        binary_version: format!("{}.0", features::BINARY),
        emulation_version: format!("{}.0", gates.versions().emulated),
        strategy: "OldestEmulationVersion".to_owned(),
    }
}

/// Returns the pages about the program for its secure port.
fn pages(parts: &Parts<'_>, manager: &Manager, clock: &Clock) -> Pages {
    let (gates, log) = (parts.gates, parts.log.clone());
    Pages {
        component: ComponentInfo {
            version: version::reported().trim_start_matches('v').to_owned(),
            emulated: gates.versions().emulated.to_string(),
            started: clock.now(),
            clock: clock.clone(),
        },
        configz: parts.configz.clone(),
        flagz: gates.enabled("ComponentFlagz").then(|| command_line::flagz(parts.parsed_flags)),
        statusz: gates.enabled("ComponentStatusz"),
        profiling: parts.profiling,
        set_verbosity: Some(Arc::new(move |verbosity| log.set_verbosity(verbosity))),
        controllers: Some(manager.env().introspection.clone()),
    }
}
