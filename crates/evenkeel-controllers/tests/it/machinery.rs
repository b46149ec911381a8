//! Controllers of the API's own machinery, and of kinds that the server does not have: definitions stand in for these.

use crate::world::World;
use serde_json::{Value, json};
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const POD_GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups";

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Returns a definition whose objects have a status, and a spec with this schema.
fn definition(group: &str, version: &str, kind: &str, scope: &str, spec: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    let annotations = json!({"api-approved.kubernetes.io": "unapproved, stands in for a test"});
    json!({
        "metadata": {"name": format!("{plural}.{group}"), "annotations": annotations},
        "spec": {
            "group": group, "scope": scope, "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn storage_versions_lose_the_entries_of_gone_servers() {
    let world = World::with(&["storageversion-garbage-collector-controller"]).await;
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let group = "internal.apiserver.k8s.io";
    let versions = definition(group, "v1alpha1", "StorageVersion", "Cluster", &free);
    world.create(DEFINITIONS, &versions).await;
    for (name, component) in [("a", "kube-apiserver"), ("other", "kube-scheduler")] {
        let labels = json!({"apiserver.kubernetes.io/identity": component});
        world.create(LEASES, &json!({"metadata": {"name": name, "labels": labels}})).await;
    }
    pass(60).await;
    let entry = |server: &str| {
        let version = if server == "a" { "apps/v1" } else { "apps/v1beta1" };
        json!({"apiServerID": server, "encodingVersion": version, "decodableVersions": [version]})
    };
    for (name, servers) in
        [("apps.deployments", &["a", "gone"][..]), ("apps.daemonsets", &["gone", "other"])]
    {
        let object = json!({
            "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
            "metadata": {"name": name}, "spec": {},
        });
        world.create(STORAGE_VERSIONS, &object).await;
        let entries: Vec<Value> = servers.iter().map(|server| entry(server)).collect();
        let status = json!({"status": {"storageVersions": entries}});
        world.merge(&format!("{STORAGE_VERSIONS}/{name}/status"), &status).await;
    }
    pass(60).await;
    assert_eq!(world.get(&format!("{STORAGE_VERSIONS}/apps.daemonsets")).await, None);
    let left = world.get(&format!("{STORAGE_VERSIONS}/apps.deployments")).await.unwrap();
    let status = &left["status"];
    assert_eq!(status["storageVersions"], json!([entry("a")]));
    assert_eq!(status["commonEncodingVersion"], "apps/v1");
    assert_eq!(status["conditions"][0]["type"], "AllEncodingVersionsEqual");
    assert_eq!(status["conditions"][0]["status"], "True");

    world.delete(&format!("{LEASES}/other"), &json!({})).await;
    pass(60).await;
    assert!(world.get(&format!("{STORAGE_VERSIONS}/apps.deployments")).await.is_some());
    world.delete(&format!("{LEASES}/a"), &json!({})).await;
    pass(60).await;
    assert_eq!(world.get(&format!("{STORAGE_VERSIONS}/apps.deployments")).await, None);
}

#[tokio::test(start_paused = true)]
async fn unused_pod_groups_are_deleted() {
    let world = World::with(&["podgroup-protection-controller"]).await;
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let groups = definition("scheduling.k8s.io", "v1beta1", "PodGroup", "Namespaced", &free);
    world.create(DEFINITIONS, &groups).await;
    pass(60).await;
    for (name, finalizers) in [
        ("unused", &["scheduling.k8s.io/podgroup-protection"][..]),
        ("held", &["scheduling.k8s.io/podgroup-protection", "example.com/held"]),
    ] {
        let group = json!({
            "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": {"name": name, "finalizers": finalizers},
            "spec": {"schedulingPolicy": {"basic": {}}},
        });
        world.create(POD_GROUPS, &group).await;
    }
    pass(60).await;
    let finalizers = async |name: &str| {
        let group = world.get(&format!("{POD_GROUPS}/{name}")).await;
        group.map(|group| group["metadata"]["finalizers"].as_array().map_or(0, Vec::len))
    };
    assert_eq!((finalizers("unused").await, finalizers("held").await), (Some(1), Some(2)));
    for name in ["unused", "held"] {
        world.delete(&format!("{POD_GROUPS}/{name}"), &json!({})).await;
    }
    pass(60).await;
    assert_eq!((finalizers("unused").await, finalizers("held").await), (None, Some(1)));
}
