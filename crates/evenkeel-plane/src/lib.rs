//! Controllers, scheduler and nodes as clients of one API server.

mod kubelet_api;
mod metrics_api;
mod registration;
mod schedulers;

use evenkeel_api::Kind;
use evenkeel_apiserver::{BuildError, Server};
use evenkeel_cloud::{CloudContext, CloudProvider};
use evenkeel_controllers::{
    certificates::signing::Pair,
    core::{rootcacertpublisher, serviceaccounttoken::SigningKey},
    needs::Gates,
    options::Options,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, descriptors},
};
use evenkeel_nodes::{Kubelets, NodeFaults, NodesOptions, StorageOptions, Usage};
pub use evenkeel_nodes::{NodeGroup, NodeOptions, behavior_definition, stage_definition};
use evenkeel_runtime::{
    cache::Caches,
    client::{Client, RestMetrics},
    clock::Clock,
    controller::Env,
    introspect::Introspection,
    tasks::{Supervisor, TaskFailure, Tasks},
};
use evenkeel_scheduler::SchedulerOptions;
use prometheus::Registry;
use registration::Unregistered;
use std::{sync::Arc, time::Duration};
use tokio::runtime::Handle;

/// Time that each component has for a graceful shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Controllers, scheduler and nodes to run.
#[derive(Debug, Clone)]
pub struct PlaneOptions {
    /// Descriptors of the controllers to run.
    pub controllers: Vec<Descriptor>,
    /// Options of the controllers.
    pub controller_options: Options,
    /// Feature gates of the controllers.
    pub gates: Gates,
    /// The scheduler, if any.
    pub scheduler: Option<SchedulerOptions>,
    /// The nodes. An empty list means none.
    pub nodes: NodesOptions,
    /// The cloud provider, if any, for load balancers, instances and routes.
    pub cloud: Option<Arc<dyn CloudProvider>>,
}

impl PlaneOptions {
    /// Returns options for all components, with this many nodes.
    pub fn all(nodes: u32) -> Self {
        let mut controller_options = Options::default();
        // The hostPath volumes of simulated nodes are not directories of this machine.
        controller_options.binder.host_path_files = false;
        Self {
            controllers: descriptors(),
            controller_options,
            gates: Gates::default(),
            scheduler: Some(SchedulerOptions::default()),
            nodes: NodesOptions {
                nodes: NodeOptions::several(nodes, "node-", &["zone-a", "zone-b", "zone-c"]),
                storage: Some(StorageOptions::default()),
                ..NodesOptions::default()
            },
            cloud: None,
        }
    }

    /// Also publishes the server's CA to pods, signs certificates with it, and populates token Secrets with the
    /// server's key.
    #[must_use]
    pub fn of_server(self, server: &Server) -> Self {
        let ca = server.ca_pem();
        self.with_ca(ca)
            .with_authority(ca, server.ca_key_pem())
            .with_service_account_key(server.service_account_key_pem())
    }

    /// Also publishes this CA (PEM) to pods.
    #[must_use]
    pub fn with_ca(mut self, ca: &str) -> Self {
        self.controller_options.rootcacertpublisher =
            rootcacertpublisher::Options { ca: Some(ca.into()) };
        self
    }

    /// Also signs certificates with this CA: certificate and key, PEM.
    #[must_use]
    pub fn with_authority(mut self, certificate: &str, key: &str) -> Self {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        self.controller_options.signing.common = Some(Pair::Texts { certificate, key });
        self
    }

    /// Also populates token Secrets, with tokens signed by this key (PEM).
    #[must_use]
    pub fn with_service_account_key(mut self, key: &str) -> Self {
        self.controller_options.serviceaccounttoken.key = Some(SigningKey::Text(key.to_owned()));
        self
    }
}

