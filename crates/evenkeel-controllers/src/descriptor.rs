//! What there is to know of a controller before it runs: its names, and how it is started.
//!
//! A new controller is a folder, and a line in [`descriptors`].

use crate::{
    apps, autoscaling, batch, bootstrap, certificates, core, discovery, machinery,
    monitors::Monitors,
    needs::{Gates, Resource, Resources, Unmet},
    networking,
    options::Options,
    policy, rbac, resource, storage,
};
use evenkeel_api::View;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    client::Client,
    controller::{Builder, Controller, Enqueue, Env},
    events::Recorder,
    health::Health,
    tasks::Tasks,
};
use prometheus::Registry;
use std::sync::Arc;

/// One controller. What [`Descriptor::ORDINARY`] says is left out.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// Its name, as in `--controllers`.
    pub name: &'static str,
    /// Older names that are still understood.
    pub aliases: &'static [&'static str],
    /// Its queue's name in metrics; empty for one without a queue.
    pub queue: &'static str,
    /// The service account whose rights it uses, which is also the last part of its user agent.
    pub client: &'static str,
    /// Whether it runs when nobody says so.
    pub on_by_default: bool,
    /// Feature gates that must all be on.
    pub gates: &'static [&'static str],
    /// Resources that the server must have, besides those that every server has.
    pub resources: &'static [Resource],
    /// Whether it belongs to a cloud's controller manager, and not to the cluster's.
    pub cloud_only: bool,
    /// Starts it.
    pub start: Start,
}

impl Descriptor {
    /// A controller that runs wherever nobody says otherwise, for `..Descriptor::ORDINARY`. It has no name and does nothing.
    pub const ORDINARY: Self = Self {
        name: "",
        aliases: &[],
        queue: "",
        client: "",
        on_by_default: true,
        gates: &[],
        resources: &[],
        cloud_only: false,
        start: |_| Ok(()),
    };

    /// What it lacks with these gates and resources, if anything.
    pub fn unmet(&self, gates: &Gates, resources: &Resources) -> Option<Unmet> {
        let gate =
            self.gates.iter().find(|gate| !gates.enabled(gate)).map(|gate| Unmet::Gate(gate));
        let resource = || self.resources.iter().find(|resource| !resources.has(resource));
        gate.or_else(|| resource().map(|resource| Unmet::Resource(*resource)))
    }
}

/// Starts a controller: declares the caches that it reads, subscribes to them, and spawns its workers into the context's
/// tasks. It returns at once; workers wait for their caches themselves.
pub type Start = fn(&ControllerContext) -> Result<(), StartError>;

/// Why a controller cannot start.
#[derive(Debug, thiserror::Error)]
#[error("controller {controller} cannot start: {reason}")]
pub struct StartError {
    /// The controller's name.
    pub controller: &'static str,
    /// What is in the way.
    pub reason: String,
}

/// Makes the client of a controller from the controller's [`Descriptor::client`], with the credentials that it writes with.
/// The controller appends its name to the user agent itself.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// What controllers are started with.
#[derive(Clone)]
pub struct ControllerContext {
    /// Shared caches and their client, the time, metrics of queues and controllers.
    pub env: Env,
    /// Clients to write with, one for each controller.
    pub clients: Clients,
    /// Where controllers run.
    pub tasks: Tasks,
    /// Where metrics of single controllers go.
    pub registry: Registry,
    /// What was asked for on the command line.
    pub options: Arc<Options>,
    /// Which feature gates are on.
    pub gates: Gates,
    /// Which resources the server has.
    pub resources: Resources,
    /// Where a controller may put a check of its own, under its name; one that passes stands there otherwise.
    pub health: Health,
    /// Watches of every kind there is.
    pub monitors: Monitors,
}

