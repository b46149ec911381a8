//! Descriptors of controllers: names, requirements, and the start function. Upstream: `ControllerDescriptor`.
//!
//! To add a controller, add a folder and an entry in [`descriptors`].

use crate::{
    apps, autoscaling, batch, bootstrap, certificates, core, discovery, machinery,
    needs::{Gates, Resource, Resources, Unmet},
    networking,
    options::Options,
    policy, rbac, resource, storage,
    wiring::monitors::Monitors,
};
use evenkeel_api::View;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    client::Client,
    controller::{Builder, Controller, Enqueue, Env},
    events::EventRecorder,
    tasks::Tasks,
};
use prometheus::Registry;
use std::sync::Arc;

/// Static description of a controller. [`Descriptor::DEFAULTS`] has the defaults. Upstream: `ControllerDescriptor`.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// Name of the controller in the flag `--controllers`.
    pub name: &'static str,
    /// Deprecated names, which `--controllers` also accepts.
    pub aliases: &'static [&'static str],
    /// Name of the work queue in metrics. Upstream's name, so it may differ from the controller's. Empty without a
    /// queue.
    pub queue: &'static str,
    /// Service account of the controller's client, and the last part of its user agent.
    pub client: &'static str,
    /// Whether `--controllers=*` starts the controller. Upstream: `isDisabledByDefault`.
    pub on_by_default: bool,
    /// Feature gates that must all be enabled. Upstream: `requiredFeatureGates`.
    pub gates: &'static [&'static str],
    /// Resources that the API server must serve, besides those that all servers have.
    pub resources: &'static [Resource],
    /// Whether the controller belongs to the cloud controller manager.
    pub cloud_only: bool,
    /// Function that starts the controller.
    pub start: Start,
}

impl Descriptor {
    /// Defaults of the fields: on by default, without requirements, and with a start function that does nothing. A
    /// controller's descriptor ends with `..Descriptor::DEFAULTS`.
    pub const DEFAULTS: Self = Self {
        name: "",
        aliases: &[],
        queue: "",
        client: "",
        on_by_default: true,
        gates: &[],
        resources: &[],
        cloud_only: false,
        start: |_| Ok(Started::Yes),
    };

    /// Returns the first requirement that is not met.
    pub fn unmet(&self, gates: &Gates, resources: &Resources) -> Option<Unmet> {
        if let Some(gate) = self.gates.iter().find(|gate| !gates.enabled(gate)) {
            return Some(Unmet::Gate(gate));
        }
        let missing = self.resources.iter().find(|resource| !resources.has(resource));
        missing.map(|resource| Unmet::Resource(*resource))
    }
}

/// Function that starts a controller. It declares caches, subscribes to them, and spawns workers. It returns immediately,
/// because the workers wait until the caches are synced.
pub type Start = fn(&ControllerContext) -> Result<Started, StartError>;

/// Result of starting a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// The controller runs.
    Yes,
    /// The options leave the controller without work, for this reason. It gets no health check and is not counted.
    No(&'static str),
}

/// Error that prevents the start of a controller.
#[derive(Debug, thiserror::Error)]
#[error("controller {controller} cannot start: {reason}")]
pub struct StartError {
    /// Name of the controller.
    pub controller: &'static str,
    /// Reason of the failure.
    pub reason: String,
}

/// Function that builds the client for a [`Descriptor::client`], with its credentials. The controller adds the user
/// agent.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// Inputs of the start functions.
#[derive(Clone)]
pub struct ControllerContext {
    /// Shared caches with their client, the clock, and common metrics.
    pub env: Env,
    /// Builds the clients with which the controllers write.
    pub clients: Clients,
    /// Tasks of the controllers.
    pub tasks: Tasks,
    /// Registry for the metrics of individual controllers.
    pub registry: Registry,
    /// Options of all controllers, from the command line.
    pub options: Arc<Options>,
    /// Enabled feature gates.
    pub gates: Gates,
    /// Resources of the API server.
    pub resources: Resources,
    /// Watches of all resources, for controllers that need them.
    pub monitors: Monitors,
}

impl ControllerContext {
    /// Builds a context with the default gates, all resources, and health checks that are not served.
    pub fn new(
        env: Env,
        clients: Clients,
        tasks: Tasks,
        registry: Registry,
        options: Options,
    ) -> Self {
        Self {
            monitors: Monitors::new(&env),
            env,
            clients,
            tasks,
            registry,
            options: Arc::new(options),
            gates: Gates::default(),
            resources: Resources::default(),
        }
    }

    /// Starts a controller if its requirements are met. Otherwise, returns the first unmet requirement.
    ///
    /// # Errors
    /// Fails if the controller cannot start with its options.
    pub fn start(&self, descriptor: &Descriptor) -> Result<Option<Unmet>, StartError> {
        if let Some(unmet) = descriptor.unmet(&self.gates, &self.resources) {
            return Ok(Some(unmet));
        }
        match (descriptor.start)(self)? {
            Started::Yes => Ok(None),
            Started::No(reason) => Ok(Some(Unmet::Options(reason))),
        }
    }

    /// Returns the controller's client for writes, with its user agent.
    pub fn client(&self, descriptor: &Descriptor) -> Client {
        (self.clients)(descriptor.client).with_user_agent(descriptor.client)
    }

    /// Returns an event recorder of `component`, for a controller without a builder. The recorder stops with the
    /// context's tasks.
    pub fn recorder(&self, descriptor: &Descriptor, component: &str) -> EventRecorder {
        let events = EventRecorder::new(self.client(descriptor), component, self.env.clock.clone());
        events.start(&self.tasks);
        events
    }

