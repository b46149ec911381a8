//! Malformed objects in the store do not affect other objects.

use crate::{
    cluster::{Cluster, name},
    deployment::settled,
    objects::{deployment, image, owned_by, replica_set, replicas, replication_controller},
};
use serde_json::{Value, json};

pub(crate) async fn annotations_of_controllers_are_not_trusted(cluster: &Cluster) {
    let namespace = cluster.namespace("nonsense").await;
    let mut made = deployment("web", 2, "app:v1");
    made["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "first"});
    namespace.create("deployments", made).await;
    settled(&namespace, "web", 2).await;
    let set = name(&namespace.list("replicasets").await[0]).to_owned();
    let nonsense = json!({"metadata": {"annotations": {
        "deployment.kubernetes.io/revision": "9223372036854775808",
        "deployment.kubernetes.io/desired-replicas": "many",
        "deployment.kubernetes.io/max-replicas": "-1.5",
        "deployment.kubernetes.io/revision-history": ",,x",
    }}});
    namespace.patch(&format!("replicasets/{set}"), nonsense).await;
    namespace.patch("deployments/web", replicas(3)).await;
    settled(&namespace, "web", 3).await;
    namespace.patch("deployments/web", image("app:v2")).await;
    settled(&namespace, "web", 3).await;
    namespace.patch("deployments/web", image("app:v1")).await;
    settled(&namespace, "web", 3).await;
}

pub(crate) async fn selectors_that_overlap_do_no_harm(cluster: &Cluster) {
    let namespace = cluster.namespace("overlap").await;
    let mut twin = deployment("twin", 2, "app:v1");
    let same = json!({"app": "web"});
    twin["spec"]["selector"]["matchLabels"] = same.clone();
    twin["spec"]["template"]["metadata"]["labels"] = same;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    namespace.create("deployments", twin).await;
    let mut set = replica_set("set", 2, "app:v1");
    set["spec"]["selector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    set["spec"]["template"]["metadata"]["labels"] = json!({"app": "web"});
    namespace.create("replicasets", set).await;
    namespace.create("replicationcontrollers", replication_controller("web", 2, "app:v1")).await;
    settled(&namespace, "web", 2).await;
    settled(&namespace, "twin", 2).await;
    for path in ["replicasets/set", "replicationcontrollers/web"] {
        namespace.until(path, |owner| owner["status"]["readyReplicas"] == 2).await;
    }
    assert_eq!(namespace.list("pods").await.len(), 8, "nobody takes what another controls");
}

/// The objects bypass the API server's checks, as if an older or incorrect server had written them.
pub(crate) async fn stored_objects_that_no_server_admits(cluster: &Cluster) {
    let namespace = cluster.namespace("malformed").await;
    let owner = namespace.create("configmaps", json!({"metadata": {"name": "owner"}})).await;
    let mut owner = owned_by(&owner, true);
    (owner["apiVersion"], owner["kind"]) = (json!("v1"), json!("ConfigMap"));
    let selector =
        json!({"matchExpressions": [{"key": "a b", "operator": "Perhaps", "values": ["?!"]}]});
    let bad = |kind: &str, api_version: &str, selector: &Value, number: u32| {
        let mut object = match kind {
            "Deployment" => deployment("bad", 2, "app:v1"),
            _ => replica_set("bad", 2, "app:v1"),
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["spec"]["selector"] = selector.clone();
        let metadata = json!({
            "name": "bad", "namespace": namespace.name, "generation": 1,
            "uid": format!("00000000-0000-4000-9000-00000000000{number}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [owner, {"apiVersion": "", "kind": "", "name": "", "uid": ""}],
        });
        object["metadata"] = metadata;
        object
    };
    cluster
        .store(
            &format!("deployments/{}/bad", namespace.name),
            &bad("Deployment", "apps/v1", &selector, 1),
        )
        .await;
    cluster
        .store(
            &format!("replicasets/{}/bad", namespace.name),
            &bad("ReplicaSet", "apps/v1", &selector, 2),
        )
        .await;
    let anything = json!({"no such": "label, surely!"});
    let rc = bad("ReplicationController", "v1", &anything, 3);
    cluster.store(&format!("controllers/{}/bad", namespace.name), &rc).await;
    for path in ["deployments/bad", "replicasets/bad", "replicationcontrollers/bad"] {
        assert!(!namespace.get(path).await.is_null(), "{path} is served");
    }
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    settled(&namespace, "web", 2).await;
    namespace.patch("deployments/web", image("app:v2")).await;
    settled(&namespace, "web", 2).await;
    for resource in ["replicasets", "replicationcontrollers"] {
        let made = match resource {
            "replicasets" => replica_set("good", 2, "app:v1"),
            _ => replication_controller("good-rc", 2, "app:v1"),
        };
        let path = format!("{resource}/{}", name(&made));
        namespace.create(resource, made).await;
        namespace.until(&path, |owner| owner["status"]["readyReplicas"] == 2).await;
    }
    let path = format!("namespaces/{}", namespace.name);
    cluster.delete(&path, "Background").await;
    cluster.until(&path, Value::is_null).await;
}
