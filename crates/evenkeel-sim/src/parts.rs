//! Parts of the control plane, each started as its program starts it.

use crate::{Options, part};
use evenkeel_cloud::{
    CloudContext, CloudProvider, Options as CloudOptions,
    ip_pool::{Config, IpPool},
};
use evenkeel_controllers::{
    certificates::signing::{self, Pair},
    core::{rootcacertpublisher, serviceaccounttoken::SigningKey},
    options::Options as ControllersOptions,
    wiring::descriptor::{Clients, ControllerContext, descriptors},
};
use evenkeel_nodes::NodesOptions;
use evenkeel_runtime::{
    cache::Caches,
    client::Client,
    clock::Clock,
    controller::Env,
    manager::{Manager, RunnableGroup, Setup},
    tasks::Tasks,
};
use evenkeel_scheduler::SchedulerOptions;
use evenkeel_test::{BoxError, Program, simulation::Part};
use futures::future::BoxFuture;
use prometheus::Registry;
use std::{fmt, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// User agent of the controllers, and name of their lease.
const MANAGER: &str = "kube-controller-manager";

/// Cloud provider of a simulated world, and the options of its controllers.
#[derive(Clone)]
pub struct Cloud {
    /// Creates the provider at each start of the cloud part.
    new_provider: Arc<dyn Fn() -> Arc<dyn CloudProvider> + Send + Sync>,
    /// Options of the cloud's controllers.
    pub options: CloudOptions,
}

impl Cloud {
    /// Returns a cloud with a provider from `new_provider`. State that must survive a crash is kept in the closure.
    pub fn new(new_provider: impl Fn() -> Arc<dyn CloudProvider> + Send + Sync + 'static) -> Self {
        Self { new_provider: Arc::new(new_provider), options: CloudOptions::default() }
    }

    fn provider(&self) -> Arc<dyn CloudProvider> {
        (self.new_provider)()
    }
}

impl Default for Cloud {
    /// Returns a cloud whose load balancers get addresses from `198.18.0.0/28`.
    fn default() -> Self {
        Self::new(|| {
            let pool = IpPool::new(&Config::of_addresses("198.18.0.0/28"));
            Arc::new(pool.unwrap_or_else(|error| panic!("{error}")))
        })
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cloud").field(&self.options).finish()
    }
}

/// Parts of a world by name, and whether stale watches hit them.
pub(crate) fn programs(options: &Options) -> Vec<(Part, Arc<dyn Program>, bool)> {
    let replica = || -> Arc<dyn Program> { Arc::new(Replica) };
    let controllers = |which| -> Arc<dyn Program> {
        Arc::new(Controllers { which, allocate_node_cidrs: options.allocate_node_cidrs })
    };
    let (alone, others) = options.alone.map_or((Which::None, Which::All), |name| {
        let known = descriptors().iter().any(|descriptor| descriptor.name == name);
        assert!(known, "there is no controller {name}");
        (Which::Only(name), Which::AllBut(name))
    });
    vec![
        (part::CONTROLLERS, controllers(others), true),
        (part::ALONE, controllers(alone), true),
        (part::CLOUD, Arc::new(CloudManager(options.cloud.clone())), false),
        (part::SCHEDULER, Arc::new(Scheduler { seed: options.seed }), true),
        (part::NODES, Arc::new(Nodes(options.nodes.clone())), false),
        (part::REPLICA.replica(1), replica(), false),
        (part::REPLICA.replica(2), replica(), false),
    ]
}

/// A part after its start. It has to read all its state from the server.
struct Started {
    client: Client,
    caches: Caches,
    clock: Clock,
    registry: Registry,
    tasks: Tasks,
}

impl Started {
    fn new(client: kube::Client, agent: &str, setup: &Setup, stop: CancellationToken) -> Self {
        let (clock, registry) = (setup.clock().clone(), Registry::new());
        let client = Client::builder(client, clock.clone()).user_agent(agent).build();
        let caches = Caches::new(client.clone(), clock.clone(), &registry);
        Self { client, caches, clock, registry, tasks: Tasks::under(stop) }
    }

    fn env(&self) -> Env {
        Env::new(self.client.clone(), self.caches.clone(), self.clock.clone(), &self.registry)
    }

    /// Starts the caches, and runs until the part is stopped.
    async fn run(self) -> Result<(), BoxError> {
        self.caches.start(&self.tasks);
        self.tasks.token().cancelled().await;
        self.tasks.join().await;
        Ok(())
    }
}

/// Controllers of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    None,
    /// The controller of this name.
    Only(&'static str),
    AllBut(&'static str),
}

impl Which {
    fn has(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Only(only) => name == only,
            Self::AllBut(other) => name != other,
        }
    }
}

/// Controllers without leader election.
struct Controllers {
    which: Which,
    allocate_node_cidrs: bool,
}

impl Program for Controllers {
    fn start(
        &self,
        client: kube::Client,
        setup: Setup,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), BoxError>> {
        let started = Started::new(client, MANAGER, &setup, stop);
        let (client, tasks, registry) =
            (started.client.clone(), started.tasks.clone(), started.registry.clone());
        let Self { which, allocate_node_cidrs } = *self;
        start_controllers(which, started.env(), client, tasks, registry, allocate_node_cidrs);
        Box::pin(started.run())
    }
}

/// A controller manager with leader election. It ends with an error when it loses its lease.
struct Replica;

impl Program for Replica {
    fn start(
        &self,
        client: kube::Client,
        setup: Setup,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), BoxError>> {
        let registry = Registry::new();
        let manager = Manager::builder(client)
            .component(MANAGER)
            .registry(registry.clone())
            .leader_election("kube-system", MANAGER, setup.identity())
            .setup(setup)
            .build()
            .unwrap_or_else(|error| panic!("{error}"));
        let (env, writer) = (manager.env().clone(), manager.env().client.clone());
        manager.add(RunnableGroup::LeaderElection, "controllers", |running| async move {
            let tasks = Tasks::under(running.token());
            start_controllers(Which::All, env, writer, tasks.clone(), registry, false);
            running.stopped().await;
            tasks.join().await;
            Ok(())
        });
        Box::pin(async move { Ok(manager.run(stop.cancelled_owned()).await?) })
    }
}

/// The cloud's controllers.
struct CloudManager(Cloud);

impl Program for CloudManager {
    fn start(
        &self,
        client: kube::Client,
        setup: Setup,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), BoxError>> {
        let started = Started::new(client, "cloud-controller-manager", &setup, stop);
        let client = started.client.clone();
        let context = CloudContext {
            env: started.env(),
            clients: Arc::new(move |_| client.clone()),
            tasks: started.tasks.clone(),
            registry: started.registry.clone(),
            provider: self.0.provider(),
            options: Arc::new(self.0.options.clone()),
        };
        if let Err(error) = context.start_all() {
            panic!("{error}");
        }
        Box::pin(started.run())
    }
}

/// Program of the scheduler.
struct Scheduler {
    seed: u64,
}

impl Program for Scheduler {
    fn start(
        &self,
        client: kube::Client,
        setup: Setup,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), BoxError>> {
        let started = Started::new(client, "kube-scheduler", &setup, stop.clone());
        let options = SchedulerOptions { seed: self.seed, ..SchedulerOptions::default() };
        let (client, caches) = (started.client.clone(), started.caches.clone());
        let (clock, registry) = (started.clock.clone(), started.registry.clone());
        let run = evenkeel_scheduler::run(client, caches, clock, registry, options, stop);
        started.tasks.spawn("scheduler", run);
        Box::pin(started.run())
    }
}

/// All simulated nodes.
struct Nodes(NodesOptions);

impl Program for Nodes {
    fn start(
        &self,
        client: kube::Client,
        setup: Setup,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), BoxError>> {
        let started = Started::new(client, "kubelet", &setup, stop.clone());
        let (client, caches, clock) =
            (started.client.clone(), started.caches.clone(), started.clock.clone());
        let run = evenkeel_nodes::run(client, caches, clock, self.0.clone(), stop);
        started.tasks.spawn("nodes", run);
        Box::pin(started.run())
    }
}

fn start_controllers(
    which: Which,
    env: Env,
    client: Client,
    tasks: Tasks,
    registry: Registry,
    allocate_node_cidrs: bool,
) {
    // A test certificate, valid until 2126.
    let (certificate, key) = (include_str!("testdata/ca.crt"), include_str!("testdata/ca.key"));
    let authority = Pair::Texts { certificate: certificate.to_owned(), key: key.to_owned() };
    let mut options = ControllersOptions {
        rootcacertpublisher: rootcacertpublisher::Options { ca: Some(certificate.into()) },
        signing: signing::Options { common: Some(authority), ..signing::Options::default() },
        ..ControllersOptions::default()
    };
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/src/testdata/accounts.key");
    options.serviceaccounttoken.key = Some(SigningKey::File(key.to_owned()));
    options.nodeipam.enabled = allocate_node_cidrs;
    options.nodeipam.cluster = "10.244.0.0/16".into();
    // Unused tokens are cleaned up after an hour.
    options.legacytokencleaner.clean_up_period = Duration::from_secs(3600);
    // Simulated nodes have no disks for hostPath volumes.
    options.binder.host_path_files = false;
    let clients: Clients = Arc::new(move |_| client.clone());
    let context = ControllerContext::new(env, clients, tasks, registry, options);
    for descriptor in descriptors().iter().filter(|descriptor| which.has(descriptor.name)) {
        if let Err(error) = context.start(descriptor) {
            panic!("{error}");
        }
    }
}