/// Running components of a control plane, without the API server.
pub struct Plane {
    caches: Caches,
    introspection: Introspection,
    registry: Registry,
    /// Registries of the schedulers, in the order of their options.
    scheduler_registries: Vec<Registry>,
    usage: Option<Usage>,
    node_faults: NodeFaults,
    kubelets: Kubelets,
    unregistered: Option<Unregistered>,
    /// Runtime of all tasks, whose time the clock follows.
    runtime: Handle,
    /// Supervisor of all tasks.
    supervisor: Supervisor,
    /// Tasks of reflectors, nodes, scheduler and controllers. They stop in reverse order.
    tasks: [Tasks; 4],
}

impl Plane {
    /// Starts the components, which wait for their caches ([`Plane::synced`]). Call it within the runtime that they run
    /// on, and whose time the clock follows. The API server may be on another one.
    ///
    /// # Errors
    /// Fails if a controller or a cloud controller cannot start with its options.
    pub fn start(
        kube: &kube::Client,
        clock: &Clock,
        options: PlaneOptions,
    ) -> Result<Self, StartError> {
        Self::start_with_schedulers(kube, clock, options, Vec::new())
    }

    /// Like [`Plane::start`], with more schedulers beside the one in the options. Each has a queue, profiles, events
    /// and metrics of its own, and all read the same caches. No two of them may have a profile of the same name: both
    /// would schedule its pods.
    ///
    /// # Errors
    /// Fails if a controller or a cloud controller cannot start with its options.
    pub fn start_with_schedulers(
        kube: &kube::Client,
        clock: &Clock,
        options: PlaneOptions,
        more: Vec<SchedulerOptions>,
    ) -> Result<Self, StartError> {
        let registry = Registry::new();
        let metrics = RestMetrics::new(&registry);
        // A negative QPS means no rate limit.
        let client = |name: &str| {
            Client::builder(kube.clone(), clock.clone())
                .qps(-1.0)
                .user_agent(name)
                .metrics(metrics.clone())
                .build()
        };
        let caches = Caches::new(client("evenkeel-caches"), clock.clone(), &registry);
        let supervisor = Supervisor::default();
        let [reflectors, nodes, scheduler, controllers] =
            std::array::from_fn(|_| Tasks::of(&supervisor));
        let mut usage = None;
        let node_faults = match options.nodes.behaviors {
            true => NodeFaults::watch(&caches),
            false => NodeFaults::default(),
        };
        let kubelets = options.nodes.kubelets.clone();
        let mut unregistered = None;
        if !options.nodes.nodes.is_empty() {
            let of_caches = Usage::new(&caches, clock.clone());
            usage = Some(match options.nodes.behaviors {
                true => of_caches.with_behaviors(&caches),
                false => of_caches,
            });
            unregistered = Some(Unregistered::follow(&options.nodes.nodes, &caches.of()));
            let stop = nodes.token();
            let run = evenkeel_nodes::run(
                client("kubelet"),
                caches.clone(),
                clock.clone(),
                options.nodes,
                stop,
            );
            nodes.spawn("nodes", run);
        }
        let all_schedulers: Vec<_> = options.scheduler.into_iter().chain(more).collect();
        let scheduler_registries = schedulers::registries(&all_schedulers);
        for (scheduler_options, registry) in all_schedulers.into_iter().zip(&scheduler_registries) {
            let run = evenkeel_scheduler::run(
                client("kube-scheduler"),
                caches.clone(),
                clock.clone(),
                registry.clone(),
                scheduler_options,
                scheduler.token(),
            );
            scheduler.spawn("scheduler", run);
        }
        let controller_client = client("kube-controller-manager");
        let env = Env::new(controller_client.clone(), caches.clone(), clock.clone(), &registry);
        let introspection = env.introspection.clone();
        if let Some(provider) = options.cloud {
            let cloud_client = client("cloud-controller-manager");
            let cloud = CloudContext {
                env: env.clone(),
                clients: Arc::new(move |_| cloud_client.clone()),
                tasks: controllers.clone(),
                registry: registry.clone(),
                provider,
                options: Arc::default(),
            };
            cloud.start_all().map_err(|error| StartError {
                controller: error.controller,
                reason: error.reason,
            })?;
        }
        let mut context = ControllerContext::new(
            env,
            Arc::new(move |_| controller_client.clone()),
            controllers.clone(),
            registry.clone(),
            options.controller_options,
        );
        context.gates = options.gates;
        for descriptor in &options.controllers {
            if let Some(unmet) = context.start(descriptor)? {
                tracing::debug!(controller = descriptor.name, %unmet, "controller is not started");
            }
        }
        caches.start(&reflectors);
        let tasks = [reflectors, nodes, scheduler, controllers];
        let runtime = Handle::current();
        Ok(Self {
            caches,
            introspection,
            registry,
            scheduler_registries,
            usage,
            node_faults,
            kubelets,
            unregistered,
            runtime,
            supervisor,
            tasks,
        })
    }

