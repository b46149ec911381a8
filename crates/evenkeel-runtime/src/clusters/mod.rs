//! Controllers of several clusters, which may be added and removed while the manager runs.
//!
//! A [`ClusterProvider`] names clusters: by Secrets with kubeconfigs ([`SecretClusters`]), by ClusterProfiles
//! ([`ProfileClusters`]), or in a fixed list ([`FixedClusters`]). The function of [`Manager::clusters`] declares the same
//! controllers for each cluster. They have the cluster's own client, caches, queues and metrics, so that a cluster that does
//! not respond delays no other cluster.
//!
//! ```no_run
//! use evenkeel_runtime::{clusters::SecretClusters, prelude::*};
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! async fn reconcile(map: Arc<ConfigMap>, cx: Context) -> Result<Outcome> {
//!     cx.event(&*map, "Seen", format!("the map was seen in {}", cx.cluster()));
//!     Ok(Outcome::Settled)
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = Manager::builder(kube::Client::try_default().await?)
//!     .component("maps")
//!     .leader_election_id("maps.example.com")
//!     .build()?;
//! manager.clusters(SecretClusters::in_namespace("fleet"), |cluster| {
//!     cluster.controller::<ConfigMap>().reconcile(reconcile);
//! });
//! manager.run(shutdown_signal()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A cluster whose connection is unchanged stays; if the connection changed, the cluster is left first | `decide::step` |
//! | A profile is engaged once its control plane is healthy | `profiles::decide` |
//! | The kubeconfig of a Secret reads no file and runs no command of the operator | `kubeconfig::check` |
//! | Only the leader engages clusters; it leaves them before it releases its lease | `engage::Engagements` |
//!
//! This module follows `sigs.k8s.io/multicluster-runtime`.

mod cluster;
mod connect;
mod decide;
mod engage;
mod fixed;
mod kubeconfig;
mod profiles;
mod provider;
mod secrets;

pub use cluster::Cluster;
pub use engage::Clusters;
pub use fixed::FixedClusters;
pub use kubeconfig::KubeconfigError;
pub use profiles::ProfileClusters;
pub use provider::ClusterProvider;
pub use secrets::SecretClusters;

use crate::manager::Manager;

impl Manager {
    /// Runs controllers in each cluster of a provider. `declare` declares them when a cluster appears, with the cluster's own
    /// client and caches. When the cluster disappears, or its connection changes, the controllers end after their running
    /// passes.
    ///
    /// Only the leader connects to clusters, even with sharding. All writes to them are fenced by its lease.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// fn declare(cluster: &Cluster) {
    ///     cluster.controller::<ConfigMap>().owns::<Secret>().reconcile(reconcile);
    /// }
    ///
    /// # evenkeel_test::example::starts(|manager| {
    /// # let east = manager.unfenced_client().kube();
    /// manager.clusters(FixedClusters::new([("east", east)]), declare);
    /// # });
    /// # evenkeel_test::example::cluster(declare);
    /// ```
    #[doc(alias("multicluster", "Engage"))]
    pub fn clusters(
        &self,
        provider: impl ClusterProvider,
        declare: impl Fn(&Cluster) + Send + Sync + 'static,
    ) -> Clusters {
        let host = self.of_leader();
        let clusters = Clusters::of(&host, Box::new(declare));
        provider.start(&host, clusters.clone());
        clusters
    }
}
