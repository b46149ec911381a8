//! Deployments, from creation to the deletion of the last old pod.

use crate::world::World;
use evenkeel_api::{
    View,
    views::{Deployment, Namespace, Pod, ReplicaSet},
};
use evenkeel_runtime::client::DeleteOptions;
use serde_json::{Value, json};

const WEB: &str = "/apis/apps/v1/namespaces/ns/deployments/web";

fn web(replicas: i32, strategy: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": replicas, "strategy": strategy, "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } },
                "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "one" }] } } },
    })
}

fn image(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } } })
}

async fn sizes(world: &World) -> Vec<i32> {
    let mut sets: Vec<ReplicaSet> = world.list().await;
    sets.sort_by_key(|set| {
        (
            set.meta.creation,
            set.meta.annotations.get("deployment.kubernetes.io/revision").map(str::to_owned),
        )
    });
    sets.iter().map(|set| set.spec.replicas.unwrap()).collect()
}

async fn deployment(world: &World) -> Deployment {
    world.list().await.remove(0)
}

#[tokio::test(start_paused = true)]
async fn rollout_and_scaling() {
    let world = World::start().await;
    world.create("/apis/apps/v1/namespaces/ns/deployments", &web(3, &json!({}))).await;
    world.settle().await;
    assert_eq!(world.list::<Pod>().await.len(), 3);
    assert_eq!(deployment(&world).await.status.available_replicas, 3);

    world.merge(WEB, &image("two")).await;
    world.settle().await;
    assert_eq!(sizes(&world).await, [0, 3]);
    let pods = world.list::<Pod>().await;
    assert!(pods.iter().all(|pod| &*pod.spec.containers[0].image == "two") && pods.len() == 3);
    let status = deployment(&world).await.status;
    assert_eq!((status.updated_replicas, status.unavailable_replicas), (3, 0));
    assert_eq!(status.terminating_replicas, Some(0));
    let reasons: Vec<_> = status.conditions.iter().map(|c| &*c.reason).collect();
    assert_eq!(reasons, ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]);

    world.merge(WEB, &json!({ "spec": { "replicas": 1 } })).await;
    world.settle().await;
    assert_eq!(sizes(&world).await, [0, 1]);
    assert_eq!(world.list::<Pod>().await.len(), 1);
    let scaled =
        world.events().await.iter().filter(|event| event.contains("ScalingReplicaSet")).count();
    assert_eq!(scaled, 8);
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_reports_no_replica_set_error() {
    let world = World::start().await;
    world.create("/apis/apps/v1/namespaces/ns/deployments", &web(3, &json!({}))).await;
    world.settle().await;
    let before = deployment(&world).await.status;
    let delete = DeleteOptions::default();
    world.client.delete(&Namespace::kind(), "", "ns", &delete).await.unwrap();
    world.merge(WEB, &image("two")).await;
    world.settle().await;
    assert_eq!(sizes(&world).await, [3]);
    assert_eq!(deployment(&world).await.status, before);
    assert!(!world.events().await.iter().any(|event| event.contains("ReplicaSetCreateError")));
}

#[tokio::test(start_paused = true)]
async fn recreate_and_rollback() {
    let world = World::start().await;
    world
        .create("/apis/apps/v1/namespaces/ns/deployments", &web(2, &json!({ "type": "Recreate" })))
        .await;
    world.settle().await;
    world.merge(WEB, &image("two")).await;
    world.settle().await;
    assert_eq!(sizes(&world).await, [0, 2]);
    let back =
        json!({ "metadata": { "annotations": { "deprecated.deployment.rollback.to": "1" } } });
    world.merge(WEB, &back).await;
    world.settle().await;
    assert_eq!(sizes(&world).await.len(), 2);
    let pods = world.list::<Pod>().await;
    assert!(pods.iter().all(|pod| &*pod.spec.containers[0].image == "one") && pods.len() == 2);
    let annotations = deployment(&world).await.meta.annotations;
    assert_eq!(
        annotations.iter().collect::<Vec<_>>(),
        [("deployment.kubernetes.io/revision", "3")]
    );
    let event =
        "Normal DeploymentRollback: Rolled back deployment \"web\" to revision 1".to_owned();
    assert!(world.events().await.contains(&event));
}

#[tokio::test(start_paused = true)]
async fn progress_deadline_and_pause() {
    let world = World::start().await;
    let mut stuck = web(1, &json!({}));
    stuck["spec"]["progressDeadlineSeconds"] = json!(60);
    world.create("/apis/apps/v1/namespaces/ns/deployments", &stuck).await;
    // No pod ever runs.
    tokio::time::sleep(std::time::Duration::from_secs(120)).await;
    let reason = |deployment: &Deployment| {
        deployment
            .status
            .conditions
            .iter()
            .find(|c| &*c.type_ == "Progressing")
            .map(|c| c.reason.to_string())
    };
    assert_eq!(reason(&deployment(&world).await).as_deref(), Some("ProgressDeadlineExceeded"));
    world.settle().await;
    assert_eq!(reason(&deployment(&world).await).as_deref(), Some("NewReplicaSetAvailable"));
    world.merge(WEB, &json!({ "spec": { "paused": true } })).await;
    world.merge(WEB, &image("two")).await;
    world.settle().await;
    assert_eq!(reason(&deployment(&world).await).as_deref(), Some("DeploymentPaused"));
    assert_eq!(sizes(&world).await, [1]);
}
