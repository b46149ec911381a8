//! Connections to the clusters of kubeconfigs in Secrets.

use super::{engage::Clusters, kubeconfig};
use crate::{
    client::{Transport, of_kubeconfig},
    controller::Error,
    operator::Result,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::config::Kubeconfig;
use std::sync::Arc;

/// Connects to the cluster of a kubeconfig.
type Connect = dyn Fn(Kubeconfig) -> BoxFuture<'static, Result<Transport>> + Send + Sync;

/// Function that connects to the cluster of a kubeconfig. The default connects to the kubeconfig's server.
#[derive(Clone)]
pub(super) struct Connector(Arc<Connect>);

impl Default for Connector {
    fn default() -> Self {
        Self(Arc::new(|kubeconfig| Box::pin(async move { Ok(of_kubeconfig(kubeconfig).await?) })))
    }
}

impl Connector {
    /// Returns the connector that gets its clients from a function.
    pub(super) fn of(
        connect: impl Fn(&Kubeconfig) -> Result<kube::Client> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |kubeconfig| {
            let connected = connect(&kubeconfig).map(Transport::from);
            Box::pin(async move { connected })
        }))
    }

    /// Engages the cluster of the kubeconfig under a key of a Secret.
    ///
    /// # Errors
    /// Fails if the Secret has no kubeconfig, or the kubeconfig is rejected; these errors are terminal. Also fails if the
    /// kubeconfig cannot be used.
    pub(super) async fn engage(
        &self,
        clusters: &Clusters,
        name: &str,
        secret: &Secret,
        key: &str,
    ) -> Result<()> {
        let (bytes, kubeconfig) = kubeconfig::of_secret(secret, key).map_err(Error::terminal)?;
        clusters.engage(name, bytes, || (self.0)(kubeconfig)).await
    }
}
