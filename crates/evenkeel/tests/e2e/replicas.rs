//! ReplicaSets and ReplicationControllers without an owner.

use crate::{
    cluster::{Cluster, items, name},
    objects::{pod, replica_set, replicas, replication_controller},
    pods::{is_active, is_ready},
};
use serde_json::{Value, json};
use std::time::Duration;

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
        let owner = namespace.create(resource, made(resource, 2)).await;
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

fn made(resource: &str, count: u32) -> Value {
    match resource {
        "replicasets" => replica_set("web", count, "app:v1"),
        _ => replication_controller("web", count, "app:v1"),
    }
}

pub(crate) async fn cheap_pods_go_first(cluster: &Cluster) {
    for resource in ["replicasets", "replicationcontrollers"] {
        let namespace = cluster.namespace("cost").await;
        let path = format!("{resource}/web");
        namespace.create(resource, made(resource, 4)).await;
        namespace.until(&path, |owner| owner["status"]["readyReplicas"] == 4).await;
        let pods: Vec<_> =
            namespace.list("pods").await.iter().map(|pod| name(pod).to_owned()).collect();
        for (pod, cost) in pods.iter().zip(["10", "-5", "7", "100"]) {
            let cost = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}});
            namespace.patch(&format!("pods/{pod}"), cost).await;
        }
        // A controller ranks pods by the state that it has observed.
        cluster.sleep(Duration::from_secs(1)).await;
        for (count, gone) in [(3, &pods[1]), (2, &pods[2]), (1, &pods[0])] {
            namespace.patch(&path, replicas(count)).await;
            namespace.until("pods", |pods| items(pods).len() == count as usize).await;
            assert!(
                namespace.get(&format!("pods/{gone}")).await.is_null(),
                "{resource}: {gone} goes at {count}"
            );
            namespace.until(&path, |owner| owner["status"]["replicas"] == count).await;
        }
    }
}

pub(crate) async fn lost_pods_are_replaced(cluster: &Cluster) {
    for resource in ["replicasets", "replicationcontrollers"] {
        let namespace = cluster.namespace("lost").await;
        let path = format!("{resource}/web");
        namespace.create(resource, made(resource, 3)).await;
        let owner = namespace.until(&path, |owner| owner["status"]["readyReplicas"] == 3).await;
        let mut status = json!({
            "observedGeneration": 1, "replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3,
        });
        if resource == "replicasets" {
            status["terminatingReplicas"] = json!(0);
        }
        assert_eq!(owner["status"], status, "{resource}");
        let pods = namespace.list("pods").await;
        let (first, second) = (name(&pods[0]), name(&pods[1]));
        namespace.delete(&format!("pods/{first}"), "Background").await;
        let ended = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        namespace.patch(&format!("pods/{second}/status"), ended).await;
        namespace
            .until("pods", |pods| {
                let active = items(pods).iter().filter(|pod| is_active(pod));
                active
                    .filter(|pod| name(pod) != first && name(pod) != second && is_ready(pod))
                    .count()
                    == 3
            })
            .await;
        assert_eq!(
            namespace.get(&format!("pods/{second}")).await["status"]["phase"],
            "Failed",
            "{resource}: it stays to be looked at"
        );
        namespace
            .until(&path, |owner| {
                owner["status"]["replicas"] == 3 && owner["status"]["readyReplicas"] == 3
            })
            .await;
    }
}