    /// Connects an API server in this process with the components. The server then serves `metrics.k8s.io` for the
    /// nodes, returns logs of their pods, executes commands in them and connects to their ports. It lists the scheduler
    /// and the controllers in `componentstatuses`.
    ///
    /// # Errors
    /// Fails if the server cannot register `metrics.k8s.io`.
    pub async fn connect(&self, server: &Server) -> Result<(), BuildError> {
        metrics_api::serve(server, self).await?;
        kubelet_api::connect(server, self);
        let [_, _, scheduler, controllers] = &self.tasks;
        for (name, tasks) in [("scheduler", scheduler), ("controller-manager", controllers)] {
            let tasks = tasks.clone();
            server.component(name, move || {
                if tasks.running().is_empty() {
                    Err("it does not run in this process".to_owned())
                } else {
                    Ok(())
                }
            });
        }
        Ok(())
    }

    /// Returns the shared caches of the components.
    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// Returns the introspection of the controllers.
    pub fn introspection(&self) -> &Introspection {
        &self.introspection
    }

    /// Returns the usage of nodes and pods, or `None` without simulated nodes.
    pub fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// Returns the faults of the simulated nodes.
    pub fn node_faults(&self) -> &NodeFaults {
        &self.node_faults
    }

    /// Returns the kubelets of the nodes.
    pub fn kubelets(&self) -> &Kubelets {
        &self.kubelets
    }

    /// Returns the runtime of the components. Enter it before calls that depend on the components' time, such as introspection.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the registry of the components' and their clients' metrics, without those of the schedulers.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the registries of the schedulers' metrics, in the order of their options. With several schedulers, each metric
    /// has the label `scheduler`: the name of the scheduler's first profile.
    pub fn scheduler_registries(&self) -> &[Registry] {
        &self.scheduler_registries
    }

    /// Waits until a task fails that cannot be restarted. The control plane must then stop.
    pub async fn failed(&self) -> TaskFailure {
        self.supervisor.failed().await
    }

    /// Waits until all caches have synced.
    pub async fn synced(&self) {
        self.caches.synced().await;
    }

    /// Waits until the simulated nodes are registered, and the caches show them. Nodes register once the caches have synced.
    pub async fn nodes_registered(&self) {
        if let Some(unregistered) = &self.unregistered {
            unregistered.none().await;
        }
    }

    /// Returns the names of the simulated nodes that are not registered yet.
    pub fn unregistered_nodes(&self) -> Vec<String> {
        self.unregistered.as_ref().map(Unregistered::names).unwrap_or_default()
    }

    /// Returns the kinds whose caches have not synced.
    pub fn unsynced(&self) -> Vec<Kind> {
        self.caches.unsynced()
    }

    /// Stops controllers, scheduler, nodes and caches, in this order. Each finishes its current work within five
    /// seconds. Returns the names of the tasks that did not stop in time.
    pub async fn stop(self) -> Vec<String> {
        let mut late = Vec::new();
        for tasks in self.tasks.iter().rev() {
            late.extend(tasks.shut_down(SHUTDOWN_TIMEOUT).await.into_iter().map(String::from));
        }
        late
    }
}

impl Drop for Plane {
    /// Aborts the components that still run.
    fn drop(&mut self) {
        for tasks in &self.tasks {
            tasks.abort();
        }
    }
}
