//! Builder of a manager.

use super::{ControllerDefaults, Manager, Setup, caches::CACHE_SYNC_TIMEOUT, runnables::Runnables};
use crate::{
    cache::{CacheOptions, Caches, Full},
    client::{Client, Interceptor, Metadata, Transport, logged_dry_run},
    clock::Clock,
    controller::{self, Env},
    events::EventRecorder,
    health::{Health, LEADER_TOLERANCE},
    latch::Latch,
    leaderelection::{self, CandidateConfig, Config, ConfigError, LeaderElector},
    metrics::ClusterRegistries,
    permissions::Permissions,
    sharding::{Member, Sharding, ShardingError},
    tasks::Supervisor,
};
use evenkeel_api::{Kind, View};
use kube::api::DynamicObject;
use prometheus::Registry;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// Error from building a manager.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The configuration of leader election violates a rule.
    #[error("leader election")]
    Election(#[from] ConfigError),
    /// The settings of sharding violate a rule.
    #[error("sharding")]
    Sharding(#[from] ShardingError),
    /// The environment of the process cannot be read.
    #[error("identity for leader election")]
    Setup(#[from] std::io::Error),
    /// A port cannot be opened.
    #[cfg(feature = "serve")]
    #[error("cannot listen on {address} for {purpose}")]
    Listen {
        /// Purpose of the port: `probes`, `metrics` or `profiles`.
        purpose: &'static str,
        /// Address of the port.
        address: std::net::SocketAddr,
        /// Reason of the failure.
        #[source]
        source: std::io::Error,
    },
    /// A dry run wraps the client that the manager creates itself.
    #[error(
        "a dry run cannot change the client of `ManagerBuilder::client`: leave that out, or build the client over `client::dry_run`"
    )]
    DryRunOfClient,
    /// The certificate of the metrics cannot be used.
    #[cfg(feature = "serve")]
    #[error("certificate of the metrics")]
    Tls(#[source] crate::secure_serving::TlsError),
}

/// Settings of a manager. See [`Manager::builder`].
#[must_use = "a builder does nothing until built"]
pub struct ManagerBuilder {
    transport: Transport,
    client: Option<Client>,
    caches: Option<Caches>,
    clock: Clock,
    registry: Registry,
    component: String,
    grace_period: Duration,
    election: Option<Config>,
    candidate: Option<CandidateConfig>,
    setup: Option<Setup>,
    /// Name of the Lease of [`ManagerBuilder::leader_election_id`].
    election_id: Option<String>,
    sharding: Option<Sharding>,
    cache_options: Vec<ConfigureCache>,
    namespaces: Vec<String>,
    cache_sync_timeout: Option<Duration>,
    controller_defaults: ControllerDefaults,
    dry_run: bool,
    /// Whether the metrics of queues have the labels of Kubernetes' programs.
    has_component_metrics: bool,
    interceptor: Option<Arc<dyn Interceptor>>,
    field_manager: Option<Arc<str>>,
    #[cfg(feature = "serve")]
    pub(super) ports: super::listeners::Ports,
}

/// Function that sets the options of one cache.
type ConfigureCache = Box<dyn FnOnce(&Caches) + Send>;

impl ManagerBuilder {
    pub(super) fn new(transport: Transport) -> Self {
        Self {
            transport,
            client: None,
            caches: None,
            clock: Clock::system(),
            registry: Registry::new(),
            component: "evenkeel".to_owned(),
            grace_period: Duration::from_secs(30),
            election: None,
            candidate: None,
            setup: None,
            election_id: None,
            sharding: None,
            cache_options: Vec::new(),
            namespaces: Vec::new(),
            cache_sync_timeout: Some(CACHE_SYNC_TIMEOUT),
            controller_defaults: ControllerDefaults::default(),
            dry_run: false,
            has_component_metrics: false,
            interceptor: None,
            field_manager: None,
            #[cfg(feature = "serve")]
            ports: super::listeners::Ports::default(),
        }
    }

    /// Sets the program's name, which is its user agent and the source of its events.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// let manager = builder.component("copier").build();
    /// assert_eq!(manager.as_ref().unwrap().component(), "copier");
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    pub fn component(mut self, name: &str) -> Self {
        self.component = name.to_owned();
        self
    }

    /// Sets the client, with its rate limit, metrics and user agent. Default: a new one.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// # let kube = builder.component("copier").build()?.unfenced_client().kube();
    /// # let clock = evenkeel_runtime::clock::Clock::system();
    /// let client = evenkeel_runtime::client::Client::builder(kube.clone(), clock).qps(50.0).burst(100);
    /// let manager = Manager::builder(kube).client(client.build()).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Sets the caches, which must not be started yet. Default: new ones.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// # let given = builder.build()?;
    /// # let (kube, env) = (given.unfenced_client().kube(), given.env());
    /// use evenkeel_runtime::{cache::Caches, prometheus::Registry};
    ///
    /// let caches = Caches::new(env.client.clone(), env.clock.clone(), &Registry::new());
    /// let manager = Manager::builder(kube).caches(caches).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    pub fn caches(mut self, caches: Caches) -> Self {
        self.caches = Some(caches);
        self
    }

    /// Sets which objects of `K` are cached, and which parts of them. Default: all objects, whole.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::Secret;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// let secrets = CacheOptions::<Secret>::in_namespace("web").labels("app=web");
    /// let manager = builder.cache(secrets).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    #[doc(alias = "ByObject")]
    pub fn cache<K>(mut self, options: CacheOptions<K>) -> Self
    where
        K: 'static,
        Full<K>: View,
    {
        self.cache_options.push(Box::new(move |caches| caches.configure(options)));
        self
    }

    /// Like [`ManagerBuilder::cache`], for a kind that is known only at run time.
    ///
    /// ```no_run
    /// use evenkeel_runtime::prelude::*;
    /// use kube::api::DynamicObject;
    ///
    /// fn manager(kube: kube::Client, gadgets: Kind) -> Result<Manager> {
    ///     let options = CacheOptions::<DynamicObject>::in_namespace("web").labels("app=web");
    ///     Ok(Manager::builder(kube).cache_dynamic(gadgets, options).build()?)
    /// }
    /// ```
    pub fn cache_dynamic(mut self, kind: Kind, options: CacheOptions<DynamicObject>) -> Self {
        self.cache_options.push(Box::new(move |caches| caches.configure_dynamic(kind, options)));
        self
    }

    /// Like [`ManagerBuilder::cache`], for a kind that is cached as metadata only.
    pub fn cache_metadata(mut self, kind: Kind, options: CacheOptions<Metadata>) -> Self {
        self.cache_options.push(Box::new(move |caches| caches.configure_metadata(kind, options)));
        self
    }

    /// Sets the namespaces whose objects are cached. Applies to all kinds without a namespace in their
    /// [options](ManagerBuilder::cache). By default, objects of all namespaces are cached. Not used with
    /// [`ManagerBuilder::caches`].
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// let manager = builder.namespaces(["web", "shop"]).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    #[doc(alias = "DefaultNamespaces")]
    pub fn namespaces<'n>(mut self, namespaces: impl IntoIterator<Item = &'n str>) -> Self {
        self.namespaces = namespaces.into_iter().map(str::to_owned).collect();
        self
    }

    /// Sets the clock, for simulations. Default: the system's clock.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// # let kube = builder.build()?.unfenced_client().kube();
    /// let clock = evenkeel_runtime::clock::Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    /// let manager = Manager::builder(kube).clock(clock).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the environment of the program: its clock, and the identity and namespace for
    /// [`ManagerBuilder::leader_election_id`].
    ///
    /// ```
    /// use evenkeel_runtime::prelude::*;
    ///
    /// // `main` passes `Setup::of_process()?`, and a test a simulated one.
    /// fn operator(kube: kube::Client, setup: Setup) -> anyhow::Result<Manager> {
    ///     Ok(Manager::builder(kube).setup(setup).leader_election_id("maps.example.com").build()?)
    /// }
    /// # fn is_program(_: impl evenkeel_test::Program) {}
    /// # is_program(operator);
    /// ```
    pub fn setup(mut self, setup: Setup) -> Self {
        self.clock = setup.clock.clone();
        self.setup = Some(setup);
        self
    }

    /// Like [`ManagerBuilder::leader_election`], with the identity and the namespace of the [`Setup`]. Outside a pod, the
    /// namespace is `default`.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// let manager = builder.leader_election_id("maps.example.com").build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    #[doc(alias = "LeaderElectionID")]
    pub fn leader_election_id(mut self, name: &str) -> Self {
        self.election_id = Some(name.to_owned());
        self
    }

    /// Splits the objects among all replicas. Each replica reconciles the objects of the shards that it holds. The
    /// identity and the namespace are those of the [`Setup`], as for [`ManagerBuilder::leader_election_id`].
    ///
    /// Controllers then run in every replica. Other runnables in [`super::RunnableGroup::LeaderElection`] run only in the
    /// leader. Its election is the configured one, or else an election for the Lease with the id of `sharding`.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// use evenkeel_runtime::manager::RunnableGroup;
    ///
    /// let manager = builder.sharding(Sharding::new("maps", 16)).build()?;
    /// // Controllers run in every replica, and this in one.
    /// manager.add(RunnableGroup::LeaderElection, "report", |running| async move {
    ///     running.stopped().await;
    ///     Ok(())
    /// });
    /// # Ok(manager)
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    pub fn sharding(mut self, sharding: Sharding) -> Self {
        self.sharding = Some(sharding);
        self
    }

    /// Sets the registry of metrics. Default: a new one.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// let registry = evenkeel_runtime::prometheus::Registry::new();
    /// let manager = builder.registry(registry.clone()).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Sets the time after which a stopping manager aborts the remaining tasks. Default: 30 s.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// let manager = builder.grace_period(Duration::from_secs(20)).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    #[doc(alias = "GracefulShutdownTimeout")]
    pub fn grace_period(mut self, period: Duration) -> Self {
        self.grace_period = period;
        self
    }

    /// Sets the maximum time for caches to fill, for the manager and for controllers that are added later. After it, the
    /// manager stops with an error that names the caches and the reasons. `None` sets no limit. Default: 2 min.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// let manager = builder.cache_sync_timeout(Duration::from_secs(60)).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    #[doc(alias = "CacheSyncTimeout")]
    pub fn cache_sync_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.cache_sync_timeout = timeout.into();
        self
    }

    /// Sets options of all controllers. Each controller may replace them.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// let defaults = ControllerDefaults::default().max_concurrent(4).timeout(Duration::from_secs(60));
    /// let manager = builder.controller_defaults(defaults).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    pub fn controller_defaults(mut self, defaults: ControllerDefaults) -> Self {
        self.controller_defaults = defaults;
        self
    }

    /// Sends only reads to the server. Writes are logged and recorded ([`Manager::dry_run_writes`]) instead, and get a
    /// successful response. The manager acquires no lease and no shards, so it can run beside the operator itself.
    ///
    /// An object that a dry run creates does not exist afterwards, so writes that depend on it are missing. The manager creates
    /// its own client; with [`ManagerBuilder::client`], the build fails.
    ///
    /// ```no_run
    /// # use evenkeel_runtime::prelude::*;
    /// # async fn run(kube: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let manager = Manager::builder(kube).dry_run().build()?;
    /// // Declare controllers, then:
    /// let writes = manager.dry_run_writes().cloned().unwrap_or_default();
    /// manager.run(tokio::time::sleep(Duration::from_secs(30))).await?;
    /// for write in writes.writes() {
    ///     println!("{write}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("NewDryRunClient", "DryRunClient"))]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Gives the metrics of queues (`workqueue_*`) only the label `name`, as in Kubernetes' own programs. By default, they have
    /// the labels of controller-runtime: also `controller`, and for the depth `priority`.
    pub fn component_metrics(mut self) -> Self {
        self.has_component_metrics = true;
        self
    }

    /// Sets the function that handles each request of the manager before it is sent.
    #[doc(alias = "interceptor.NewClient")]
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptor = Some(Arc::new(interceptor));
        self
    }

    /// Sets the field manager of all writes of controllers: applies, creations, updates, patches and statuses. Default:
    /// the user agent of [`ManagerBuilder::client`], or the [component](ManagerBuilder::component).
    #[doc(alias = "FieldOwner")]
    pub fn field_manager(mut self, name: &str) -> Self {
        self.field_manager = Some(name.into());
        self
    }

    /// Runs [`super::RunnableGroup::LeaderElection`] only while `identity` holds the Lease of this name. The
    /// durations are upstream's.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// let manager = builder.leader_election("default", "maps.example.com", "replica-1").build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    pub fn leader_election(self, namespace: &str, name: &str, identity: &str) -> Self {
        self.election(Config::new(namespace, name, identity))
    }

    /// Like [`ManagerBuilder::leader_election`], with a full configuration.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// use evenkeel_runtime::leaderelection::Config;
    ///
    /// let config = Config::new("default", "maps.example.com", "replica-1");
    /// let config = Config { lease_duration: Duration::from_secs(60), ..config };
    /// let manager = builder.election(config).build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    pub fn election(mut self, config: Config) -> Self {
        self.election = Some(config);
        self
    }

    /// Sets the LeaseCandidate of a coordinated election. Default: in the lease's namespace, with the versions of the
    /// [election](ManagerBuilder::election). It has no effect without a coordinated election.
    pub fn lease_candidate(mut self, candidate: CandidateConfig) -> Self {
        self.candidate = Some(candidate);
        self
    }

    /// Builds the manager. Call it inside the tokio runtime that the manager will run in.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// use evenkeel_runtime::leaderelection::Config;
    ///
    /// let too_short = Config { lease_duration: Duration::ZERO, ..Config::new("default", "maps", "a") };
    /// # let kube = builder.build()?.unfenced_client().kube();
    /// # let other = || Manager::builder(kube.clone());
    /// assert!(other().election(too_short).build().is_err());
    /// let manager = other().build();
    /// # manager
    /// # },
    /// # async |_| Ok(()),
    /// # );
    /// ```
    ///
    /// # Errors
    /// Fails if the configuration of leader election violates a rule, its identity cannot be read, a port cannot be opened, or
    /// a client is set for a dry run.
    pub fn build(self) -> Result<Manager, BuildError> {
        let Self {
            transport,
            client,
            caches,
            clock,
            registry,
            component,
            grace_period,
            election,
            candidate,
            setup,
            election_id,
            sharding,
            cache_options,
            namespaces,
            cache_sync_timeout,
            controller_defaults,
            dry_run,
            has_component_metrics,
            interceptor,
            field_manager,
            #[cfg(feature = "serve")]
            ports,
        } = self;
        if dry_run && client.is_some() {
            return Err(BuildError::DryRunOfClient);
        }
        let (transport, dry_run_writes) = if dry_run {
            let (kube, writes) = logged_dry_run(transport.into());
            (kube.into(), Some(writes))
        } else {
            (transport, None)
        };
        let own = match &setup {
            None if election_id.is_some() || sharding.is_some() => Some(Setup::of_process()?),
            setup => setup.clone(),
        };
        let (namespace, identity) = own
            .as_ref()
            .map_or(("default", ""), |own| (own.namespace().unwrap_or("default"), own.identity()));
        let election = match (&election_id, election, &sharding) {
            (Some(id), ..) => Some(Config::new(namespace, id, identity)),
            (None, None, Some(sharding)) => Some(sharding.election(namespace, identity)),
            (None, election, _) => election,
        };
        let permissions = permissions(namespace, election.as_ref(), sharding.is_some());
        #[cfg(feature = "serve")]
        let permissions = if ports.reviews_requests() {
            permissions.and("", "authentication.k8s.io", "tokenreviews", &["create"]).and(
                "",
                "authorization.k8s.io",
                "subjectaccessreviews",
                &["create"],
            )
        } else {
            permissions
        };
        // A dry run cannot write a lease.
        let (election, sharding) = if dry_run { (None, None) } else { (election, sharding) };
        let candidate = election
            .as_ref()
            .and_then(Config::candidate)
            .map(|default| candidate.unwrap_or(default));
        let client = client.unwrap_or_else(|| {
            let builder = Client::builder(transport, clock.clone());
            builder.user_agent(&component).registry(&registry).build()
        });
        let client = client.with_options(interceptor, field_manager);
        let caches = caches.unwrap_or_else(|| {
            let namespaces = namespaces.iter().map(String::as_str);
            Caches::in_namespaces(client.clone(), clock.clone(), &registry, namespaces)
        });
        cache_options.into_iter().for_each(|configure| configure(&caches));
        let events = EventRecorder::new(client.clone(), &component, clock.clone());
        let (health, readiness) = (Health::new(), Health::new());
        let election_metrics =
            election.as_ref().map(|_| leaderelection::Metrics::register(&registry));
        let elector = match election.zip(election_metrics.clone()) {
            None => None,
            Some((config, metrics)) => {
                let elector = LeaderElector::new(
                    &client,
                    config,
                    clock.clone(),
                    Some(events.clone()),
                    metrics,
                )?;
                Some(Arc::new(elector))
            }
        };
        if let Some(elector) = elector.clone() {
            health.add("leaderElection", move || elector.check(LEADER_TOLERANCE));
        }
        let supervisor = Supervisor::default();
        let checked_supervisor = supervisor.clone();
        health.add("tasks", move || checked_supervisor.check());
        let checked_caches = caches.clone();
        readiness.add("informer-sync", move || {
            let missing = checked_caches.unsynced();
            if missing.is_empty() {
                return Ok(());
            }
            let names: Vec<&str> = missing.iter().map(|kind| &*kind.plural).collect();
            Err(format!("{} caches not filled yet: {}", names.len(), names.join(", ")))
        });
        let fenced = elector.as_ref().map(|elector| client.fenced(&elector.fence()));
        let member = sharding
            .map(|sharding| Member::new(sharding, &client, &clock, &registry, namespace, identity))
            .transpose()?;
        let shards = member.as_ref().map(|member| member.shards().clone());
        if let Some(shards) = &shards {
            caches.split(shards);
        }
        let metrics = if has_component_metrics {
            controller::Metrics::register(&registry)
        } else {
            controller::Metrics::register_with_controller(&registry)
        };
        let fenced = fenced.unwrap_or_else(|| client.clone());
        let env = Env::with_metrics(fenced, caches, clock, metrics);
        #[cfg_attr(not(feature = "serve"), expect(unused_mut, reason = "ports change it"))]
        let mut manager = Manager {
            env: Env { shards, ..env },
            member: member.map(Arc::new),
            unfenced_client: client,
            component: component.into(),
            election_metrics,
            cluster_registries: ClusterRegistries::register(&registry),
            registry,
            health,
            readiness,
            supervisor,
            events,
            elector,
            grace_period,
            cache_sync_timeout,
            controller_defaults,
            candidate,
            dry_run_writes,
            permissions: Arc::new(Mutex::new(permissions)),
            setup,
            elected: Latch::default(),
            runnables: Arc::new(Runnables::default()),
            #[cfg(feature = "serve")]
            addresses: super::listeners::Addresses::default(),
        };
        #[cfg(feature = "serve")]
        ports.open(&mut manager)?;
        Ok(manager)
    }
}

