//! Nodes' taints.

use crate::cluster::Cluster;
use serde_json::{Value, json};

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
