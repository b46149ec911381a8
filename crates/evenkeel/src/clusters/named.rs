//! Cluster name argument of commands.

use super::record::{Cluster, choose, cluster_of_context};
use crate::kubeconfig::Home;
use anyhow::Result;

/// Arguments that name a cluster, for commands without other positional arguments.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct NamedCluster {
    /// Name of the cluster, or its data folder. Default: the only one, or that of the kubeconfig's current context (not for down and reset), or
    /// `default`.
    #[arg(value_name = "NAME")]
    cluster: Option<String>,

    /// The same as a flag.
    #[arg(id = "flag", long = "name", value_name = "NAME", conflicts_with = "cluster")]
    flag: Option<String>,
}

impl NamedCluster {
    /// Returns the name, if there is one.
    pub(super) fn name(&self) -> Option<&str> {
        self.cluster.as_deref().or(self.flag.as_deref())
    }
}

/// Returns the cluster with the name. Without a name, returns the only cluster, the cluster of the kubeconfig's current
/// context, or `default`.
///
/// # Errors
/// Fails if the cluster does not exist, or several clusters match.
pub(super) fn find<'a>(
    clusters: &'a [Cluster],
    name: Option<&str>,
    home: &Home,
) -> Result<&'a Cluster> {
    // With a name, the kubeconfig need not be readable.
    let context = if name.is_none() { home.current_context() } else { None };
    choose(clusters, name, context.as_deref().and_then(cluster_of_context))
}
