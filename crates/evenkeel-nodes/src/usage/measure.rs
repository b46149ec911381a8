//! `NodeMetrics` and `PodMetrics` of `metrics.k8s.io`, computed from the requests and annotations of pods.

use evenkeel_api::{
    Meta,
    quantity::Quantity,
    time::{Timestamp, seconds},
    views::{Container, Node, Pod},
};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};

use super::pages::{NodeUsage, PodUsage};
use crate::{
    annotations::{CPU, CPU_LOAD, MEMORY},
    behaviour::annotated_usage,
};

/// Field `window` of each object: the time over which usage is averaged.
const WINDOW: &str = "15s";

/// Usage of a container without a request and without an annotation for the resource.
const DEFAULT_USAGE: ResourceUsage = ResourceUsage { millicores: 1, bytes: 8 << 20 };

/// Usage of a node besides its pods, such as the kubelet's.
const NODE_OVERHEAD: ResourceUsage = ResourceUsage { millicores: 50, bytes: 256 << 20 };

/// CPU and memory in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ResourceUsage {
    /// Thousandths of a CPU.
    pub(crate) millicores: i64,
    /// Bytes of memory.
    pub(crate) bytes: i64,
}

impl ResourceUsage {
    /// Returns the CPU usage in billionths of a CPU.
    pub(super) fn nanocores(self) -> i64 {
        self.millicores.saturating_mul(1_000_000)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            millicores: self.millicores.saturating_add(other.millicores),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn to_json(self) -> Value {
        json!({
            "cpu": Quantity::from_millis(self.millicores).to_string(),
            "memory": Quantity::from_bytes(self.bytes).to_string(),
        })
    }
}

/// Returns the `NodeMetrics` of each node: the usage of its pods plus an overhead.
pub(super) fn node_metrics(nodes: &[Arc<Node>], pods: &[Arc<Pod>], now: Timestamp) -> Vec<Value> {
    let running = running_pods_by_owner(pods);
    let mut usage_by_node: HashMap<&str, ResourceUsage> = HashMap::new();
    for pod in pods {
        let node_usage = usage_by_node.entry(&pod.spec.node_name).or_default();
        for (_, usage) in container_usage(pod, &running) {
            *node_usage = node_usage.plus(usage);
        }
    }
    let metrics = |node: &Arc<Node>| {
        let pods_usage = usage_by_node.get(&*node.meta.name).copied().unwrap_or_default();
        let mut object = metrics_object(&node.meta, now);
        object["usage"] = NODE_OVERHEAD.plus(pods_usage).to_json();
        object
    };
    nodes.iter().map(metrics).collect()
}

/// Returns the usage of a node with that of its running pods.
pub(crate) fn node_usage(node: &str, pods: &[Arc<Pod>], now: Timestamp) -> NodeUsage {
    let running = running_pods_by_owner(pods);
    let running_on_node = pods.iter().filter(|pod| *pod.spec.node_name == *node && is_running(pod));
    let pods = running_on_node.map(|pod| PodUsage {
        namespace: pod.meta.namespace.to_string(),
        name: pod.meta.name.to_string(),
        uid: pod.meta.uid.to_string(),
        containers: container_usage(pod, &running)
            .map(|(name, usage)| (name.to_owned(), usage))
            .collect(),
    });
    let pods: Vec<PodUsage> = pods.collect();
    let total = pods.iter().map(PodUsage::total).fold(NODE_OVERHEAD, ResourceUsage::plus);
    NodeUsage { node: node.to_owned(), time: now, total, pods }
}

/// Returns the `PodMetrics` of each running pod.
pub(super) fn pod_metrics(pods: &[Arc<Pod>], now: Timestamp) -> Vec<Value> {
    let running = running_pods_by_owner(pods);
    let metrics = |pod: &Arc<Pod>| {
        let containers: Vec<Value> = container_usage(pod, &running)
            .map(|(name, usage)| json!({"name": name, "usage": usage.to_json()}))
            .collect();
        let mut object = metrics_object(&pod.meta, now);
        object["containers"] = Value::Array(containers);
        object
    };
    pods.iter().filter(|pod| is_running(pod)).map(metrics).collect()
}

/// Returns the fields that `NodeMetrics` and `PodMetrics` share: metadata, timestamp and window.
fn metrics_object(meta: &Meta, now: Timestamp) -> Value {
    let mut metadata = json!({"name": &*meta.name, "creationTimestamp": seconds(now)});
    if !meta.namespace.is_empty() {
        metadata["namespace"] = (&*meta.namespace).into();
    }
    if !meta.labels.is_empty() {
        metadata["labels"] =
            meta.labels.iter().map(|(key, value)| (key.to_owned(), value)).collect();
    }
    json!({"metadata": metadata, "timestamp": seconds(now), "window": WINDOW})
}

/// Reports whether a pod runs and is not being deleted.
fn is_running(pod: &Pod) -> bool {
    &*pod.status.phase == "Running" && !pod.meta.deleting()
}

/// Number of running pods by the uid of the controlling owner.
type RunningPodsByOwner<'a> = HashMap<&'a str, i64>;

/// Counts the running pods of each controlling owner.
fn running_pods_by_owner(pods: &[Arc<Pod>]) -> RunningPodsByOwner<'_> {
    let mut running = RunningPodsByOwner::new();
    for owner in pods.iter().filter(|pod| is_running(pod)).filter_map(|pod| pod.meta.controller()) {
        *running.entry(&owner.uid).or_default() += 1;
    }
    running
}