impl ControllerContext {
    /// A context with the default gates, a server that has everything, and checks that nobody looks at.
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
            health: Health::new(),
        }
    }

    /// Starts a controller if it lacks nothing; what it lacks otherwise.
    ///
    /// # Errors
    /// When it cannot start with its options.
    pub fn start(&self, descriptor: &Descriptor) -> Result<Option<Unmet>, StartError> {
        if let Some(unmet) = descriptor.unmet(&self.gates, &self.resources) {
            return Ok(Some(unmet));
        }
        (descriptor.start)(self)?;
        Ok(None)
    }

    /// The client that a controller writes with, under its own user agent.
    pub fn client(&self, descriptor: &Descriptor) -> Client {
        (self.clients)(descriptor.client).with_user_agent(descriptor.client)
    }

    /// A recorder of events from `component`, for a controller whose shell is its own. It writes with the controller's
    /// client until the context's tasks are told to stop.
    pub fn recorder(&self, descriptor: &Descriptor, component: &str) -> Recorder {
        let events = Recorder::new(self.client(descriptor), component, self.env.clock.clone());
        events.start(&self.tasks);
        events
    }

    /// A builder for the controller that `descriptor` describes: queue, client and event source under its names.
    pub fn builder<V: View>(&self, descriptor: &Descriptor, root: &Cache<V>) -> Builder {
        self.described(descriptor, Builder::new(&self.env, descriptor.name, root))
    }

    /// The same for a controller that says itself which events of its own objects name which keys, and how soon.
    pub fn builder_watching<V: View>(
        &self,
        descriptor: &Descriptor,
        root: &Cache<V>,
        map: impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static,
    ) -> Builder {
        self.described(descriptor, Builder::watching(&self.env, descriptor.name, root, map))
    }

    fn described(&self, descriptor: &Descriptor, builder: Builder) -> Builder {
        builder
            .queue(descriptor.queue)
            .client((self.clients)(descriptor.client))
            .component(descriptor.client)
    }

    /// Runs a controller until the context's tasks are told to stop.
    pub fn run(&self, controller: Controller) {
        let name = controller.name().to_owned();
        let stop = self.tasks.token();
        self.tasks.spawn(name, controller.run(stop));
    }
}

/// All controllers, in the order of their names.
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
        policy::poddisruptionbudget::DESCRIPTOR,
        discovery::endpoints::DESCRIPTOR,
        discovery::endpointslice::DESCRIPTOR,
        discovery::endpointslicemirroring::DESCRIPTOR,
        storage::ephemeral_volume::DESCRIPTOR,
        core::garbagecollector::DESCRIPTOR,
        autoscaling::horizontalpodautoscaler::DESCRIPTOR,
        batch::job::DESCRIPTOR,
        certificates::clustertrustbundlepublisher::DESCRIPTOR,
        core::legacytokencleaner::DESCRIPTOR,
        core::namespace::DESCRIPTOR,
        core::nodeipam::DESCRIPTOR,
        core::nodelifecycle::DESCRIPTOR,
        storage::attach_detach::DESCRIPTOR,
        storage::binder::DESCRIPTOR,
        storage::expander::DESCRIPTOR,
        storage::volume_protection::DESCRIPTOR,
        storage::claim_protection::DESCRIPTOR,
        core::podgc::DESCRIPTOR,
        certificates::podcertificaterequestcleaner::DESCRIPTOR,
        apps::replicaset::DESCRIPTOR,
        apps::replicationcontroller::DESCRIPTOR,
        resource::resourceclaim::DESCRIPTOR,
        core::resourcequota::DESCRIPTOR,
        core::rootcacertpublisher::DESCRIPTOR,
        networking::servicecidr::DESCRIPTOR,
        core::serviceaccount::DESCRIPTOR,
        core::serviceaccounttoken::DESCRIPTOR,
        apps::statefulset::DESCRIPTOR,
        machinery::storageversionmigrator::DESCRIPTOR,
        core::tainteviction::DESCRIPTOR,
        bootstrap::tokencleaner::DESCRIPTOR,
        batch::ttlafterfinished::DESCRIPTOR,
        core::ttl::DESCRIPTOR,
        storage::attributes_class_protection::DESCRIPTOR,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::discovery::Discovered;

    #[test]
    fn what_is_lacking_is_named() {
        let cidrs = Resource { group: "networking.k8s.io", version: "v1", plural: "servicecidrs" };
        let resources = [cidrs];
        let needy = Descriptor {
            gates: &["StatefulSetRecreateStrategy"],
            resources: Box::leak(Box::new(resources)),
            ..Descriptor::ORDINARY
        };
        let (none, all) = (Resources::discovered(&Discovered::default()), Resources::default());
        let unmet = |gates: &Gates, resources: &Resources| {
            needy.unmet(gates, resources).map(|unmet| unmet.to_string())
        };
        let on = Gates::new(|_| true);
        assert_eq!(
            unmet(&Gates::default(), &all).as_deref(),
            Some("feature gate StatefulSetRecreateStrategy is off")
        );
        assert_eq!(
            unmet(&on, &none).as_deref(),
            Some("the server has no servicecidrs.v1.networking.k8s.io")
        );
        assert_eq!(unmet(&on, &all), None);
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
