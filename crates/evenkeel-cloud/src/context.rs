//! Descriptors and context of the cloud controllers.

use crate::{CloudProvider, ProviderContext, node, node_lifecycle, route, service};
use evenkeel_api::{Kind, View};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    client::Client,
    controller::{Builder, Controller, Enqueue, Env},
    events::EventRecorder,
    tasks::Tasks,
};
use prometheus::Registry;
use std::{sync::Arc, time::Duration};

/// One of the cloud's controllers.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// Name of the controller, as in `--controllers`.
    pub name: &'static str,
    /// Aliases that flags still accept.
    pub aliases: &'static [&'static str],
    /// Name of its workqueue in metrics.
    pub queue: &'static str,
    /// Its service account, which is also the last part of its user agent.
    pub client: &'static str,
    /// The component that its events name.
    pub component: &'static str,
    /// Starts the controller with its context.
    pub start: Start,
}

/// Starts a controller: declares its caches and spawns its workers into the context's tasks. It returns at once.
pub type Start = fn(&CloudContext) -> Result<Started, StartError>;

/// Whether a controller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// The controller runs.
    Yes,
    /// The controller is skipped, because the provider lacks its interface or an option disables it. The log has the reason.
    No,
}

/// Why a controller cannot start.
#[derive(Debug, thiserror::Error)]
#[error("controller {controller} cannot start: {reason}")]
pub struct StartError {
    /// Name of the controller.
    pub controller: &'static str,
    /// Reason for people.
    pub reason: String,
}

/// Makes the client of a controller from its [`Descriptor::client`].
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// Options of the controllers, by the flags of the same names.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Value of `--cluster-name`, part of the names of cloud resources.
    pub cluster: String,
    /// `--cluster-cidr`: ranges that pods have their addresses from; routes elsewhere are left alone.
    pub cluster_cidrs: Vec<String>,
    /// Value of `--configure-cloud-routes`: whether the route controller runs.
    pub configure_routes: bool,
    /// Value of `--route-reconciliation-period`.
    pub route_period: Duration,
    /// Whether routes follow changes of nodes, and not a period (feature gate
    /// `CloudControllerManagerWatchBasedRoutesReconciliation`, KEP-5237).
    pub watch_routes: bool,
    /// Value of `--concurrent-service-syncs`.
    pub service_workers: usize,
    /// Value of `--concurrent-node-syncs`.
    pub node_workers: usize,
    /// `--node-status-update-frequency`: how often addresses are asked for again.
    pub node_status_period: Duration,
    /// Value of `--concurrent-node-lifecycle-syncs`.
    pub lifecycle_workers: usize,
    /// `--node-monitor-period`: how often a node that is not ready is asked for.
    pub node_monitor_period: Duration,
}

impl Default for Options {
    /// Upstream's defaults.
    fn default() -> Self {
        Self {
            cluster: "kubernetes".to_owned(),
            cluster_cidrs: Vec::new(),
            configure_routes: true,
            route_period: Duration::from_secs(10),
            watch_routes: false,
            service_workers: 1,
            node_workers: 1,
            node_status_period: Duration::from_secs(300),
            lifecycle_workers: 1,
            node_monitor_period: Duration::from_secs(5),
        }
    }
}

/// Shared parts of the program that controllers start with.
#[derive(Clone)]
pub struct CloudContext {
    /// Shared caches and their client, the time, metrics of queues and controllers.
    pub env: Env,
    /// Clients to write with, one for each controller.
    pub clients: Clients,
    /// Where controllers run.
    pub tasks: Tasks,
    /// Where metrics of single controllers go.
    pub registry: Registry,
    /// The cloud provider that the controllers call.
    pub provider: Arc<dyn CloudProvider>,
    /// Options of the program.
    pub options: Arc<Options>,
}

impl CloudContext {
    /// Tells the provider that its time begins. Once, before the controllers are started.
    pub fn initialize(&self) {
        let client = (self.clients)("cloud-provider").with_user_agent("cloud-provider");
        let events =
            EventRecorder::new(client.clone(), self.provider.name(), self.env.clock.clone());
        events.start(&self.tasks);
        self.provider.initialize(&ProviderContext {
            client,
            caches: self.env.caches.clone(),
            events,
            clock: self.env.clock.clone(),
            tasks: self.tasks.clone(),
        });
    }

    /// Initialises the provider and starts all controllers that it has something for.
    ///
    /// # Errors
    /// When a controller cannot start with its options.
    pub fn start_all(&self) -> Result<(), StartError> {
        self.initialize();
        for descriptor in descriptors() {
            (descriptor.start)(self)?;
        }
        Ok(())
    }

    /// A builder for the controller that `descriptor` describes: queue, client and event source under its names. Its keys are
    /// those of the objects in `root` that `map` names.
    pub(crate) fn watching<V: View>(
        &self,
        descriptor: &Descriptor,
        root: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Builder {
        let builder = Builder::watching(&self.env, descriptor.name, root, map);
        self.named(builder, descriptor)
    }

    /// The same for one whose keys are no objects.
    pub(crate) fn of_keys(&self, descriptor: &Descriptor) -> Builder {
        self.named(Builder::of_keys(&self.env, descriptor.name, NO_OBJECTS), descriptor)
    }

    fn named(&self, builder: Builder, descriptor: &Descriptor) -> Builder {
        builder
            .queue(descriptor.queue)
            .client((self.clients)(descriptor.client))
            .component(descriptor.component)
    }

    /// Runs a controller until the context's tasks are cancelled.
    pub(crate) fn run(&self, controller: Controller) {
        let name = controller.name().to_owned();
        let stop = self.tasks.token();
        self.tasks.spawn(name, controller.run(stop));
    }
}

/// The kind of keys that are no objects.
const NO_OBJECTS: Kind = Kind::new("", "", "", "", false);

/// All controllers, in the order of their names.
pub fn descriptors() -> Vec<Descriptor> {
    vec![node::DESCRIPTOR, node_lifecycle::DESCRIPTOR, route::DESCRIPTOR, service::DESCRIPTOR]
}
