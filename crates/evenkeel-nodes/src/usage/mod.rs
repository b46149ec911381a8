//! Resource usage of simulated nodes and pods, for `metrics.k8s.io`.

mod measure;

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
    /// Usage of the nodes and pods in `caches`, which the caller starts.
    pub fn new(caches: &Caches, clock: Clock) -> Self {
        Self { pods: caches.of(), nodes: caches.of(), clock }
    }

    /// Returns the usage of each node: its pods, and an overhead.
    pub fn of_nodes(&self) -> Vec<Value> {
        measure::of_nodes(&self.nodes.list(), &self.pods.list(), self.clock.now())
    }

    /// Returns the usage of each running pod of a namespace; of all namespaces if it is empty.
    pub fn of_pods(&self, namespace: &str) -> Vec<Value> {
        let pods =
            if namespace.is_empty() { self.pods.list() } else { self.pods.namespace(namespace) };
        measure::of_pods(&pods, self.clock.now())
    }
}
