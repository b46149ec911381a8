//! Nodes' taints, and the pods of nodes that go.

use crate::{
    cluster::{Cluster, condition},
    objects::pod,
};
use serde_json::{Value, json};
use std::time::Duration;

const NODE: &str = "nodes/e2e-taints";

/// Keys of the node's taints, in order.
fn taints(node: &Value) -> Vec<&str> {
    let taints = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    let mut keys: Vec<_> = taints.iter().filter_map(|taint| taint["key"].as_str()).collect();
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
    // A node that nothing simulates, and that takes no pods of others.
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
        let node = cluster.until(NODE, |node| taints(node) == wanted).await;
        let all = node["spec"]["taints"].as_array().expect("taints");
        assert!(all.iter().all(|taint| taint["effect"] == "NoSchedule"), "{all:?}");
    }
    cluster.patch(NODE, json!({"spec": {"unschedulable": true}})).await;
    cluster
        .until(NODE, |node| taints(node) == [reserved, "node.kubernetes.io/unschedulable"])
        .await;
    cluster.patch(NODE, json!({"spec": {"unschedulable": null}})).await;
    cluster.until(NODE, |node| taints(node) == [reserved]).await;
    cluster.delete(NODE, "Background").await;
}

/// A pod on this node, which it was not scheduled to.
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
    // Nobody stops them, so that they stay for all to see.
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
