//! Parts of the control plane, each started as its program starts it.

use crate::{
    Options, Part,
    wire::{Wire, WorldCall},
};
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
use evenkeel_runtime::{
    cache::Caches,
    client::Client,
    clock::Clock,
    controller::Env,
    manager::{Manager, RunnableGroup},
    tasks::Tasks,
};
use evenkeel_scheduler::SchedulerOptions;
use prometheus::Registry;
use std::{fmt, sync::Arc, time::Duration};

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

/// State of a part between its start and its crash.
pub(crate) struct RunningPart {
    pub(crate) wire: Wire,
    pub(crate) tasks: Tasks,
    pub(crate) caches: Caches,
}

impl RunningPart {
    /// Starts a part without state: it has to read everything from the server.
    pub(crate) fn start(part: Part, wire: Wire, clock: &Clock, options: &Options) -> Self {
        let registry = Registry::new();
        let agent = match part {
            Part::Cloud => "cloud-controller-manager",
            Part::Controllers | Part::Replica(_) => "kube-controller-manager",
            Part::Scheduler => "kube-scheduler",
            Part::Nodes => "kubelet",
            Part::User => "user",
            Part::Observer => "observer",
        };
        let client = Client::builder(wire.kube(), clock.clone()).user_agent(agent).build();
        let caches = Caches::new(client.clone(), clock.clone(), &registry);
        let running_part = Self { wire, tasks: Tasks::new(), caches };
        match part {
            Part::Controllers => {
                running_part.start_controllers(
                    client,
                    clock,
                    registry,
                    options.allocate_node_cidrs,
                );
            }
            Part::Cloud => running_part.start_cloud(client, clock, registry, options),
            Part::Scheduler => running_part.start_scheduler(client, clock, registry, options.seed),
            Part::Nodes => running_part.start_nodes(client, clock, options),
            Part::Replica(_) => {
                running_part.start_replica(part, &client, clock, registry);
                // The manager starts the caches.
                return running_part;
            }
            Part::User | Part::Observer => {}
        }
        running_part.caches.start(&running_part.tasks);
        running_part
    }

    fn start_controllers(
        &self,
        client: Client,
        clock: &Clock,
        registry: Registry,
        allocate_node_cidrs: bool,
    ) {
        let env = Env::new(client.clone(), self.caches.clone(), clock.clone(), &registry);
        start_all_controllers(env, client, self.tasks.clone(), registry, allocate_node_cidrs);
    }

    /// Starts a controller manager with leader election. If the manager ends with an error, the world restarts the
    /// part as after a crash.
    fn start_replica(&self, part: Part, client: &Client, clock: &Clock, registry: Registry) {
        let manager = Manager::builder(self.wire.kube())
            .component("kube-controller-manager")
            .client(client.clone())
            .caches(self.caches.clone())
            .clock(clock.clone())
            .registry(registry.clone())
            .leader_election("kube-system", "kube-controller-manager", &format!("{part:?}"))
            .build()
            .unwrap_or_else(|error| panic!("{error}"));
        let (env, writer) = (manager.env().clone(), client.fenced(&manager.fence()));
        manager.add(RunnableGroup::LeaderElection, "controllers", |running| async move {
            let tasks = Tasks::under(running.token());
            start_all_controllers(env, writer, tasks.clone(), registry, false);
            running.stopped().await;
            tasks.join().await;
            Ok(())
        });
        let (stop, wire) = (self.tasks.token(), self.wire.clone());
        let run = async move {
            let ended = manager.run(stop.clone().cancelled_owned()).await;
            if ended.is_err() && !stop.is_cancelled() {
                wire.call(WorldCall::Restart(part));
            }
        };
        self.tasks.spawn_finite("manager", self.wire.halt.over(run));
    }

    fn start_cloud(&self, client: Client, clock: &Clock, registry: Registry, options: &Options) {
        let env = Env::new(client.clone(), self.caches.clone(), clock.clone(), &registry);
        let context = CloudContext {
            env,
            clients: Arc::new(move |_| client.clone()),
            tasks: self.tasks.clone(),
            registry,
            provider: options.cloud.provider(),
            options: Arc::new(options.cloud.options.clone()),
        };
        if let Err(error) = context.start_all() {
            panic!("{error}");
        }
    }

    fn start_scheduler(&self, client: Client, clock: &Clock, registry: Registry, seed: u64) {
        let options = SchedulerOptions { seed, ..SchedulerOptions::default() };
        let (caches, clock, stop) = (self.caches.clone(), clock.clone(), self.tasks.token());
        let run = evenkeel_scheduler::run(client, caches, clock, registry, options, stop);
        self.tasks.spawn("scheduler", run);
    }

    fn start_nodes(&self, client: Client, clock: &Clock, options: &Options) {
        let (caches, clock, stop) = (self.caches.clone(), clock.clone(), self.tasks.token());
        let run = evenkeel_nodes::run(client, caches, clock, options.nodes.clone(), stop);
        self.tasks.spawn("nodes", run);
    }
}

/// Starts all controllers.
fn start_all_controllers(
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
    for descriptor in descriptors() {
        if let Err(error) = context.start(&descriptor) {
            panic!("{error}");
        }
    }
}