/// Iterates over the running containers and sidecars of a running pod: the name and usage of each.
fn container_usage<'a>(
    pod: &'a Pod,
    running: &'a RunningPodsByOwner<'a>,
) -> impl Iterator<Item = (&'a str, ResourceUsage)> + 'a {
    let sidecars = pod.spec.init_containers.iter().filter(|init| &*init.restart_policy == "Always");
    let statuses =
        || pod.status.container_statuses.iter().chain(&*pod.status.init_container_statuses);
    let container_runs = move |container: &&Container| {
        statuses().any(|status| status.name == container.name && status.state.running.is_some())
    };
    let replicas = pod.meta.controller().and_then(|owner| running.get(&*owner.uid)).copied();
    let containers = pod.spec.containers.iter().chain(sidecars).filter(move |_| is_running(pod));
    containers
        .filter(container_runs)
        .map(move |container| (&*container.name, usage(pod, container, replicas.unwrap_or(1))))
}

/// Returns the usage of a container. It comes from the pod's annotations, or else is half of the container's requests,
/// or else a default. All `replicas` running pods of the owner share the load of the annotation `cpu-load` evenly.
fn usage(pod: &Pod, container: &Container, replicas: i64) -> ResourceUsage {
    let annotated = |key| annotated_usage(&pod.meta.annotations, key, &container.name);
    let requested = |resource| container.resources.requests.get(resource).copied();
    let share_of_load = annotated(CPU_LOAD).map(|load| load.milli_value() / replicas.max(1));
    let millicores = annotated(CPU).map(Quantity::milli_value).or(share_of_load);
    let half_cpu = || requested("cpu").map(|amount| amount.milli_value() / 2);
    let half_memory = || requested("memory").map(|amount| amount.value() / 2);
    ResourceUsage {
        millicores: millicores.or_else(half_cpu).unwrap_or(DEFAULT_USAGE.millicores),
        bytes: annotated(MEMORY)
            .map(Quantity::value)
            .or_else(half_memory)
            .unwrap_or(DEFAULT_USAGE.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View};

    /// Returns a pod of the ReplicaSet `web`. Its container `app` requests 500m and 64Mi, `log` requests nothing.
    fn pod(name: &str, annotations: &Value, running: bool) -> Arc<Pod> {
        let state = if running { json!({"running": {}}) } else { json!({"waiting": {}}) };
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]);
        let body = json!({
            "metadata": {"name": name, "namespace": "ns", "annotations": annotations, "ownerReferences": owner},
            "spec": {"nodeName": "n", "containers": [
                {"name": "app", "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}}, {"name": "log"},
            ]},
            "status": {"phase": if running { "Running" } else { "Pending" }, "containerStatuses": [
                {"name": "app", "state": state}, {"name": "log", "state": state},
            ]},
        });
        Arc::new(Pod::decode(body.to_string().as_bytes(), Encoding::Json).expect("a pod"))
    }

    /// Returns name, millicores and MiB of each running container.
    fn usages(pods: &[Arc<Pod>]) -> Vec<(String, i64, i64)> {
        let running = running_pods_by_owner(pods);
        let each = pods.iter().flat_map(|pod| container_usage(pod, &running).collect::<Vec<_>>());
        each.map(|(name, usage)| (name.to_owned(), usage.millicores, usage.bytes >> 20)).collect()
    }

    #[test]
    fn usage_is_half_of_the_requests_or_a_default() {
        let usages = usages(&[pod("a", &json!({}), true), pod("b", &json!({}), false)]);
        assert_eq!(usages, [("app".to_owned(), 250, 32), ("log".to_owned(), 1, 8)]);
    }

    #[test]
    fn annotations_override_requests() {
        let annotations =
            json!({"sim.evenkeel.dev/cpu": "log=2", "sim.evenkeel.dev/memory": "1Gi"});
        assert_eq!(
            usages(&[pod("a", &annotations, true)]),
            [("app".to_owned(), 250, 1024), ("log".to_owned(), 2000, 1024)]
        );
        let invalid = json!({"sim.evenkeel.dev/cpu": "much"});
        assert_eq!(usages(&[pod("a", &invalid, true)])[0].1, 250);
    }

    #[test]
    fn running_replicas_share_the_cpu_load_evenly() {
        let load = json!({"sim.evenkeel.dev/cpu-load": "app=1200m"});
        let pods = [pod("a", &load, true), pod("b", &load, true), pod("c", &load, false)];
        let usages = usages(&pods);
        assert_eq!((usages[0].1, usages[2].1, usages.len()), (600, 600, 4));
    }
}
