//! Copies of an embedded server's objects.

use crate::fixtures::{deployment, node, scenario};
use evenkeel_apiserver::{Server, User};
use evenkeel_runtime::{client::Client, clock::Clock};
use evenkeel_whatif::{
    clone::{CloneOptions, Cloned, read},
    report, simulate,
};
use serde_json::{Value, json};

/// Returns a server with a custom resource, a Secret, 1,100 ConfigMaps, a node, and a Deployment.
async fn server() -> Server {
    let server = Server::builder().seed(1).build().await.expect("a server");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
        },
        "status": {
            "acceptedNames": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"},
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": ""},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": ""}
            ],
            "storedVersions": ["v1"]
        }
    });
    let named = |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}});
    let mut secret = named("v1", "Secret", "password");
    secret["data"] = json!({"password": "aHVudGVyMg=="});
    let mut objects = vec![
        definition,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        secret,
        named("example.com/v1", "Gadget", "one"),
        named("coordination.k8s.io/v1", "Lease", "leader"),
        node("a", "z1"),
        deployment("web", 1, "100m"),
    ];
    objects.extend((0..1100).map(|index| named("v1", "ConfigMap", &format!("map-{index:04}"))));
    assert_eq!(server.load(objects).await.expect("loaded"), Vec::<Value>::new());
    server
}

async fn copy(server: &Server, user: Option<User>) -> Cloned {
    let service = user.map_or_else(|| server.service(), |user| server.service_as(user));
    let client = Client::new(kube::Client::new(service, "default"), Clock::system());
    read(&client, &CloneOptions::default()).await.expect("a copy")
}

fn named<'a>(cloned: &'a Cloned, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    cloned.cluster.objects().iter().filter(move |object| object["kind"] == kind)
}

#[tokio::test]
async fn a_copy_has_all_pages_and_custom_resources_without_secrets() {
    let cloned = copy(&server().await, None).await;
    assert_eq!(cloned.skipped, []);
    let maps = named(&cloned, "ConfigMap").filter(|map| map["metadata"]["namespace"] == "shop");
    assert_eq!(maps.count(), 1100);
    assert_eq!(named(&cloned, "Gadget").count(), 1);
    assert_eq!(named(&cloned, "Lease").count(), 0);
    assert!(!cloned.cluster.to_json().contains("aHVudGVyMg=="));
    let node = named(&cloned, "Node").next().expect("the node");
    assert_eq!(node["metadata"]["uid"], "uid-a");
    assert_eq!(node["apiVersion"], "v1");
    assert!(node["metadata"].get("managedFields").is_none());
}

#[tokio::test]
async fn resources_that_one_may_not_list_are_skipped() {
    let server = server().await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "viewer"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]
    });
    server.load(vec![role, binding]).await.expect("loaded");
    let cloned = copy(&server, Some(User::authenticated("ann", ["devs"]))).await;
    assert_eq!(named(&cloned, "Node").count(), 1);
    assert_eq!(cloned.cluster.objects().len(), 1);
    let secrets = cloned.skipped.iter().find(|skipped| skipped.resource == "secrets");
    assert!(secrets.expect("named").reason.contains("forbidden"));
    assert!(cloned.skipped.iter().any(|skipped| skipped.resource == "deployments.apps"));
}

#[test]
fn a_copy_can_be_simulated() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let cloned = runtime.block_on(async { copy(&server().await, None).await });
    drop(runtime);
    let recording = simulate(&cloned.cluster, &scenario(10)).expect("a recording");
    assert_eq!(recording.remarks, Vec::<String>::new());
    let placements = report(&recording).placements;
    assert_eq!((&*placements[0].workload, placements.len()), ("Deployment shop/web", 1));
}