    /// Returns a builder with the descriptor's queue, client and event source.
    pub fn builder<V: View>(&self, descriptor: &Descriptor, root: &Cache<V>) -> Builder {
        self.with_descriptor(descriptor, Builder::new(&self.env, descriptor.name, root))
    }

    /// Like [`Self::builder`], but `map` enqueues the keys for an event of the root.
    pub fn builder_watching<V: View>(
        &self,
        descriptor: &Descriptor,
        root: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Builder {
        self.with_descriptor(descriptor, Builder::watching(&self.env, descriptor.name, root, map))
    }

    /// Adds the descriptor's queue, client and event source to a builder.
    fn with_descriptor(&self, descriptor: &Descriptor, builder: Builder) -> Builder {
        builder
            .queue(descriptor.queue)
            .client((self.clients)(descriptor.client))
            .component(descriptor.client)
    }

    /// Runs a controller until the context's tasks are cancelled.
    pub fn run(&self, controller: Controller) {
        let name = controller.name().to_owned();
        let stop = self.tasks.token();
        self.tasks.spawn(name, controller.run(stop));
    }
}

/// Returns all descriptors, sorted by name. Upstream: `NewControllerDescriptors`.
pub fn descriptors() -> Vec<Descriptor> {
    vec![
        bootstrap::signer::DESCRIPTOR,
        certificates::approving::DESCRIPTOR,
        certificates::cleaner::DESCRIPTOR,
        certificates::signing::DESCRIPTOR,
        rbac::clusterroleaggregation::DESCRIPTOR,
        batch::cronjob::DESCRIPTOR,
        apps::daemonset::DESCRIPTOR,
        apps::deployment::DESCRIPTOR,
        #[cfg(k8s_v1_37)]
        resource::devicetainteviction::DESCRIPTOR,
        policy::poddisruptionbudget::DESCRIPTOR,
        discovery::endpoints::DESCRIPTOR,
        discovery::endpointslice::DESCRIPTOR,
        discovery::endpointslicemirroring::DESCRIPTOR,
        storage::ephemeralvolume::DESCRIPTOR,
        core::garbagecollector::DESCRIPTOR,
        autoscaling::horizontalpodautoscaler::DESCRIPTOR,
        batch::job::DESCRIPTOR,
        certificates::clustertrustbundlepublisher::DESCRIPTOR,
        core::legacytokencleaner::DESCRIPTOR,
        core::namespace::DESCRIPTOR,
        core::nodeipam::DESCRIPTOR,
        core::nodelifecycle::DESCRIPTOR,
        storage::attachdetach::DESCRIPTOR,
        storage::binder::DESCRIPTOR,
        storage::expander::DESCRIPTOR,
        storage::persistentvolumeprotection::DESCRIPTOR,
        storage::persistentvolumeclaimprotection::DESCRIPTOR,
        core::podgc::DESCRIPTOR,
        certificates::podcertificaterequestcleaner::DESCRIPTOR,
        #[cfg(k8s_v1_37)]
        crate::scheduling::podgroupprotection::DESCRIPTOR,
        apps::replicaset::DESCRIPTOR,
        apps::replicationcontroller::DESCRIPTOR,
        resource::resourceclaim::DESCRIPTOR,
        #[cfg(k8s_v1_37)]
        resource::resourcepoolstatusrequest::DESCRIPTOR,
        core::resourcequota::DESCRIPTOR,
        core::rootcacertpublisher::DESCRIPTOR,
        storage::selinuxwarning::DESCRIPTOR,
        networking::servicecidr::DESCRIPTOR,
        core::serviceaccount::DESCRIPTOR,
        core::serviceaccounttoken::DESCRIPTOR,
        apps::statefulset::DESCRIPTOR,
        machinery::storageversionmigrator::DESCRIPTOR,
        #[cfg(k8s_v1_37)]
        machinery::storageversiongarbagecollector::DESCRIPTOR,
        core::tainteviction::DESCRIPTOR,
        bootstrap::tokencleaner::DESCRIPTOR,
        batch::ttlafterfinished::DESCRIPTOR,
        core::ttl::DESCRIPTOR,
        machinery::validatingadmissionpolicystatus::DESCRIPTOR,
        storage::volumeattributesclassprotection::DESCRIPTOR,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::discovery::ServerResources;

    #[test]
    fn unmet_gates_and_resources_are_named() {
        let descriptor = Descriptor {
            gates: &["StatefulSetRecreateStrategy"],
            resources: &[Resource {
                group: "networking.k8s.io",
                version: "v1",
                plural: "servicecidrs",
            }],
            ..Descriptor::DEFAULTS
        };
        let no_resources = Resources::discovered(&ServerResources::default());
        let all_resources = Resources::default();
        let unmet = |gates: &Gates, resources: &Resources| {
            descriptor.unmet(gates, resources).map(|unmet| unmet.to_string())
        };
        let all_gates = Gates::new(|_| true);
        assert_eq!(
            unmet(&Gates::default(), &all_resources).as_deref(),
            Some("feature gate StatefulSetRecreateStrategy is off")
        );
        assert_eq!(
            unmet(&all_gates, &no_resources).as_deref(),
            Some("the server has no servicecidrs.v1.networking.k8s.io")
        );
        assert_eq!(unmet(&all_gates, &all_resources), None);
    }

    #[test]
    fn names_are_sorted_and_unique() {
        let names: Vec<_> = descriptors().iter().map(|d| d.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(names, sorted);
    }
}
