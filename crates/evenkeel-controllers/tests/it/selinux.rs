//! Warnings about SELinux labels over the server.

use crate::world::World;
use serde_json::{Value, json};

const CLAIMS: &str = "/api/v1/namespaces/ns/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/ns/pods";
const DRIVER: &str = "/apis/storage.k8s.io/v1/csidrivers";

fn pod(name: &str, level: &str) -> Value {
    let container = json!({"name": "c", "image": "one", "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "securityContext": {"seLinuxOptions": {"level": level}}, "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
    }})
}

/// Returns a claim that is bound to a volume of a CSI driver.
async fn world_with_volume(mounts_with_label: bool) -> World {
    let world = World::with(&["selinux-warning-controller"]).await;
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.test"},
        "spec": {"seLinuxMount": mounts_with_label}});
    world.create(DRIVER, &driver).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": "v",
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    let claim = world.create(CLAIMS, &claim).await;
    let reference = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "ns", "name": "c",
        "uid": claim["metadata"]["uid"]});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
        "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "claimRef": reference,
        "csi": {"driver": "csi.test", "volumeHandle": "h"},
    }});
    world.create("/api/v1/persistentvolumes", &volume).await;
    world.merge(&format!("{CLAIMS}/c/status"), &json!({"status": {"phase": "Bound"}})).await;
    world
}

#[tokio::test(start_paused = true)]
async fn pods_with_different_labels_are_warned_if_the_driver_mounts_with_labels() {
    let world = world_with_volume(false).await;
    world.create(PODS, &pod("a", "s0:c1")).await;
    world.create(PODS, &pod("b", "s0:c2")).await;
    world.settle().await;
    assert_eq!(world.events().await, Vec::<String>::new());
    world.merge(&format!("{DRIVER}/csi.test"), &json!({"spec": {"seLinuxMount": true}})).await;
    world.settle().await;
    let end = "If both pods land on the same node, only one of them may access the volume.";
    let message = |label: &str, other: &str, other_label: &str| {
        format!(
            "Normal SELinuxLabelConflict: SELinuxLabel \":::{label}\" conflicts with pod {other} that uses the same volume as this pod with SELinuxLabel \":::{other_label}\". {end}"
        )
    };
    let events = world.events().await;
    assert!(events.contains(&message("s0:c1", "b", "s0:c2")), "{events:#?}");
    assert!(events.contains(&message("s0:c2", "a", "s0:c1")), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn pods_with_the_same_label_are_not_warned() {
    let world = world_with_volume(true).await;
    for name in ["a", "b"] {
        world.create(PODS, &pod(name, "s0:c1")).await;
    }
    world.settle().await;
    assert_eq!(world.events().await, Vec::<String>::new());
}
