//! Taints of nodes, and the pods of deleted nodes.

use crate::{
    cluster::{Cluster, condition, items, name},
    deployment::until_event,
    objects::{deployment, pod},
};
use evenkeel_controllers::core::nodeipam;
use evenkeel_nodes::NodeOptions;
use serde_json::{Value, json};
use std::{net::Ipv4Addr, time::Duration};

const NODE: &str = "nodes/e2e-taints";

/// Returns the keys of the node's taints with this effect, in order.
fn taints<'a>(node: &'a Value, effect: &str) -> Vec<&'a str> {
    let taints = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    let taints = taints.iter().filter(|taint| taint["effect"] == effect);
    let mut keys: Vec<_> = taints.filter_map(|taint| taint["key"].as_str()).collect();
    keys.sort_unstable();
    keys
}

async fn reports(cluster: &Cluster, conditions: &[(&str, &str)]) {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(which, status)| json!({"type": which, "status": status, "reason": "Test", "message": ""}))
        .collect();
    let mut node = cluster.get(NODE).await;
    node["status"]["conditions"] = json!(conditions);
    let change = json!({"status": {"conditions": conditions}});
    cluster.patch(&format!("{NODE}/status"), change).await;
}

pub(crate) async fn taints_follow_conditions(cluster: &Cluster) {
    // A node that is not simulated, and that accepts no pods of other cases.
    let own = json!({"key": "e2e.evenkeel.dev/reserved", "effect": "NoSchedule"});
    let node = json!({"metadata": {"name": "e2e-taints"}, "spec": {"taints": [own]}});
    cluster.create("nodes", node).await;
    let reserved = "e2e.evenkeel.dev/reserved";
    for (conditions, wanted) in [
        (&[("Ready", "True")][..], &[][..]),
        (&[("Ready", "False")], &["node.kubernetes.io/not-ready"]),
        (&[("Ready", "Unknown")], &["node.kubernetes.io/unreachable"]),
        (
            &[
                ("Ready", "True"),
                ("MemoryPressure", "True"),
                ("DiskPressure", "True"),
                ("PIDPressure", "True"),
                ("NetworkUnavailable", "True"),
            ],
            &[
                "node.kubernetes.io/disk-pressure",
                "node.kubernetes.io/memory-pressure",
                "node.kubernetes.io/network-unavailable",
                "node.kubernetes.io/pid-pressure",
            ],
        ),
        (&[("Ready", "True"), ("MemoryPressure", "False")], &[]),
    ] {
        reports(cluster, conditions).await;
        let wanted: Vec<_> = std::iter::once(reserved).chain(wanted.iter().copied()).collect();
        cluster.until(NODE, |node| taints(node, "NoSchedule") == wanted).await;
    }
    cluster.patch(NODE, json!({"spec": {"unschedulable": true}})).await;
    cluster
        .until(NODE, |node| {
            taints(node, "NoSchedule") == [reserved, "node.kubernetes.io/unschedulable"]
        })
        .await;
    cluster.patch(NODE, json!({"spec": {"unschedulable": null}})).await;
    cluster.until(NODE, |node| taints(node, "NoSchedule") == [reserved]).await;
    // A label's old name gets the value of the new one.
    let label = json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}});
    cluster.patch(NODE, label).await;
    cluster
        .until(NODE, |node| node["metadata"]["labels"]["beta.kubernetes.io/os"] == "linux")
        .await;
    cluster.delete(NODE, "Background").await;
}

