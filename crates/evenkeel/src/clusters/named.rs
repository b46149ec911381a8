//! How commands name the cluster that they are about.

use super::record::{Cluster, choose, cluster_of_context};
use crate::kubeconfig::Home;
use anyhow::Result;

/// The cluster of a command without other arguments.
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

/// Returns the cluster of a name, or else that to which kubectl would connect, or else `default`.
///
/// # Errors
/// When there is no such cluster, or several.
pub(super) fn find<'a>(
    clusters: &'a [Cluster],
    name: Option<&str>,
    home: &Home,
) -> Result<&'a Cluster> {
    // A name decides, so the kubeconfig is not read for it.
    let context = if name.is_none() { home.current_context() } else { None };
    choose(clusters, name, context.as_deref().and_then(cluster_of_context))
}
