//! Cluster providers: sources of the clusters of a manager.

use super::engage::Clusters;
use crate::manager::Manager;

/// Source of the clusters of a manager, such as Secrets of its own cluster, the host.
///
/// A provider declares a controller of the host, which engages clusters and leaves them. An error of its reconcile is retried,
/// and shown in the controller's reports.
///
/// ```
/// use evenkeel_runtime::{clusters::{ClusterProvider, Clusters}, prelude::*};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// /// Clusters behind a gateway, each named by a ConfigMap.
/// struct Gateway;
///
/// impl ClusterProvider for Gateway {
///     fn start(self, host: &Manager, clusters: Clusters) {
///         let maps = host.cached::<ConfigMap>();
///         let controller = host.controller::<ConfigMap>().named("gateway-clusters");
///         controller.reconcile_requests(move |request, _: Context| {
///             let (clusters, name) = (clusters.clone(), request.key.name.to_string());
///             let exists = maps.get(&request.key.namespace, &name).is_some();
///             async move {
///                 if !exists {
///                     clusters.leave(&name);
///                     return Ok(Outcome::Settled);
///                 }
///                 // Another identity replaces the connection.
///                 let identity = format!("https://gateway.example.com/{name}");
///                 let config = kube::Config::new(identity.parse()?);
///                 clusters
///                     .engage(&name, identity.as_bytes(), async || Ok(kube::Client::try_from(config)?))
///                     .await?;
///                 Ok(Outcome::Settled)
///             }
///         });
///     }
/// }
/// ```
///
/// In multicluster-runtime: `multicluster.Provider`.
#[doc(alias = "multicluster.Provider")]
pub trait ClusterProvider {
    /// Adds the provider's controllers and runnables to the manager of the host. They follow the source of clusters, and run
    /// only in the leader.
    fn start(self, host: &Manager, clusters: Clusters);
}