/// Returns a pod that is bound to this node without a scheduler.
fn placed(name: &str, node: &str, bears: Option<Value>) -> Value {
    let mut pod = pod(name, &json!({}), "app:v1");
    pod["spec"]["nodeName"] = json!(node);
    if let Some(seconds) = bears {
        let toleration = json!({"key": "e2e.evenkeel.dev/out", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        pod["spec"]["tolerations"] = json!([toleration]);
    }
    pod
}

fn is_marked(pod: &Value, reason: &str) -> bool {
    condition(pod, "DisruptionTarget")["reason"] == reason
}

pub(crate) async fn that_are_tainted_or_lost_lose_their_pods(cluster: &Cluster) {
    let namespace = cluster.namespace("lost").await;
    let (node, path) = (&*namespace.name, format!("nodes/{}", namespace.name));
    let own = json!({"key": "e2e.evenkeel.dev/reserved", "effect": "NoSchedule"});
    let taints = |more: Option<Value>| {
        let all: Vec<Value> = std::iter::once(own.clone()).chain(more).collect();
        json!({"spec": {"taints": all}})
    };
    let mut body = taints(None);
    body["metadata"] = json!({"name": node});
    cluster.create("nodes", body).await;
    // The cluster is small.
    let ttl = "node.alpha.kubernetes.io/ttl";
    cluster.until(&path, |node| node["metadata"]["annotations"][ttl] == "0").await;

    for (name, bears) in
        [("never", None), ("briefly", Some(json!(3))), ("always", Some(Value::Null))]
    {
        namespace.create("pods", placed(name, node, bears)).await;
    }
    let out = json!({"key": "e2e.evenkeel.dev/out", "effect": "NoExecute"});
    cluster.patch(&path, taints(Some(out))).await;
    let reason = "DeletionByTaintManager";
    // No kubelet stops them, so they stay visible while they terminate.
    let goes =
        |pod: &Value| is_marked(pod, reason) && pod["metadata"]["deletionTimestamp"].is_string();
    namespace.until("pods/never", goes).await;
    assert!(namespace.get("pods/briefly").await["metadata"]["deletionTimestamp"].is_null());
    namespace.until("pods/briefly", goes).await;
    let stays = namespace.get("pods/always").await;
    assert!(stays["metadata"]["deletionTimestamp"].is_null(), "{stays:#}");

    cluster.delete(&path, "Background").await;
    cluster.sleep(Duration::from_secs(35)).await;
    assert_eq!(namespace.list("pods").await.len(), 3, "a node may come back");
    namespace.until_none("pods").await;
}

/// Names of the nodes that stop reporting. They accept no pods of other cases.
pub(crate) fn quiet() -> Vec<NodeOptions> {
    let mut nodes = NodeOptions::several(2, "quiet-", &["quiet"]);
    for (number, node) in (200..).zip(&mut nodes) {
        node.ip = Ipv4Addr::new(172, 18, 0, number);
        node.labels.push((QUIET_NODE.into(), "yes".into()));
        node.taints.push((QUIET_NODE.into(), String::new(), "NoSchedule".into()));
    }
    nodes
}

/// Number of nodes that accept every pod once they are Ready. All other nodes have taints of their own. The number cannot be
/// counted on the server, because new nodes temporarily have taints, too.
pub(crate) const OPEN: u32 = 3;

const QUIET_NODE: &str = "e2e.evenkeel.dev/quiet";

pub(crate) async fn that_fall_silent_lose_their_pods_to_others(cluster: &Cluster) {
    let namespace = cluster.namespace("silent").await;
    let leaves = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3});
    let mut web = deployment("web", 2, "app:v1");
    let template = &mut web["spec"]["template"]["spec"];
    template["nodeSelector"] = json!({QUIET_NODE: "yes"});
    template["tolerations"] = json!([
        {"key": QUIET_NODE, "operator": "Exists", "effect": "NoSchedule"},
        leaves("not-ready"),
        leaves("unreachable"),
    ]);
    namespace.create("deployments", web).await;
    namespace.until("deployments/web", |web| web["status"]["readyReplicas"] == 2).await;
    let pods = namespace.list("pods").await;
    let node = pods[0]["spec"]["nodeName"].as_str().expect("it is bound").to_owned();
    let lost: Vec<&str> =
        pods.iter().filter(|pod| pod["spec"]["nodeName"] == *node).map(name).collect();

    let path = format!("nodes/{node}");
    let silent =
        |value: Value| json!({"metadata": {"annotations": {"sim.evenkeel.dev/silent": value}}});
    cluster.patch(&path, silent(json!("true"))).await;
    cluster.sleep(Duration::from_secs(30)).await;
    let unknown =
        cluster.until(&path, |node| condition(node, "Ready")["status"] == "Unknown").await;
    for which in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let condition = condition(&unknown, which);
        assert_eq!(condition["status"], "Unknown", "{unknown:#}");
        assert_eq!(condition["reason"], "NodeStatusUnknown");
        assert_eq!(condition["message"], "Kubelet stopped posting node status.");
    }
    let unreachable = "node.kubernetes.io/unreachable";
    cluster.until(&path, |node| taints(node, "NoExecute") == [unreachable]).await;
    cluster.until(&path, |node| taints(node, "NoSchedule") == [QUIET_NODE, unreachable]).await;
    for pod in &lost {
        let path = format!("pods/{pod}");
        let goes = |pod: &Value| {
            condition(pod, "Ready")["status"] == "False"
                && is_marked(pod, "DeletionByTaintManager")
                && pod["metadata"]["deletionTimestamp"].is_string()
        };
        namespace.until(&path, goes).await;
        until_event(&namespace, pod, "NodeNotReady", "Node is not ready").await;
        until_event(&namespace, pod, "TaintManagerEviction", "Marking for deletion Pod").await;
    }
    let elsewhere = |pods: &Value| {
        let runs = |pod: &&Value| {
            pod["spec"]["nodeName"] != *node && condition(pod, "Ready")["status"] == "True"
        };
        items(pods).iter().filter(runs).count() == 2
    };
    namespace.until("pods", elsewhere).await;

    cluster.patch(&path, silent(Value::Null)).await;
    let is_well = |node: &Value| {
        condition(node, "Ready")["status"] == "True"
            && taints(node, "NoExecute").is_empty()
            && taints(node, "NoSchedule") == [QUIET_NODE]
    };
    cluster.until(&path, is_well).await;
    // The returning node now terminates the pods that it had to terminate.
    namespace.until("pods", |pods| items(pods).len() == 2 && elsewhere(pods)).await;
}

