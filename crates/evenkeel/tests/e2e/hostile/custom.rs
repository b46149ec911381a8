//! Invalid custom resources: with preserved unknown fields, only metadata is checked.

use super::objects::Bad;
use crate::cluster::{Cluster, condition};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAME: &str = "menaces.hostile.evenkeel.dev";
const VERSION: &str = "hostile.evenkeel.dev/v1";

/// Installs the CustomResourceDefinition of their kind.
pub(super) async fn define(cluster: &Cluster) {
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector"});
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": "hostile.evenkeel.dev",
            "scope": "Namespaced",
            "names": {"plural": "menaces", "singular": "menace", "kind": "Menace"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"scale": scale},
            }],
        },
    });
    cluster.create(DEFINITIONS, definition).await;
    let path = format!("{DEFINITIONS}/{NAME}");
    cluster
        .until(&path, |definition| condition(definition, "Established")["status"] == "True")
        .await;
    cluster.until("/apis/hostile.evenkeel.dev/v1/menaces", |list| !list.is_null()).await;
}

/// Deletes the CustomResourceDefinition, and with it all remaining objects.
pub(super) async fn undefine(cluster: &Cluster) {
    let path = format!("{DEFINITIONS}/{NAME}");
    cluster.delete(&path, "Background").await;
    cluster.until(&path, Value::is_null).await;
}

/// Returns the invalid objects, and pods and ReplicaSets that they own.
pub(super) fn bad(namespace: &str) -> Vec<Bad> {
    let owned_by = |version: &str, kind: &str, name: &str, uid: usize| {
        let of_kind = json!({"apiVersion": version, "kind": kind, "name": name});
        let mut owner = of_kind;
        owner["uid"] = uid_of(uid).into();
        owner
    };
    let menace = |name: &str, uid: usize| owned_by(VERSION, "Menace", name, uid);
    let mut controlling = menace("menace-controls", 7);
    controlling["controller"] = true.into();
    let deep = (0..40).fold(json!("the end"), |inside, _| json!({"spec": [inside]}));
    let huge = "x".repeat(200_000);
    let table = [
        (
            "menace-of-other-types",
            json!({}),
            json!({"spec": [1, "two", null], "status": "nothing"}),
        ),
        (
            "menace-without-numbers",
            json!({}),
            json!({"spec": {"replicas": "many", "selector": 5}, "status": {"replicas": {}}}),
        ),
        (
            "menace-of-conditions",
            json!({}),
            json!({"status": {"conditions": "True", "selector": {"a": 1}}}),
        ),
        ("menace-of-depth", json!({}), deep),
        (
            "menace-of-itself",
            json!({"ownerReferences": [menace("menace-of-itself", 5)]}),
            json!({}),
        ),
        ("menace-of-huge-annotations", json!({"annotations": {"huge": huge}}), json!({})),
        ("menace-controls", json!({}), json!({"spec": {"replicas": -1}})),
        (
            "menace-of-a-circle",
            json!({"ownerReferences": [menace("menace-of-the-other-arc", 9)]}),
            json!({}),
        ),
        (
            "menace-of-the-other-arc",
            json!({"ownerReferences": [menace("menace-of-a-circle", 8)]}),
            json!({}),
        ),
        (
            "menace-of-no-kind",
            json!({"ownerReferences": [owned_by("nobody.knows/v7", "Such", "such", 99)]}),
            json!({}),
        ),
        (
            "menace-of-no-version",
            json!({"ownerReferences": [owned_by("hostile.evenkeel.dev/v9", "Menace", "menace-controls", 7)]}),
            json!({}),
        ),
        (
            "menace-held",
            json!({"finalizers": ["nobody.knows/this"], "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}),
            json!({}),
        ),
    ];
    let mut all: Vec<Bad> = Vec::new();
    for (at, (name, metadata, rest)) in table.into_iter().enumerate() {
        let mut object = rest;
        (object["apiVersion"], object["kind"]) = (VERSION.into(), "Menace".into());
        let path = format!("/apis/{VERSION}/namespaces/{namespace}/menaces");
        let key = format!("hostile.evenkeel.dev/menaces/{namespace}/{name}");
        all.push(made(path, key, name, namespace, at + 1, &metadata, object));
    }
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "spec": crate::objects::pod_spec("app:v1")});
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let key = format!("pods/{namespace}/menace-pod");
    let owned = json!({"ownerReferences": [controlling], "labels": {"app": "menace"}});
    all.push(made(path, key, "menace-pod", namespace, 50, &owned, pod));
    all
}

fn uid_of(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn made(
    collection: String,
    key: String,
    name: &str,
    namespace: &str,
    uid: usize,
    metadata: &Value,
    mut object: Value,
) -> Bad {
    let mut whole = json!({
        "name": name, "namespace": namespace, "uid": uid_of(uid), "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    for (field, value) in metadata.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    object["metadata"] = whole;
    // Owners are named by uid.
    Bad { collection, key, object, as_it_is: true }
}
