//! Interface of cloud providers.
//!
//! [`CloudProvider::load_balancer`], [`CloudProvider::instances`] and [`CloudProvider::routes`] return the
//! interfaces that a provider supports. The program skips a controller whose interface is missing, and logs the
//! reason.
//!
//! The interface is upstream's (`k8s.io/cloud-provider/cloud.go`), without its unused parts: [`Instances`] is
//! upstream's `InstancesV2`, which replaced `Instances`, `Zones` and `PVLabeler`. `Clusters` has no callers.
//!
//! Objects are lean views ([`evenkeel_api::views`]). A service has all of its spec and status. A node has its
//! identifying fields: name, labels, annotations, `spec.providerID`, addresses and `status.nodeInfo`.
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

/// Cloud provider: instances, load balancers and routes.
pub trait CloudProvider: Send + Sync + 'static {
    /// Returns the name of the provider, as in `--cloud-provider`.
    fn name(&self) -> &str;

    /// Initializes the provider. The program calls it once, before any controller starts. A provider may keep parts
    /// of the context, and start tasks in [`ProviderContext::tasks`].
    fn initialize(&self, context: &ProviderContext) {
        let _ = context;
    }

    /// Returns the load balancers, if the provider supports them.
    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        None
    }

    /// Returns the instances, if the provider supports them.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    /// Returns the routes, if the provider supports them.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    /// Returns false if the provider requires a cluster id and none is set. The program then ends. With
    /// `--allow-untagged-cloud`, it only logs a warning.
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
    /// Client with the provider's own permissions.
    pub client: Client,
    /// Caches of the program. Those that the provider requests have synced before the controllers start.
    pub caches: Caches,
    /// Recorder of the provider's events.
    pub events: EventRecorder,
    /// Clock of the program. Simulations replace it.
    pub clock: Clock,
    /// Group of the provider's tasks, which stops with the controllers.
    pub tasks: Tasks,
}

/// Load balancers of services of type `LoadBalancer`.
///
/// Calls for one service never overlap. `cluster` is the value of `--cluster-name`. If another controller
/// creates the load balancers, [`ensure`](LoadBalancer::ensure) and [`update`](LoadBalancer::update) return
/// [`CloudError::ImplementedElsewhere`]. [`get`](LoadBalancer::get) then only returns load balancers that this
/// provider created earlier.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// Returns the status of the service's load balancer, or `None` if it has none.
    async fn get(
        &self,
        cluster: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, CloudError>;

    /// Returns the load balancer's name. By default this is the service's uid in a form that all clouds accept.
    fn load_balancer_name(&self, cluster: &str, service: &Service) -> String {
        let _ = cluster;
        default_name(service)
    }

    /// Creates or updates the load balancer so that it directs traffic for `service` to `nodes`. Returns the
    /// content of `status.loadBalancer`. Implementations must be idempotent.
    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, CloudError>;

    /// Updates only the nodes of a load balancer.
    async fn update(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), CloudError>;

    /// Deletes the load balancer and all its parts, even if `get` no longer returns it. Succeeds if nothing is left
    /// to delete.
    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), CloudError>;
}

/// Returns the letter `a` and the uid without dashes, cut to 32 characters (upstream's `DefaultLoadBalancerName`).
pub fn default_name(service: &Service) -> String {
    let uid = service.meta.uid.chars().filter(|c| *c != '-');
    std::iter::once('a').chain(uid).take(32).collect()
}

/// Instances (upstream's `InstancesV2`). A provider finds an instance by the node's `spec.providerID` if that is
/// set, and otherwise by name, labels or annotations.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Returns whether the node's instance exists, even if it is shut down. If it does not exist, the cloud node
    /// lifecycle controller deletes the node.
    async fn exists(&self, node: &Node) -> Result<bool, CloudError>;

    /// Returns whether the instance is shut down.
    async fn shut_down(&self, node: &Node) -> Result<bool, CloudError>;

    /// Returns the instance's metadata. With `None`, the cloud node controller does not change the node.
    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, CloudError>;
}

/// Metadata of an instance. The cloud node controller writes no empty values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceMetadata {
    /// Value for `spec.providerID`, `<provider>://<id>`. Required unless the node has one.
    pub provider_id: String,
    /// Value for the label `node.kubernetes.io/instance-type`.
    pub instance_type: String,
    /// Value for `status.addresses`.
    pub addresses: Vec<NodeAddress>,
    /// Value for the label `topology.kubernetes.io/zone`.
    pub zone: String,
    /// Value for the label `topology.kubernetes.io/region`.
    pub region: String,
    /// Additional labels. The node's own values take precedence. Labels of Kubernetes' domains are ignored.
    pub labels: BTreeMap<String, String>,
}

/// Routes to the pods of nodes.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Returns the routes of this cluster.
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, CloudError>;

    /// Creates a route. [`Route::name`] is empty, so the provider chooses the name. `hint` may be part of it, and is
    /// the same for all routes of a node.
    async fn create(&self, cluster: &str, hint: &str, route: &Route) -> Result<(), CloudError>;

    /// Deletes a route that `list` returned.
    async fn delete(&self, cluster: &str, route: &Route) -> Result<(), CloudError>;
}

/// Route that directs packets for a destination to a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Name of the route in the cloud.
    pub name: String,
    /// Name of the node, or empty if the cloud does not know it.
    pub target_node: String,
    /// Whether [`Route::target_node_addresses`] are valid. If they are, the route controller recreates a route whose
    /// addresses differ from the node's.
    pub has_node_addresses: bool,
    /// Addresses of the route's target node.
    pub target_node_addresses: Vec<NodeAddress>,
    /// The destination, a CIDR.
    pub destination: String,
    /// Whether the route drops packets, for example because its machine no longer exists. The route controller
    /// deletes such a route.
    pub blackhole: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::Meta;

    #[test]
    fn default_name_is_the_uid_cut_to_32_characters() {
        let uid = "01234567-89ab-cdef-0123-456789abcdef";
        let meta = Meta { uid: uid.into(), ..Meta::default() };
        let name = default_name(&Service { meta, ..Service::default() });
        assert_eq!(name, "a0123456789abcdef0123456789abcde");
    }
}