/// Ranges for the pod CIDRs of nodes. The first one is the range of the Services.
pub(crate) fn ranges() -> nodeipam::Options {
    nodeipam::Options {
        enabled: true,
        cluster: "10.244.0.0/16,fd00:10:244::/56".into(),
        services: "10.244.0.0/24".into(),
        ..nodeipam::Options::default()
    }
}

pub(crate) async fn get_ranges_of_addresses(cluster: &Cluster) {
    let own = json!({"key": "e2e.evenkeel.dev/reserved", "effect": "NoSchedule"});
    let has = json!(["10.244.200.0/24", "fd00:10:244:c8::/64"]);
    let theirs = json!({"metadata": {"name": "e2e-has-range"}, "spec": {
        "taints": [own], "podCIDR": has[0], "podCIDRs": has,
    }});
    cluster.create("nodes", theirs).await;
    let mut given = Vec::new();
    for name in ["e2e-range-a", "e2e-range-b"] {
        let node = json!({"metadata": {"name": name}, "spec": {"taints": [own]}});
        cluster.create("nodes", node).await;
        let path = format!("nodes/{name}");
        let node = cluster.until(&path, |node| !node["spec"]["podCIDR"].is_null()).await;
        let ranges = node["spec"]["podCIDRs"].as_array().expect("ranges").clone();
        assert_eq!(ranges[0], node["spec"]["podCIDR"]);
        let begins =
            |at: usize, with: &str| ranges[at].as_str().is_some_and(|r| r.starts_with(with));
        assert!(begins(0, "10.244.") && begins(1, "fd00:10:244:"), "{ranges:?}");
        given.extend(ranges);
    }
    given.sort_by_key(Value::to_string);
    given.dedup();
    assert_eq!(given.len(), 4, "each has its own: {given:?}");
    assert!(!given.contains(&json!("10.244.0.0/24")), "that is the services': {given:?}");
    assert_eq!(cluster.get("nodes/e2e-has-range").await["spec"]["podCIDRs"], has);
    for name in ["e2e-has-range", "e2e-range-a", "e2e-range-b"] {
        cluster.delete(&format!("nodes/{name}"), "Background").await;
    }
}
