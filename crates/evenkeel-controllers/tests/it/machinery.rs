//! Controllers of the API machinery, and of kinds that the server does not have. CustomResourceDefinitions replace these kinds.

use crate::world::World;
use serde_json::{Value, json};
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const POD_GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups";

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Returns a CustomResourceDefinition whose objects have a status, and a spec with this schema.
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

/// Returns a policy on a resource with one validation.
fn policy(name: &str, [group, resource]: [&str; 2], expression: &str) -> Value {
    let rule = json!({
        "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["*"],
    });
    json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}],
    }})
}

/// Returns the generation that was checked, and the warnings.
async fn type_checking(world: &World, name: &str) -> (i64, Vec<String>) {
    let policy = world.get(&format!("{POLICIES}/{name}")).await.unwrap();
    let status = &policy["status"];
    let warnings = status["typeChecking"]["expressionWarnings"].as_array().into_iter().flatten();
    let text = |one: &Value| {
        format!("{} {}", one["fieldRef"].as_str().unwrap(), one["warning"].as_str().unwrap())
    };
    (status["observedGeneration"].as_i64().unwrap(), warnings.map(text).collect())
}

#[tokio::test(start_paused = true)]
async fn expressions_of_policies_are_type_checked() {
    let world = World::with(&["validatingadmissionpolicy-status-controller"]).await;
    let deployments = ["apps", "deployments"];
    world.create(POLICIES, &policy("right", deployments, "object.spec.replicas > 1")).await;
    world.create(POLICIES, &policy("wrong", deployments, "object.spec.replicas > '1'")).await;
    // The schema of a container is found through several references.
    let image = "object.spec.template.spec.containers.all(c, c.image > 1)";
    world.create(POLICIES, &policy("deep", deployments, image)).await;
    pass(10).await;
    assert_eq!(type_checking(&world, "right").await, (1, vec![]));
    let mismatch = "found no matching overload for '_>_' applied to";
    assert_eq!(
        type_checking(&world, "wrong").await,
        (
            1,
            vec![format!(
                "spec.validations[0].expression apps/v1, Kind=Deployment: ERROR: <input>:1:22: {mismatch} \
             '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n"
            )]
        )
    );
    let (_, deep) = type_checking(&world, "deep").await;
    assert!(
        deep.len() == 1 && deep[0].contains(&format!("{mismatch} '(string, int)'")),
        "{deep:?}"
    );
    let right = world.get(&format!("{POLICIES}/right")).await.unwrap();
    assert_eq!(right["status"]["typeChecking"], json!({}));
    let managers = right["metadata"]["managedFields"].as_array().unwrap();
    let of_status: Vec<&Value> =
        managers.iter().filter(|one| one["subresource"] == "status").collect();
    assert_eq!(of_status.len(), 1);
    assert_eq!(of_status[0]["manager"], "validatingadmissionpolicy-status");
    assert_eq!(of_status[0]["operation"], "Apply");

    // Each generation is checked again: warnings appear and disappear.
    for (generation, expression, n_warnings) in [(2, "object.nope == 1", 1), (3, "true", 0)] {
        let change = json!({"spec": {"validations": [{"expression": expression}]}});
        world.merge(&format!("{POLICIES}/right"), &change).await;
        pass(10).await;
        let (checked, warnings) = type_checking(&world, "right").await;
        assert_eq!((checked, warnings.len()), (generation, n_warnings), "{warnings:?}");
    }
    let version = |policy: Value| policy["metadata"]["resourceVersion"].clone();
    let before = version(world.get(&format!("{POLICIES}/right")).await.unwrap());
    pass(3600).await;
    assert_eq!(version(world.get(&format!("{POLICIES}/right")).await.unwrap()), before);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_type_checked() {
    let world = World::with(&["validatingadmissionpolicy-status-controller"]).await;
    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let crontab = definition("stable.example.com", "v1", "CronTab", "Namespaced", &spec);
    world.create(DEFINITIONS, &crontab).await;
    pass(60).await;
    let crontabs = ["stable.example.com", "crontabs"];
    let metadata = "object.metadata.labels['a'] == 'b'";
    for (name, expression) in [
        ("right", "object.spec.replicas > 1"),
        ("metadata", metadata),
        ("wrong", "object.spec.replicas > '1'"),
        ("unknown", "object.spec.nope == 1"),
    ] {
        world.create(POLICIES, &policy(name, crontabs, expression)).await;
    }
    pass(10).await;
    assert_eq!(type_checking(&world, "right").await, (1, vec![]));
    assert_eq!(type_checking(&world, "metadata").await, (1, vec![]));
    let (_, wrong) = type_checking(&world, "wrong").await;
    assert!(wrong[0].contains("stable.example.com/v1, Kind=CronTab: ERROR"), "{wrong:?}");
    let (_, unknown) = type_checking(&world, "unknown").await;
    assert!(unknown[0].contains("undefined field 'nope'"), "{unknown:?}");
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
