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

/// Descriptor of a cloud controller.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// Name of the controller, as in `--controllers`.
    pub name: &'static str,
    /// Former names of the controller, which flags still accept.
    pub aliases: &'static [&'static str],
    /// Name of the controller's workqueue in metrics.
    pub queue: &'static str,
    /// Name of the controller's service account, and last part of its user agent.
    pub client: &'static str,
    /// Component in the controller's events.
    pub component: &'static str,
    /// Returns whether the provider has the interface that the controller calls.
    pub is_supported: fn(&dyn CloudProvider) -> bool,
    /// Starts the controller with its context.
    pub start: Start,
}

/// Function that starts a controller: declares its caches and spawns its workers in the context's tasks. It
/// returns immediately.
pub type Start = fn(&CloudContext) -> Result<Started, StartError>;

/// Result of starting a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// The controller runs.
    Yes,
    /// The program skips the controller, because the provider lacks its interface or an option disables it. The log
    /// has the reason.
    No,
}

/// Error from starting a controller.
#[derive(Debug, thiserror::Error)]
#[error("controller {controller} cannot start: {reason}")]
pub struct StartError {
    /// Name of the controller.
    pub controller: &'static str,
    /// Reason why it cannot start.
    pub reason: String,
}

/// Function that returns the client for a [`Descriptor::client`].
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// Options of the controllers, named like their flags.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Value of `--cluster-name`, which is part of the names of cloud resources.
    pub cluster: String,
    /// Values of `--cluster-cidr`: pod address ranges. The route controller ignores routes outside of them.
    pub cluster_cidrs: Vec<String>,
    /// Value of `--configure-cloud-routes`: whether the route controller runs.
    pub configure_routes: bool,
    /// Value of `--route-reconciliation-period`.
    pub route_period: Duration,
    /// Whether changes of nodes trigger route reconciliations, instead of only a period (feature gate
    /// `CloudControllerManagerWatchBasedRoutesReconciliation`, KEP-5237).
    pub watch_routes: bool,
    /// Value of `--concurrent-service-syncs`.
    pub service_workers: usize,
    /// Value of `--concurrent-node-syncs`.
    pub node_workers: usize,
    /// Value of `--node-status-update-frequency`: interval of address updates.
    pub node_status_period: Duration,
    /// Value of `--concurrent-node-lifecycle-syncs`.
    pub lifecycle_workers: usize,
    /// Value of `--node-monitor-period`: interval at which the instance of a node that is not ready is checked.
    pub node_monitor_period: Duration,
}

impl Default for Options {
    /// Returns upstream's defaults.
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

/// Shared parts of the program for its controllers.
#[derive(Clone)]
pub struct CloudContext {
    /// Shared caches and their client, clock, and metrics of queues and controllers.
    pub env: Env,
    /// Returns a controller's client for writes.
    pub clients: Clients,
    /// Group of the controllers' tasks.
    pub tasks: Tasks,
    /// Registry of the controllers' own metrics.
    pub registry: Registry,
    /// The cloud provider that the controllers call.
    pub provider: Arc<dyn CloudProvider>,
    /// Options of the program.
    pub options: Arc<Options>,
}

impl CloudContext {
    /// Initializes the provider. Call it once, before the controllers start.
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

    /// Initializes the provider and starts all controllers that it supports. The program also starts the other controllers,
    /// which then log that the provider does not support them.
    ///
    /// # Errors
    /// Fails if a controller cannot start with its options.
    pub fn start_all(&self) -> Result<(), StartError> {
        self.initialize();
        let is_supported = |descriptor: &Descriptor| (descriptor.is_supported)(&*self.provider);
        for descriptor in descriptors().into_iter().filter(is_supported) {
            (descriptor.start)(self)?;
        }
        Ok(())
    }

    /// Returns a builder for the controller of `descriptor`, with the descriptor's queue, client and event
    /// source. `map` enqueues keys on events of the objects in `root`.
    pub(crate) fn watching<V: View>(
        &self,
        descriptor: &Descriptor,
        root: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Builder {
        let builder = Builder::watching(&self.env, descriptor.name, root, map);
        self.named(builder, descriptor)
    }

    /// Like [`CloudContext::watching`], for a controller whose keys are not objects.
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

/// Kind of keys that are not objects.
const NO_OBJECTS: Kind = Kind::new("", "", "", "", false);

/// Returns all controllers, sorted by name.
pub fn descriptors() -> Vec<Descriptor> {
    vec![node::DESCRIPTOR, node_lifecycle::DESCRIPTOR, route::DESCRIPTOR, service::DESCRIPTOR]
}
