//! Resource usage of pods on simulated nodes, served as `metrics.k8s.io`.

use evenkeel_apiserver::{ComputedApi, ComputedResource, Server, Source};
use evenkeel_nodes::Usage;
use evenkeel_runtime::{cache::Caches, clock::Clock};
use serde_json::Value;
use std::sync::Arc;

const RESOURCES: &[ComputedResource] =
    &[ComputedResource { plural: "pods", kind: "PodMetrics", namespaced: true, columns: &[] }];

/// Serves the usage of the pods in `caches`.
pub(crate) async fn serve(server: &Server, caches: &Caches, clock: &Clock) {
    let usage = Usage::new(caches, clock.clone());
    let api = ComputedApi {
        group: "metrics.k8s.io",
        version: "v1beta1",
        resources: RESOURCES,
        source: Arc::new(PodUsageSource(usage)),
    };
    server.aggregate(&api).await.unwrap_or_else(|error| panic!("{error}"));
}

struct PodUsageSource(Usage);

impl Source for PodUsageSource {
    fn list(&self, _: &str, namespace: &str) -> Vec<Value> {
        self.0.pod_metrics(namespace)
    }
}
