//! `metrics.k8s.io`: usage of simulated nodes and their pods, which the embedded API server serves.

use crate::Plane;
use evenkeel_apiserver::{BuildError, ComputedApi, ComputedResource, Server, Source};
use evenkeel_nodes::Usage;
use serde_json::Value;
use std::sync::Arc;
use tokio::runtime::Handle;

const RESOURCES: &[ComputedResource] = &[
    ComputedResource {
        plural: "nodes",
        kind: "NodeMetrics",
        namespaced: false,
        columns: &["Name", "cpu", "memory", "Window"],
    },
    ComputedResource {
        plural: "pods",
        kind: "PodMetrics",
        namespaced: true,
        columns: &["Name", "cpu", "memory", "Window"],
    },
];

/// Serves `metrics.k8s.io` for the plane's simulated nodes, if it has any.
///
/// # Errors
/// Fails if the server cannot register the API.
pub(super) async fn serve(server: &Server, plane: &Plane) -> Result<(), BuildError> {
    let Some(usage) = plane.usage() else { return Ok(()) };
    let api = ComputedApi {
        group: "metrics.k8s.io",
        version: "v1beta1",
        resources: RESOURCES,
        source: Arc::new(UsageSource { usage: usage.clone(), runtime: plane.runtime().clone() }),
    };
    server.aggregate(&api).await
}

/// Source of `metrics.k8s.io` for the simulated nodes.
struct UsageSource {
    usage: Usage,
    /// Runtime whose time the usage's clock follows.
    runtime: Handle,
}

impl Source for UsageSource {
    fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let _context = self.runtime.enter();
        match resource {
            "nodes" => self.usage.node_metrics(),
            _ => self.usage.pod_metrics(namespace),
        }
    }
}