/// Returns the permissions of a manager without controllers, in the namespace of the operator.
fn permissions(namespace: &str, election: Option<&Config>, is_sharded: bool) -> Permissions {
    const GROUP: &str = "coordination.k8s.io";
    let mut permissions = Permissions::of_namespace(namespace);
    if let Some(Config { namespace: of_lease, name, coordinated, .. }) = election {
        // A Lease in another namespace stays there, independent of the operator's namespace.
        let is_own = of_lease == namespace;
        if is_own {
            permissions.add_own(GROUP, "leases", "", &["create"]);
            permissions.add_own(GROUP, "leases", name, &["get", "update"]);
            permissions.add_own("", "events", "", &["create", "patch"]);
        } else {
            permissions.add(of_lease, GROUP, "leases", &["create", "get", "update"]);
            permissions.add(of_lease, "", "events", &["create", "patch"]);
        }
        if *coordinated {
            let verbs = ["create", "get", "update"];
            if is_own {
                permissions.add_own(GROUP, "leasecandidates", "", &verbs);
            } else {
                permissions.add(of_lease, GROUP, "leasecandidates", &verbs);
            }
        }
    }
    if is_sharded {
        permissions.add_own(GROUP, "leases", "", &["create", "delete", "get", "list", "update"]);
    }
    permissions
}
