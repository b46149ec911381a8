//! Resource usage of simulated nodes and pods, for `metrics.k8s.io`.

mod measure;
mod pages;

pub(crate) use measure::node_usage;
pub(crate) use pages::NodeUsage;

use evenkeel_api::views::{Node, Pod};
use evenkeel_runtime::{
    cache::{Cache, Caches},
    clock::Clock,
};
use serde_json::Value;

/// Computes `NodeMetrics` and `PodMetrics` from the caches.
#[derive(Clone)]
pub struct Usage {
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    clock: Clock,
}

impl Usage {
    /// Returns the usage of the nodes and pods in `caches`, which the caller starts.
    pub fn new(caches: &Caches, clock: Clock) -> Self {
        Self { pods: caches.of(), nodes: caches.of(), clock }
    }

    /// Returns the `NodeMetrics` of each node: the usage of its pods plus an overhead.
    pub fn node_metrics(&self) -> Vec<Value> {
        measure::node_metrics(&self.nodes.list(), &self.pods.list(), self.clock.now())
    }

    /// Returns the `PodMetrics` of each running pod in `namespace`, or in all namespaces if it is empty.
    pub fn pod_metrics(&self, namespace: &str) -> Vec<Value> {
        let pods =
            if namespace.is_empty() { self.pods.list() } else { self.pods.namespace(namespace) };
        measure::pod_metrics(&pods, self.clock.now())
    }
}
