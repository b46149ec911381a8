//! Pods that are unschedulable at first.

use crate::{
    cluster::{Cluster, condition},
    deployment::until_event,
    objects::pod,
};
use serde_json::{Value, json};

const NODE: &str = "nodes/e2e-late";

pub(crate) async fn waits_for_a_node_that_fits(cluster: &Cluster) {
    let namespace = cluster.namespace("waiting").await;
    let mut made = pod("picky", &json!({}), "app:v1");
    made["spec"]["nodeSelector"] = json!({"e2e.evenkeel.dev/late": "yes"});
    made["spec"]["tolerations"] = json!([{"key": "e2e.evenkeel.dev/late", "operator": "Exists"}]);
    namespace.create("pods", made).await;
    let waiting = namespace
        .until("pods/picky", |pod| condition(pod, "PodScheduled")["status"] == "False")
        .await;
    let why = condition(&waiting, "PodScheduled");
    assert_eq!(
        (&why["reason"], &waiting["status"]["phase"]),
        (&json!("Unschedulable"), &json!("Pending"))
    );
    let message = "node(s) didn't match Pod's node affinity/selector";
    assert!(
        why["message"].as_str().is_some_and(|why| why.starts_with("0/") && why.contains(message)),
        "{why}"
    );
    until_event(&namespace, "picky", "FailedScheduling", message).await;

    // Only this pod tolerates the node's taint, and no other pod runs on the node.
    let taint = json!({"key": "e2e.evenkeel.dev/late", "effect": "NoSchedule"});
    let node = json!({
        "metadata": {"name": "e2e-late", "labels": {"e2e.evenkeel.dev/late": "yes"}},
        "spec": {"taints": [taint]},
    });
    cluster.create("nodes", node).await;
    let status = json!({"status": {
        "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "1"},
        "capacity": {"cpu": "1", "memory": "1Gi", "pods": "1"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}],
    }});
    cluster.patch(&format!("{NODE}/status"), status).await;
    let bound = namespace.until("pods/picky", |pod| pod["spec"]["nodeName"] == "e2e-late").await;
    assert_eq!(condition(&bound, "PodScheduled")["status"], "True");
    until_event(&namespace, "picky", "Scheduled", "to e2e-late").await;

    // It is full now.
    let mut second = pod("late", &json!({}), "app:v1");
    second["spec"]["nodeSelector"] = json!({"e2e.evenkeel.dev/late": "yes"});
    second["spec"]["tolerations"] = json!([{"key": "e2e.evenkeel.dev/late", "operator": "Exists"}]);
    namespace.create("pods", second).await;
    until_event(&namespace, "late", "FailedScheduling", "Too many pods").await;
    namespace.ask("DELETE", "pods/picky", json!({"gracePeriodSeconds": 0})).await.expect("deleted");
    namespace.until("pods/late", |pod| pod["spec"]["nodeName"] == "e2e-late").await;
    namespace.ask("DELETE", "pods/late", json!({"gracePeriodSeconds": 0})).await.expect("deleted");
    namespace.until("pods/late", Value::is_null).await;
    cluster.delete(NODE, "Background").await;
}
