//! Environment that the controllers of a program share.

use super::Metrics;
use crate::{
    cache::Caches, client::Client, clock::Clock, introspect::Introspection, sharding::Shards,
};
use prometheus::Registry;
use std::sync::Arc;

/// Client, caches, clock and metrics of the controllers of a program.
#[derive(Clone)]
pub struct Env {
    /// Client of the API server. Each controller adds its name to the user agent.
    pub client: Client,
    /// Caches that the controllers read, one per kind.
    pub caches: Caches,
    /// Clock of the program, which a simulation replaces.
    pub clock: Clock,
    /// Metrics of queues and controllers.
    pub metrics: Metrics,
    /// Reports of the controllers' observations, next actions and waits.
    pub introspection: Introspection,
    /// Shards of a sharded operator, whose controllers work only on the keys of shards that this process holds.
    pub shards: Option<Shards>,
    /// Name of a cluster of a [provider](crate::clusters::ClusterProvider). Empty for the program's own cluster.
    pub cluster: Arc<str>,
}

impl Env {
    /// Creates the environment and registers the metrics of queues and controllers. Call it once per registry.
    pub fn new(client: Client, caches: Caches, clock: Clock, registry: &Registry) -> Self {
        Self::with_metrics(client, caches, clock, Metrics::register(registry))
    }

    /// Like [`Env::new`], with metrics that are already registered.
    pub fn with_metrics(client: Client, caches: Caches, clock: Clock, metrics: Metrics) -> Self {
        let introspection = Introspection::new(caches.clone(), clock.clone());
        Self { client, caches, clock, metrics, introspection, shards: None, cluster: Arc::from("") }
    }
}
