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
    behaviors::{self, Behavior},
    behaviour::annotated_usage,
};

/// Field `window` of each object: the time over which usage is averaged.
const WINDOW: &str = "15s";

/// Usage of a container without a request and without an annotation for the resource.
const DEFAULT_USAGE: ResourceUsage = ResourceUsage { millicores: 1, bytes: 8 << 20 };

/// Usage of a node apart from its pods, such as the kubelet's.
const NODE_OVERHEAD: ResourceUsage = ResourceUsage { millicores: 50, bytes: 256 << 20 };

/// Returns the Behaviors that select a pod, by precedence.
pub(crate) type BehaviorsOf<'a> = &'a dyn Fn(&Pod) -> Vec<Arc<Behavior>>;

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
pub(super) fn node_metrics(
    nodes: &[Arc<Node>],
    pods: &[Arc<Pod>],
    behaviors: BehaviorsOf<'_>,
    now: Timestamp,
) -> Vec<Value> {
    let running = Running::new(pods, behaviors, now);
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

/// Returns the usage of a node and of its running pods.
pub(crate) fn node_usage(
    node: &str,
    pods: &[Arc<Pod>],
    behaviors: BehaviorsOf<'_>,
    now: Timestamp,
) -> NodeUsage {
    let running = Running::new(pods, behaviors, now);
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
pub(super) fn pod_metrics(
    pods: &[Arc<Pod>],
    behaviors: BehaviorsOf<'_>,
    now: Timestamp,
) -> Vec<Value> {
    let running = Running::new(pods, behaviors, now);
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

/// Returns whether a pod runs and is not being deleted.
fn is_running(pod: &Pod) -> bool {
    &*pod.status.phase == "Running" && !pod.meta.deleting()
}

/// Inputs of the usage of a pod, besides the pod itself.
struct Running<'a> {
    /// Number of running pods by the uid of the controlling owner.
    by_owner: HashMap<&'a str, i64>,
    behaviors: BehaviorsOf<'a>,
    now: Timestamp,
}

impl<'a> Running<'a> {
    /// Counts the running pods of each controlling owner.
    fn new(pods: &'a [Arc<Pod>], behaviors: BehaviorsOf<'a>, now: Timestamp) -> Self {
        let mut by_owner: HashMap<&str, i64> = HashMap::new();
        let running = pods.iter().filter(|pod| is_running(pod));
        for owner in running.filter_map(|pod| pod.meta.controller()) {
            *by_owner.entry(&owner.uid).or_default() += 1;
        }
        Self { by_owner, behaviors, now }
    }
}

/// Iterates over the running containers and sidecars of a running pod: the name and usage of each.
fn container_usage<'a>(
    pod: &'a Pod,
    running: &'a Running<'a>,
) -> impl Iterator<Item = (&'a str, ResourceUsage)> + 'a {
    let sidecars = pod.spec.init_containers.iter().filter(|init| &*init.restart_policy == "Always");
    let statuses =
        || pod.status.container_statuses.iter().chain(&*pod.status.init_container_statuses);
    let container_runs = move |container: &&Container| {
        statuses().any(|status| status.name == container.name && status.state.running.is_some())
    };
    let owner = pod.meta.controller();
    let replicas = owner.and_then(|owner| running.by_owner.get(&*owner.uid)).copied();
    let behaviors = (running.behaviors)(pod);
    let containers = pod.spec.containers.iter().chain(sidecars).filter(move |_| is_running(pod));
    containers.filter(container_runs).map(move |container| {
        let name = &*container.name;
        let annotated = |key: &str| annotated_usage(&pod.meta.annotations, key, name);
        let by_behavior = |key: &str| behaviors::usage(&behaviors, pod, name, key, running.now);
        (name, usage(container, [&annotated, &by_behavior], replicas.unwrap_or(1)))
    })
}

/// Usage that annotations or Behaviors set, by the name of the annotation.
type UsageSource<'a> = &'a dyn Fn(&str) -> Option<Quantity>;

/// Returns the usage of a container. It comes from the first source that sets it, or else is half of the container's
/// requests, or else a default. All `replicas` running pods of the owner share the load of `cpu-load` evenly.
fn usage(container: &Container, sources: [UsageSource<'_>; 2], replicas: i64) -> ResourceUsage {
    let requested = |resource| container.resources.requests.get(resource).copied();
    let cpu = |set: &UsageSource<'_>| {
        let share_of_load = || set(CPU_LOAD).map(|load| load.milli_value() / replicas.max(1));
        set(CPU).map(Quantity::milli_value).or_else(share_of_load)
    };
    let half_cpu = || requested("cpu").map(|amount| amount.milli_value() / 2);
    let half_memory = || requested("memory").map(|amount| amount.value() / 2);
    let millicores = sources.iter().find_map(cpu).or_else(half_cpu);
    let bytes = sources.iter().find_map(|set| set(MEMORY)).map(Quantity::value);
    ResourceUsage {
        millicores: millicores.unwrap_or(DEFAULT_USAGE.millicores),
        bytes: bytes.or_else(half_memory).unwrap_or(DEFAULT_USAGE.bytes),
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
        let running = Running::new(pods, &|_| Vec::new(), Timestamp::UNIX_EPOCH);
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
    fn annotations_win_over_behaviors() {
        let spec = json!({"cpu": "3", "memory": "2Gi", "containers": ["log"]});
        let behavior = Arc::new(behaviors::parse_spec("b", &spec).expect("valid"));
        let of_pod = |_: &Pod| vec![Arc::clone(&behavior)];
        let usages = |annotations: Value| -> Vec<(i64, i64)> {
            let pods = [pod("a", &annotations, true)];
            let running = Running::new(&pods, &of_pod, Timestamp::UNIX_EPOCH);
            let usages = container_usage(&pods[0], &running).map(|(_, usage)| usage);
            usages.map(|usage| (usage.millicores, usage.bytes >> 20)).collect()
        };
        assert_eq!(usages(json!({})), [(250, 32), (3000, 2048)]);
        let load = json!({"sim.evenkeel.dev/cpu-load": "2"});
        assert_eq!(usages(load), [(2000, 32), (2000, 2048)]);
    }

    #[test]
    fn running_replicas_share_the_cpu_load_evenly() {
        let load = json!({"sim.evenkeel.dev/cpu-load": "app=1200m"});
        let pods = [pod("a", &load, true), pod("b", &load, true), pod("c", &load, false)];
        let usages = usages(&pods);
        assert_eq!((usages[0].1, usages[2].1, usages.len()), (600, 600, 4));
    }
}
