//! ReplicaSets and ReplicationControllers over the server.

use crate::world::World;
use evenkeel_api::views::{Pod, ReplicaSet, ReplicationController};
use serde_json::{Value, json};

fn template() -> Value {
    json!({ "metadata": { "labels": { "app": "web" } },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "one" }] } })
}

fn pod(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": "web" } },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "one" }] } })
}

#[tokio::test(start_paused = true)]
async fn replication_controller_adopts_creates_and_releases() {
    let world = World::start().await;
    world.create("/api/v1/namespaces/ns/pods", &pod("orphan")).await;
    let controller = json!({ "apiVersion": "v1", "kind": "ReplicationController", "metadata": { "name": "web" },
        "spec": { "replicas": 2, "selector": { "app": "web" }, "template": template() } });
    world.create("/api/v1/namespaces/ns/replicationcontrollers", &controller).await;
    world.settle().await;
    let pods = world.list::<Pod>().await;
    assert_eq!(pods.len(), 2);
    assert!(pods.iter().all(|pod| pod.meta.controller().is_some()));

    world
        .merge(
            "/api/v1/namespaces/ns/pods/orphan",
            &json!({ "metadata": { "labels": { "app": "other" } } }),
        )
        .await;
    world.settle().await;
    let pods = world.list::<Pod>().await;
    let orphan = pods.iter().find(|pod| &*pod.meta.name == "orphan").unwrap();
    assert_eq!(orphan.meta.controller(), None);
    assert_eq!(pods.len(), 3);
    let status = world.list::<ReplicationController>().await.remove(0).status;
    assert_eq!((status.replicas, status.available_replicas, status.observed_generation), (2, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn min_ready_seconds_delays_availability() {
    let world = World::start().await;
    let set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web" },
        "spec": { "replicas": 2, "minReadySeconds": 600, "selector": { "matchLabels": { "app": "web" } },
            "template": template() } });
    world.create("/apis/apps/v1/namespaces/ns/replicasets", &set).await;
    world.settle().await;
    let status = world.list::<ReplicaSet>().await.remove(0).status;
    assert_eq!((status.ready_replicas, status.available_replicas), (2, 0));
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let status = world.list::<ReplicaSet>().await.remove(0).status;
    assert_eq!((status.ready_replicas, status.available_replicas), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn pod_with_the_lowest_deletion_cost_is_deleted_first() {
    let world = World::start().await;
    let set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web" },
        "spec": { "replicas": 4, "selector": { "matchLabels": { "app": "web" } }, "template": template() } });
    world.create("/apis/apps/v1/namespaces/ns/replicasets", &set).await;
    world.settle().await;
    let cheap = world.list::<Pod>().await.remove(2).meta.name;
    let cost = json!({ "metadata": { "annotations": { "controller.kubernetes.io/pod-deletion-cost": "-5" } } });
    world.merge(&format!("/api/v1/namespaces/ns/pods/{cheap}"), &cost).await;
    world
        .merge("/apis/apps/v1/namespaces/ns/replicasets/web", &json!({ "spec": { "replicas": 3 } }))
        .await;
    world.settle().await;
    let pods = world.list::<Pod>().await;
    assert_eq!(pods.len(), 3);
    assert!(pods.iter().all(|pod| pod.meta.name != cheap));
    assert!(
        world.events().await.contains(&format!("Normal SuccessfulDelete: Deleted pod: {cheap}"))
    );
}
