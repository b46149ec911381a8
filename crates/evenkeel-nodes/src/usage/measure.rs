//! `NodeMetrics` and `PodMetrics` by what pods request and their annotations say. Pure.

use evenkeel_api::{
    Meta,
    quantity::Quantity,
    time::{Timestamp, seconds},
    views::{Container, Node, Pod},
};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};

use crate::behaviour::{CPU, CPU_LOAD, MEMORY, amount};

/// Reported window of a measurement.
const WINDOW: &str = "15s";

/// Usage of a container without requests.
const IDLE: Used = Used { millicores: 1, bytes: 8 << 20 };

/// Usage of a node besides its pods.
const OVERHEAD: Used = Used { millicores: 50, bytes: 256 << 20 };

/// Usage of CPU and memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Used {
    millicores: i64,
    bytes: i64,
}

impl Used {
    fn plus(self, other: Self) -> Self {
        Self {
            millicores: self.millicores.saturating_add(other.millicores),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn json(self) -> Value {
        json!({
            "cpu": Quantity::from_millis(self.millicores).to_string(),
            "memory": Quantity::from_bytes(self.bytes).to_string(),
        })
    }
}

/// Returns the usage of each node: its pods, and an overhead.
pub(super) fn of_nodes(nodes: &[Arc<Node>], pods: &[Arc<Pod>], now: Timestamp) -> Vec<Value> {
    let shares = shares(pods);
    let mut used: HashMap<&str, Used> = HashMap::new();
    for pod in pods {
        let all = containers(pod, &shares).map(|(_, used)| used).fold(Used::default(), Used::plus);
        let of_node = used.entry(&pod.spec.node_name).or_default();
        *of_node = of_node.plus(all);
    }
    let metrics = |node: &Arc<Node>| {
        let own = used.get(&*node.meta.name).copied().unwrap_or_default();
        let mut object = of(&node.meta, now);
        object["usage"] = OVERHEAD.plus(own).json();
        object
    };
    nodes.iter().map(metrics).collect()
}

/// Returns the usage of each running pod among these.
pub(super) fn of_pods(pods: &[Arc<Pod>], now: Timestamp) -> Vec<Value> {
    let shares = shares(pods);
    let metrics = |pod: &Arc<Pod>| {
        let each: Vec<Value> = containers(pod, &shares)
            .map(|(name, used)| json!({"name": name, "usage": used.json()}))
            .collect();
        let mut object = of(&pod.meta, now);
        object["containers"] = Value::Array(each);
        object
    };
    pods.iter().filter(|pod| runs(pod)).map(metrics).collect()
}

/// The common fields of a measurement: metadata, time and window.
fn of(meta: &Meta, now: Timestamp) -> Value {
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

fn runs(pod: &Pod) -> bool {
    &*pod.status.phase == "Running" && !pod.meta.deleting()
}

/// Counts the running pods of each owner by its uid.
type Shares<'a> = HashMap<&'a str, i64>;

fn shares(pods: &[Arc<Pod>]) -> Shares<'_> {
    let mut shares = Shares::new();
    for owner in pods.iter().filter(|pod| runs(pod)).filter_map(|pod| pod.meta.controller()) {
        *shares.entry(&owner.uid).or_default() += 1;
    }
    shares
}

/// Returns the usage of each running container of a pod; nothing if the pod does not run.
fn containers<'a>(
    pod: &'a Pod,
    shares: &'a Shares<'a>,
) -> impl Iterator<Item = (&'a str, Used)> + 'a {
    let sidecars = pod.spec.init_containers.iter().filter(|c| &*c.restart_policy == "Always");
    let statuses =
        || pod.status.container_statuses.iter().chain(&*pod.status.init_container_statuses);
    let works = move |one: &&Container| {
        statuses().any(|status| status.name == one.name && status.state.running.is_some())
    };
    let share = pod.meta.controller().and_then(|owner| shares.get(&*owner.uid)).copied();
    let all = pod.spec.containers.iter().chain(sidecars).filter(move |_| runs(pod));
    all.filter(works).map(move |one| (&*one.name, used(pod, one, share.unwrap_or(1))))
}

/// Returns the usage of a container: the one in annotations, or half of its requests. A load is divided by `share` pods.
fn used(pod: &Pod, container: &Container, share: i64) -> Used {
    let told = |key| amount(&pod.meta.annotations, key, &container.name);
    let requested = |resource| container.resources.requests.get(resource).copied();
    let load = told(CPU_LOAD).map(|load| load.milli_value() / share.max(1));
    let millicores = told(CPU).map(Quantity::milli_value).or(load);
    let half_cpu = || requested("cpu").map(|amount| amount.milli_value() / 2);
    let half_memory = || requested("memory").map(|amount| amount.value() / 2);
    Used {
        millicores: millicores.or_else(half_cpu).unwrap_or(IDLE.millicores),
        bytes: told(MEMORY).map(Quantity::value).or_else(half_memory).unwrap_or(IDLE.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View};

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

    fn figures(pods: &[Arc<Pod>]) -> Vec<(String, i64, i64)> {
        let shares = shares(pods);
        let each = pods.iter().flat_map(|pod| containers(pod, &shares).collect::<Vec<_>>());
        each.map(|(name, used)| (name.to_owned(), used.millicores, used.bytes >> 20)).collect()
    }

    #[test]
    fn half_of_what_is_requested_is_used() {
        let figures = figures(&[pod("a", &json!({}), true), pod("b", &json!({}), false)]);
        assert_eq!(figures, [("app".to_owned(), 250, 32), ("log".to_owned(), 1, 8)]);
    }

    #[test]
    fn annotations_say_otherwise() {
        let told = json!({"sim.evenkeel.dev/cpu": "log=2", "sim.evenkeel.dev/memory": "1Gi"});
        assert_eq!(
            figures(&[pod("a", &told, true)]),
            [("app".to_owned(), 250, 1024), ("log".to_owned(), 2000, 1024)]
        );
        let wrong = json!({"sim.evenkeel.dev/cpu": "much"});
        assert_eq!(figures(&[pod("a", &wrong, true)])[0].1, 250);
    }

    #[test]
    fn a_load_is_shared_by_those_who_run() {
        let load = json!({"sim.evenkeel.dev/cpu-load": "app=1200m"});
        let pods = [pod("a", &load, true), pod("b", &load, true), pod("c", &load, false)];
        let figures = figures(&pods);
        assert_eq!((figures[0].1, figures[2].1, figures.len()), (600, 600, 4));
    }
}
