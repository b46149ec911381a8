//! `/metrics/resources`: requests and limits of pods, with a series for each pod and resource (KEP-1748).
//!
//! Upstream: `podResourceCollector`.

use bytes::Bytes;
use evenkeel_api::views::Pod;
use evenkeel_component::secure_serving::Routes;
use evenkeel_component_helpers::{
    quota,
    resource::{self, Amounts},
};
use evenkeel_runtime::{
    cache::Caches,
    metrics::{answer, gauges},
};
use http::{HeaderMap, Response};
use prometheus::{GaugeVec, Registry};
use std::sync::{Arc, OnceLock};

/// Labels of both metrics.
const LABELS: [&str; 7] = ["namespace", "pod", "node", "scheduler", "priority", "resource", "unit"];

/// Help texts of both metrics.
const HELP: [&str; 2] = [
    "[STABLE] Resources requested by workloads on the cluster, broken down by pod. This shows the resource usage the \
     scheduler and kubelet expect per pod for resources along with the unit for the resource if any.",
    "[STABLE] Resources limit for workloads on the cluster, broken down by pod. This shows the resource usage the \
     scheduler and kubelet expect per pod for resources along with the unit for the resource if any.",
];

/// Adds the endpoint. Its response is empty until this process is the leader and sets `caches`.
pub(super) fn add_endpoint(routes: Routes, caches: Arc<OnceLock<Caches>>) -> Routes {
    routes.get("/metrics/resources", move |request| match caches.get() {
        Some(caches) => metrics_page(&caches.of::<Pod>().list(), request.headers()),
        None => Response::new(Bytes::new()),
    })
}

/// Returns the metrics of all pods that have not ended, in the format that the headers request.
fn metrics_page(pods: &[Arc<Pod>], headers: &HeaderMap) -> Response<Bytes> {
    let registry = Registry::new();
    let [request, limit] = HELP;
    let requests = gauges(&registry, "kube_pod_resource_request", request, &LABELS);
    let limits = gauges(&registry, "kube_pod_resource_limit", limit, &LABELS);
    for pod in pods.iter().filter(|pod| !is_terminal(pod)) {
        set_series(&requests, pod, &resource::pod_requests(pod, &[]));
        set_series(&limits, pod, &quota::limits(pod));
    }
    answer(headers, &registry.gather())
}

/// Returns whether a pod on a node has ended. Pods without a node count as pending.
fn is_terminal(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && matches!(&*pod.status.phase, "Succeeded" | "Failed")
}

/// Sets one series for each amount that is not zero.
fn set_series(gauges: &GaugeVec, pod: &Pod, amounts: &Amounts<'_>) {
    let priority = pod.spec.priority.map(|priority| priority.to_string()).unwrap_or_default();
    for (resource, amount) in amounts.iter().filter(|(_, amount)| !amount.is_zero()) {
        let labels = [
            &*pod.meta.namespace,
            &*pod.meta.name,
            &*pod.spec.node_name,
            &*pod.spec.scheduler_name,
            &*priority,
            resource,
            unit(resource),
        ];
        gauges.with_label_values(&labels).set(amount.as_f64());
    }
}

/// Returns the label `unit` of a resource; empty for an extended resource.
fn unit(resource: &str) -> &'static str {
    match resource {
        "cpu" => "cores",
        "memory" | "storage" | "ephemeral-storage" => "bytes",
        name if name.starts_with("hugepages-") => "bytes",
        name if name.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View};
    use serde_json::json;

    fn pod(name: &str, mut object: serde_json::Value) -> Arc<Pod> {
        object["metadata"] = json!({"name": name, "namespace": "shop"});
        Arc::new(Pod::decode(object.to_string().as_bytes(), Encoding::Json).unwrap())
    }

    #[test]
    fn each_nonzero_amount_has_a_series() {
        let container = json!({"name": "c", "resources": {
            "requests": {"cpu": "250m", "memory": "1Ki", "a.b/c": "2", "hugepages-2Mi": "0"},
            "limits": {"cpu": "1"},
        }});
        let spec = json!({"containers": [container], "priority": 7, "schedulerName": "s"});
        let pending = pod("waits", json!({"spec": spec}));
        let ended = json!({"spec": {"nodeName": "n", "containers": [container]}, "status": {"phase": "Failed"}});
        let pods = [pending, pod("ended", ended)];
        let text =
            String::from_utf8(metrics_page(&pods, &HeaderMap::new()).into_body().to_vec()).unwrap();
        let help: Vec<&str> = text.lines().filter(|line| line.starts_with("# HELP")).collect();
        let help_line = |metric: &str, relation: &str| {
            format!(
                "# HELP kube_pod_resource_{metric} [STABLE] Resources {relation} workloads on the cluster, broken down by \
                 pod. This shows the resource usage the scheduler and kubelet expect per pod for resources along with \
                 the unit for the resource if any."
            )
        };
        assert_eq!(help, [help_line("limit", "limit for"), help_line("request", "requested by")]);
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let line = |metric: &str, resource: &str, unit: &str, value: &str| {
            format!(
                "kube_pod_resource_{metric}{{namespace=\"shop\",node=\"\",pod=\"waits\",priority=\"7\",\
                 resource=\"{resource}\",scheduler=\"s\",unit=\"{unit}\"}} {value}"
            )
        };
        assert_eq!(
            series,
            [
                line("limit", "cpu", "cores", "1"),
                line("request", "a.b/c", "", "2"),
                line("request", "cpu", "cores", "0.25"),
                line("request", "memory", "bytes", "1024"),
            ]
        );
    }
}
