//! Clusters that are known from the start.

use super::{engage::Clusters, provider::ClusterProvider};
use crate::{
    client::Transport,
    controller::{Outcome, Request},
    manager::Manager,
    operator::Context,
    plan::Key,
};
use std::{collections::BTreeMap, sync::Arc};

/// Fixed list of clusters, for tests and for programs that read their own configuration.
///
/// ```
/// use evenkeel_runtime::{clusters::FixedClusters, prelude::*};
///
/// # fn add(manager: &Manager, east: kube::Client, west: kube::Client) {
/// manager.clusters(FixedClusters::new([("east", east), ("west", west)]), |cluster| {
///     // The controllers of a cluster.
/// });
/// # }
/// ```
#[must_use = "a provider does nothing until a manager takes it"]
pub struct FixedClusters(BTreeMap<String, Transport>);

impl FixedClusters {
    /// Returns the provider of these clusters, each with its name.
    pub fn new<'n, T: Into<Transport>>(clusters: impl IntoIterator<Item = (&'n str, T)>) -> Self {
        let named = |(name, transport): (&str, T)| (name.to_owned(), transport.into());
        Self(clusters.into_iter().map(named).collect())
    }
}

impl ClusterProvider for FixedClusters {
    fn start(self, host: &Manager, clusters: Clusters) {
        let keys: Vec<Key> = self.0.keys().map(|name| Key::new("", name)).collect();
        let transports = Arc::new(self.0);
        host.controller_of_requests("fixed-clusters")
            .source(futures::stream::iter(keys))
            .reconcile_requests(move |request: Request, _: Context| {
                let (clusters, transports) = (clusters.clone(), Arc::clone(&transports));
                async move {
                    let name = &*request.key.name;
                    if let Some(transport) = transports.get(name).cloned() {
                        clusters.engage(name, name.as_bytes(), async || Ok(transport)).await?;
                    }
                    Ok(Outcome::Settled)
                }
            });
    }
}
