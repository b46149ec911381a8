//! Clusters whose kubeconfigs are in Secrets of the host.

use super::{connect::Connector, engage::Clusters, provider::ClusterProvider};
use crate::{
    cache::Full,
    controller::{Outcome, Request},
    manager::Manager,
    operator::{Context, Result},
};
use evenkeel_api::View as _;
use k8s_openapi::api::core::v1::Secret;
use kube::config::Kubeconfig;
use std::sync::Arc;

/// Label of the Secrets.
///
/// In multicluster-runtime: `DefaultKubeconfigSecretLabel`.
const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// Key of the kubeconfig in a Secret's data.
///
/// In multicluster-runtime: `DefaultKubeconfigSecretKey`.
const KEY: &str = "kubeconfig";

/// Clusters whose kubeconfigs are in the Secrets of a namespace that have a label with the value `true`. A cluster has the
/// name of its Secret.
///
/// ```
/// use evenkeel_runtime::clusters::SecretClusters;
///
/// let clusters = SecretClusters::in_namespace("fleet")
///     .label("example.com/cluster") // default: sigs.k8s.io/multicluster-runtime-kubeconfig
///     .key("value"); // default: kubeconfig
/// ```
///
/// The operator needs `list` and `watch` of the Secrets in that namespace. A kubeconfig that names a file or a command is
/// refused, because the writer of a Secret must not get the operator's credentials. A refused kubeconfig leaves the cluster
/// unchanged.
///
/// In multicluster-runtime: `kubeconfig.Provider`.
#[doc(alias = "kubeconfig.Provider")]
#[must_use = "a provider does nothing until a manager takes it"]
pub struct SecretClusters {
    namespace: String,
    label: String,
    key: String,
    connector: Connector,
}

impl SecretClusters {
    /// Returns the provider of the clusters in a namespace of the host.
    pub fn in_namespace(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            label: LABEL.to_owned(),
            key: KEY.to_owned(),
            connector: Connector::default(),
        }
    }

    /// Sets the label of the Secrets. Its value is `true`.
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// Sets the key of the kubeconfig in a Secret's data, such as `value` for the Secrets of Cluster API.
    pub fn key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// Sets the function that connects to the cluster of a kubeconfig, for tests and tunnels.
    pub fn connect(
        self,
        connect: impl Fn(&Kubeconfig) -> Result<kube::Client> + Send + Sync + 'static,
    ) -> Self {
        Self { connector: Connector::of(connect), ..self }
    }
}

impl ClusterProvider for SecretClusters {
    fn start(self, host: &Manager, clusters: Clusters) {
        let labels = format!("{}=true", self.label);
        let namespace = Some(&*self.namespace);
        let secrets = host.env().caches.selected_in::<Full<Secret>>(namespace, &labels);
        let (connector, key) = (self.connector, Arc::<str>::from(self.key));
        let controller = host.declare::<Secret, _>(&secrets).named("secret-clusters");
        controller.max_concurrent(4).reconcile_requests(move |request: Request, _: Context| {
            let (connector, key, clusters) =
                (connector.clone(), Arc::clone(&key), clusters.clone());
            let secret = secrets.get(&request.key.namespace, &request.key.name);
            async move {
                let name = &*request.key.name;
                match secret.filter(|secret| !secret.meta().deleting()) {
                    Some(secret) => connector.engage(&clusters, name, &secret, &key).await?,
                    None => clusters.leave(name),
                }
                Ok(Outcome::Settled)
            }
        });
    }
}
