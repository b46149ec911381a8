//! Resource usage of simulated nodes and pods, for `metrics.k8s.io`.

mod known;
mod measure;
mod pages;

pub use known::KnownUsage;
pub(crate) use measure::node_usage;
pub(crate) use pages::NodeUsage;

use evenkeel_api::views::{Node, Pod};
use evenkeel_runtime::{
    cache::{Cache, Caches},
    clock::Clock,
};
use serde_json::Value;
use std::sync::Arc;

use crate::behaviors::{Behavior, Behaviors};

/// Computes `NodeMetrics` and `PodMetrics` from the caches.
#[derive(Clone)]
pub struct Usage {
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    clock: Clock,
    behaviors: Option<Behaviors>,
}

impl Usage {
    /// Creates a source of the usage of the nodes and pods in `caches`. The caller starts the caches.
    pub fn new(caches: &Caches, clock: Clock) -> Self {
        Self { pods: caches.of(), nodes: caches.of(), clock, behaviors: None }
    }

    /// Also follows Behaviors, as [`NodesOptions::behaviors`](crate::NodesOptions::behaviors).
    #[must_use]
    pub fn with_behaviors(mut self, caches: &Caches) -> Self {
        self.behaviors = Some(Behaviors::watch(caches));
        self
    }

    /// Returns the Behaviors that select a pod, by precedence.
    fn behaviors_of(&self, pod: &Pod) -> Vec<Arc<Behavior>> {
        self.behaviors.as_ref().map(|behaviors| behaviors.of_pod(pod)).unwrap_or_default()
    }

    /// Returns the `NodeMetrics` of each node: the usage of its pods plus an overhead.
    pub fn node_metrics(&self) -> Vec<Value> {
        let (nodes, pods) = (self.nodes.list(), self.pods.list());
        measure::node_metrics(&nodes, &pods, &|pod| self.behaviors_of(pod), self.clock.now())
    }

    /// Returns the `PodMetrics` of each running pod in `namespace`, or in all namespaces if it is empty.
    pub fn pod_metrics(&self, namespace: &str) -> Vec<Value> {
        let pods =
            if namespace.is_empty() { self.pods.list() } else { self.pods.namespace(namespace) };
        measure::pod_metrics(&pods, &|pod| self.behaviors_of(pod), self.clock.now())
    }
}
