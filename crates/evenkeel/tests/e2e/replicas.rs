//! ReplicaSets and ReplicationControllers by themselves.

use crate::{
    cluster::{Cluster, items, name},
    objects::{pod, replica_set, replication_controller},
    pods::is_active,
};
use serde_json::{Value, json};

fn controller(pod: &Value) -> &Value {
    let owners = pod["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    owners
        .iter()
        .find(|owner| owner["controller"] == true)
        .map_or(&Value::Null, |owner| &owner["uid"])
}

pub(crate) async fn sets_adopt_and_release(cluster: &Cluster) {
    for resource in ["replicasets", "replicationcontrollers"] {
        let namespace = cluster.namespace("adopt").await;
        namespace.create("pods", pod("stray", &json!({"app": "web"}), "app:v0")).await;
        namespace.create("pods", pod("other", &json!({"app": "other"}), "app:v0")).await;
        let made = match resource {
            "replicasets" => replica_set("web", 2, "app:v1"),
            _ => replication_controller("web", 2, "app:v1"),
        };
        let owner = namespace.create(resource, made).await;
        let uid = &owner["metadata"]["uid"];
        let path = format!("{resource}/web");
        namespace.until(&path, |owner| owner["status"]["readyReplicas"] == 2).await;
        let stray = namespace.get("pods/stray").await;
        assert_eq!(controller(&stray), uid, "{resource}: a pod that matches is adopted");
        assert_eq!(stray["metadata"]["ownerReferences"][0]["kind"], owner["kind"]);
        assert_eq!(controller(&namespace.get("pods/other").await), &Value::Null);

        namespace.patch("pods/stray", json!({"metadata": {"labels": {"app": "free"}}})).await;
        namespace.until("pods/stray", |pod| controller(pod).is_null()).await;
        let pods = namespace
            .until("pods?labelSelector=app=web", |pods| {
                items(pods).iter().filter(|pod| controller(pod) == uid && is_active(pod)).count()
                    == 2
            })
            .await;
        assert!(items(&pods).iter().all(|pod| name(pod) != "stray"), "{resource}: it is replaced");
        assert!(is_active(&namespace.get("pods/stray").await), "{resource}: it lives on");
    }
}
