//! DaemonSets: a pod on each node.

use crate::{
    cluster::{Cluster, Namespace, items},
    nodes::OPEN,
    objects::{image, pod_spec},
    pods::{Pods, image as image_of, is_active, is_ready},
};
use serde_json::{Value, json};

fn daemon_set(rolling: &Value) -> Value {
    json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "log"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {"metadata": {"labels": {"app": "log"}}, "spec": pod_spec("app:v1")},
        },
    })
}

fn one_by_one() -> Value {
    json!({"maxUnavailable": 1, "maxSurge": 0})
}

/// Waits until a pod of the latest revision is available on each of `nodes` nodes.
async fn rolled_out(namespace: &Namespace<'_>, nodes: usize) {
    namespace
        .until("daemonsets/log", |set| {
            let status = &set["status"];
            status["observedGeneration"] == set["metadata"]["generation"]
                && status["desiredNumberScheduled"] == nodes
                && status["updatedNumberScheduled"] == nodes
                && status["numberAvailable"] == nodes
        })
        .await;
}

pub(crate) async fn runs_on_each_node_and_is_undone(cluster: &Cluster) {
    let namespace = cluster.namespace("daemons").await;
    let nodes = OPEN as usize;
    namespace.create("daemonsets", daemon_set(&one_by_one())).await;
    rolled_out(&namespace, nodes).await;
    let mut pods = Pods::watch(&namespace).await;
    namespace.patch("daemonsets/log", image("app:v2")).await;
    pods.until("all are new", |pods| {
        assert!(pods.active() <= nodes, "never two on a node");
        assert!(pods.ready() + 1 >= nodes, "one node at a time");
        pods.of_image("app:v2") == nodes && pods.ready() == nodes
    })
    .await;
    rolled_out(&namespace, nodes).await;
    namespace.patch("daemonsets/log", image("app:v1")).await;
    rolled_out(&namespace, nodes).await;
    let revisions = namespace.list("controllerrevisions").await;
    let mut numbers: Vec<_> =
        revisions.iter().map(|revision| revision["revision"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [Some(2), Some(3)]);
    let pods = namespace.list("pods").await;
    assert!(pods.iter().filter(|pod| is_active(pod)).all(|pod| image_of(pod) == "app:v1"));
}

pub(crate) async fn surges(cluster: &Cluster) {
    let namespace = cluster.namespace("surge").await;
    let nodes = OPEN as usize;
    namespace.create("daemonsets", daemon_set(&json!({"maxUnavailable": 0, "maxSurge": 1}))).await;
    rolled_out(&namespace, nodes).await;
    let mut pods = Pods::watch(&namespace).await;
    namespace.patch("daemonsets/log", image("app:v2")).await;
    pods.until("all are new", |pods| {
        assert!(pods.active() <= nodes + 1, "one more at most");
        assert!(pods.ready() >= nodes, "none less");
        pods.of_image("app:v2") == nodes && pods.active() == nodes
    })
    .await;
    rolled_out(&namespace, nodes).await;
}

pub(crate) async fn goes_where_nodes_say(cluster: &Cluster) {
    let namespace = cluster.namespace("chosen").await;
    let nodes = cluster.get("nodes").await;
    let node = items(&nodes)[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    let mut set = daemon_set(&one_by_one());
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({"e2e/logs": "yes"});
    namespace.create("daemonsets", set).await;
    namespace
        .until("daemonsets/log", |set| {
            set["status"]["observedGeneration"] == 1 && set["status"]["desiredNumberScheduled"] == 0
        })
        .await;
    let path = format!("nodes/{node}");
    cluster.patch(&path, json!({"metadata": {"labels": {"e2e/logs": "yes"}}})).await;
    rolled_out(&namespace, 1).await;
    let pods = namespace.until("pods", |pods| items(pods).iter().any(is_ready)).await;
    assert_eq!(items(&pods)[0]["spec"]["nodeName"], node.as_str());
    cluster.patch(&path, json!({"metadata": {"labels": {"e2e/logs": null}}})).await;
    namespace.until_none("pods").await;
}
