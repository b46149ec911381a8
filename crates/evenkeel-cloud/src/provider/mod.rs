//! Interface of cloud providers.
//!
//! A provider says by what it returns from [`CloudProvider::load_balancer`], [`CloudProvider::instances`] and
//! [`CloudProvider::routes`] which of the controllers can work with it; the others are skipped with a line in the log.
//! The shape is upstream's (`k8s.io/cloud-provider/cloud.go`) without what nothing calls any more: `Instances`, `Zones` and
//! `PVLabeler` gave way to `InstancesV2`, here [`Instances`], and `Clusters` has no caller left.
//!
//! Objects are given as lean views ([`evenkeel_api::views`]): all of a service's spec and status, and of a node what
//! identifies it (name, labels, annotations, `spec.providerID`, addresses, `status.nodeInfo`).
//!
//! ```
//! use async_trait::async_trait;
//! use evenkeel_api::views::Node;
//! use evenkeel_cloud::{CloudError, CloudProvider, InstanceMetadata, Instances};
//!
//! struct Rack;
//!
//! impl CloudProvider for Rack {
//!     fn name(&self) -> &str {
//!         "rack"
//!     }
//!     fn instances(&self) -> Option<&dyn Instances> {
//!         Some(self)
//!     }
//! }
//!
//! #[async_trait]
//! impl Instances for Rack {
//!     async fn exists(&self, node: &Node) -> Result<bool, CloudError> {
//!         Ok(node.meta.name.starts_with("rack-"))
//!     }
//!     async fn shut_down(&self, _: &Node) -> Result<bool, CloudError> {
//!         Ok(false)
//!     }
//!     async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, CloudError> {
//!         let provider_id = format!("rack://{}", node.meta.name);
//!         Ok(Some(InstanceMetadata { provider_id, ..InstanceMetadata::default() }))
//!     }
//! }
//! ```

mod error;

use async_trait::async_trait;
pub use error::CloudError;
use evenkeel_api::views::{LoadBalancerStatus, Node, NodeAddress, Service};
use evenkeel_runtime::{
    cache::Caches, client::Client, clock::Clock, events::EventRecorder, tasks::Tasks,
};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// A cloud: instances, load balancers, routes.
pub trait CloudProvider: Send + Sync + 'static {
    /// Name of the provider, as in `--cloud-provider`.
    fn name(&self) -> &str;

    /// Called once, before any controller starts. A provider may keep what it is given, and start tasks in
    /// [`ProviderContext::tasks`].
    fn initialize(&self, context: &ProviderContext) {
        let _ = context;
    }

    /// Load balancers, if it has any.
    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        None
    }

    /// Machines, if it knows them.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    /// Routes, if it has any.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    /// Whether a cluster id is needed and set. Where it is not, the program warns, or ends without
    /// `--allow-untagged-cloud`.
    fn has_cluster_id(&self) -> bool {
        true
    }
}

impl fmt::Debug for dyn CloudProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CloudProvider").field(&self.name()).finish()
    }
}

/// Parts of the program that a provider may use.
#[derive(Clone)]
pub struct ProviderContext {
    /// Talks to the API server with the rights of the provider.
    pub client: Client,
    /// Caches of the process; a cache that the provider requests has synced before controllers start.
    pub caches: Caches,
    /// Recorder of the provider's events.
    pub events: EventRecorder,
    /// Clock of the program, which simulations replace.
    pub clock: Clock,
    /// Group of the provider's tasks, which stops with the controllers.
    pub tasks: Tasks,
}

/// Load balancers of services of type `LoadBalancer`.
///
/// Calls for one service never overlap. `cluster` is what `--cluster-name` says. Where load balancers are made by another
/// controller, [`ensure`](LoadBalancer::ensure) and [`update`](LoadBalancer::update) return
/// [`CloudError::ImplementedElsewhere`], and [`get`](LoadBalancer::get) tells of those alone that were made here before.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// The load balancer of this service as it is; `None` where there is none.
    async fn get(
        &self,
        cluster: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, CloudError>;

    /// Its name; if nothing better is known, the service's uid in a form that all clouds take.
    fn load_balancer_name(&self, cluster: &str, service: &Service) -> String {
        let _ = cluster;
        default_name(service)
    }

    /// Makes the load balancer, or changes the one that is there, so that it serves `service` by `nodes`. Returns what goes
    /// into `status.loadBalancer`. May be called any number of times for the same state.
    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, CloudError>;

    /// Changes the nodes of a load balancer, and nothing else of it.
    async fn update(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), CloudError>;

    /// Takes away the load balancer with all that belongs to it, also where `get` no longer tells of it. Nothing left to take
    /// away is a success.
    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), CloudError>;
}

/// `a` and the uid without dashes, at most 32 characters (upstream's `DefaultLoadBalancerName`).
pub fn default_name(service: &Service) -> String {
    let uid = service.meta.uid.chars().filter(|c| *c != '-');
    std::iter::once('a').chain(uid).take(32).collect()
}

/// Instances (upstream's `InstancesV2`). An instance is found by `spec.providerID` if that is set, else by name, labels or
/// annotations.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Whether there is a machine for this node; one that is shut down is there. Where not, the node is deleted.
    async fn exists(&self, node: &Node) -> Result<bool, CloudError>;

    /// Whether the machine is shut down.
    async fn shut_down(&self, node: &Node) -> Result<bool, CloudError>;

    /// Returns the machine's metadata; `None` leaves the node as it is.
    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, CloudError>;
}

/// Metadata of an instance. Empty values are not written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// Goes into `spec.providerID`: `<provider>://<id>`. Required unless the node has one.
    pub provider_id: String,
    /// Goes into the label `node.kubernetes.io/instance-type`.
    pub instance_type: String,
    /// Go into `status.addresses`.
    pub addresses: Vec<NodeAddress>,
    /// Goes into the label `topology.kubernetes.io/zone`.
    pub zone: String,
    /// Goes into the label `topology.kubernetes.io/region`.
    pub region: String,
    /// Further labels, set where the node has none of that name. Those of Kubernetes' own domains are left out.
    pub labels: BTreeMap<String, String>,
}

/// Routes to the pods of nodes.
#[async_trait]
pub trait Routes: Send + Sync {
    /// The routes of this cluster.
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, CloudError>;

    /// Makes a route; [`Route::name`] is empty. `hint` may go into the name and is the same for all routes of a node.
    async fn create(&self, cluster: &str, hint: &str, route: &Route) -> Result<(), CloudError>;

    /// Deletes a route as it was listed.
    async fn delete(&self, cluster: &str, route: &Route) -> Result<(), CloudError>;
}

/// A route: packets for these addresses go to that node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Name of the route in the cloud.
    pub name: String,
    /// The node; empty where the cloud knows none.
    pub target_node: String,
    /// Whether [`Route::target_node_addresses`] mean something: a route to other addresses than the node's is then made
    /// anew.
    pub has_node_addresses: bool,
    /// Addresses of the node that it leads to.
    pub target_node_addresses: Vec<NodeAddress>,
    /// The range of addresses.
    pub destination: String,
    /// Whether packets vanish there, as where the machine is gone. Such a route is deleted.
    pub blackhole: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::Meta;

    #[test]
    fn a_default_name_is_short_and_starts_with_a_letter() {
        let uid = "01234567-89ab-cdef-0123-456789abcdef";
        let meta = Meta { uid: uid.into(), ..Meta::default() };
        let name = default_name(&Service { meta, ..Service::default() });
        assert_eq!(name, "a0123456789abcdef0123456789abcde");
    }
}
