//! Pods, nodes and plugin handles for tests.

use evenkeel_api::{
    Encoding, View,
    time::Timestamp,
    views::{Node, Pod},
};
use evenkeel_runtime::{
    cache::Caches, client::Client, clock::Clock, events::SeriesEventRecorder, tasks::Tasks,
};
use prometheus::{
    Registry,
    proto::{LabelPair, Metric},
};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::{
    framework::{Handle, WaitingPods, Watches},
    metrics::Metrics,
    nodes::NodeTable,
    pod::PodInfo,
};

/// Returns the time of a test that is `seconds` after its start.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// Returns a node with 4 CPUs, 8 GiB of memory and room for 10 pods, with `more` merged into it.
pub(crate) fn node(name: &str, more: &Value) -> Arc<Node> {
    let mut node = json!({
        "metadata": { "name": name, "uid": name, "labels": { "kubernetes.io/hostname": name } },
        "spec": {},
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10", "ephemeral-storage": "10Gi" } },
    });
    merge(&mut node, more);
    Arc::new(Node::decode(node.to_string().as_bytes(), Encoding::Json).unwrap())
}

/// Returns a pod with one container, with `more` merged into it.
pub(crate) fn pod(name: &str, more: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "shop", "uid": name, "generation": 1 },
        "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
        "status": { "phase": "Pending" },
    });
    merge(&mut pod, more);
    Arc::new(Pod::decode(pod.to_string().as_bytes(), Encoding::Json).unwrap())
}

/// Returns the PodInfo of a pod with one container, with `more` merged into it.
pub(crate) fn info(name: &str, more: &Value) -> PodInfo {
    PodInfo::new(pod(name, more))
}

/// Returns the fields of a pod whose container has these requests.
pub(crate) fn with_requests(cpu: &str, memory: &str) -> Value {
    json!({ "spec": { "containers": [{
        "name": "c", "image": "nginx", "resources": { "requests": { "cpu": cpu, "memory": memory } },
    }] } })
}

/// Returns a table with these nodes.
pub(crate) fn table(nodes: &[Arc<Node>]) -> NodeTable {
    let mut table = NodeTable::default();
    for node in nodes {
        table.set_node(Arc::clone(node));
    }
    table
}

/// Merges objects recursively. Other values, lists among them, replace the old value.
pub(crate) fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// Returns a plugin handle whose caches stay empty.
pub(crate) fn handle(client: Client, clock: &Clock) -> Handle {
    let registry = Registry::new();
    let caches = Caches::new(client.clone(), clock.clone(), &registry);
    let recorder =
        SeriesEventRecorder::new(client.clone(), "default-scheduler", "test", clock.clone());
    Handle {
        profile: crate::DEFAULT_SCHEDULER.into(),
        caches,
        clock: clock.clone(),
        client,
        tasks: Tasks::new(),
        recorder,
        metrics: Metrics::register(&registry),
        registry,
        watches: Arc::new(Watches::new().0),
        waiting_pods: WaitingPods::default(),
        commands: tokio::sync::mpsc::unbounded_channel().0,
        parallelism: 2,
    }
}

/// Returns the series of a metric as pairs of label values and a count: the counter's value or the
/// number of observations.
pub(crate) fn series(registry: &Registry, name: &str) -> Vec<(String, u64)> {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name);
    let series_of = |metric: &Metric| {
        let labels: Vec<&str> = metric.get_label().iter().map(LabelPair::value).collect();
        let observations = metric.get_histogram().get_sample_count();
        (labels.join(" "), observations + metric.get_counter().get_value() as u64)
    };
    family.map_or_else(Vec::new, |family| family.get_metric().iter().map(series_of).collect())
}
