//! A kubelet may only write its own node, and objects that belong to the node's pods.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_apiserver::{Server, User};
use http::StatusCode;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use crate::Client;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A server with the nodes `n1` and `n2`, each with a pod (`p1`, `p2`), and the first node's kubelet.
struct World {
    server: Server,
    admin: Client,
    kubelet: Client,
}

impl World {
    async fn start() -> Self {
        let server = Server::builder().build().await.expect("a server in memory");
        let admin = Client(server.service());
        let kubelet = kubelet(&server, "n1");
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        admin.make(accounts, json!({"metadata": {"name": "default"}})).await;
        for (node, pod) in [("n1", "p1"), ("n2", "p2")] {
            admin.make(NODES, json!({"metadata": {"name": node}})).await;
            admin.make(PODS, running(pod, node)).await;
        }
        Self { server, admin, kubelet }
    }

    async fn uid(&self, path: &str) -> Value {
        self.admin.get(path).await["metadata"]["uid"].clone()
    }

    /// Returns a mirror pod of the first node's kubelet.
    async fn mirror(&self) -> Value {
        let uid = self.uid("/api/v1/nodes/n1").await;
        json!({"metadata": {"name": "mirror", "annotations": {MIRROR: "x"}, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true}]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}})
    }
}

fn kubelet(server: &Server, node: &str) -> Client {
    let user = User::authenticated(&format!("system:node:{node}"), ["system:nodes"]);
    Client(server.service_as(user))
}

fn running(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}

/// Asserts a 403 whose message ends in these words.
#[track_caller]
fn refused(answer: &(StatusCode, Value), words: &str) {
    let message = answer.1["message"].as_str().unwrap_or_default();
    assert!(message.ends_with(words), "{words}: {}", answer.1);
    assert_eq!((answer.0, &answer.1["reason"]), (StatusCode::FORBIDDEN, &json!("Forbidden")));
}

#[track_caller]
fn allowed(answer: &(StatusCode, Value)) {
    assert!(answer.0.is_success(), "{}", answer.1);
}

#[tokio::test(start_paused = true)]
async fn a_node_registers_itself_only() {
    let world = World::start().await;
    let new = kubelet(&world.server, "n3");
    let node = |name: &str, more: Value| {
        let mut node = json!({"metadata": {"name": name}});
        json_patch(&mut node, &more);
        node
    };
    let (code, status) = new.ask("POST", NODES, node("n4", json!({}))).await;
    assert_eq!(
        (code.as_u16(), &status["message"], &status["details"]),
        (
            403,
            &json!("nodes \"n4\" is forbidden: node \"n3\" is not allowed to modify node \"n4\""),
            &json!({"name": "n4", "kind": "nodes"})
        )
    );
    let labels = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b", "k8s.io/a": "b", "x": "y"}}});
    refused(
        &new.ask("POST", NODES, node("n3", labels)).await,
        "node \"n3\" is not allowed to set the following labels: k8s.io/a, node-restriction.kubernetes.io/a",
    );
    let source = json!({"spec": {"configSource": {"configMap": {"name": "a", "namespace": "b", "kubeletConfigKey": "c"}}}});
    refused(
        &new.ask("POST", NODES, node("n3", source)).await,
        "node \"n3\" is not allowed to create pods with a non-nil configSource",
    );
    let generated = json!({"metadata": {"generateName": "n"}});
    let (code, _) = new.ask("POST", NODES, generated).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let labels = json!({"metadata": {"labels": {"kubernetes.io/hostname": "n3", "node.kubernetes.io/a": "b", "x": "y"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    allowed(&new.ask("POST", NODES, node("n3", labels)).await);
    // A user in the group `system:nodes` without a node's name has no permissions.
    let none = kubelet(&world.server, "");
    let (code, _) = none.ask("POST", NODES, node("n5", json!({}))).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
}

/// Merges `more` into an object.
fn json_patch(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (name, value) in more {
                json_patch(object.entry(name).or_insert(Value::Null), value);
            }
        }
        (object, more) => *object = more.clone(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_changes_itself_but_nothing_that_steers_pods() {
    let world = World::start().await;
    let kubelet = &world.kubelet;
    let own = "/api/v1/nodes/n1";
    let merge = async |path: &str, body: Value| kubelet.patch(path, "merge-patch+json", body).await;
    let uid = world.uid(own).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": uid}]);
    let table = [
        (json!({"spec": {"taints": null}}), "node \"n1\" is not allowed to modify taints"),
        (
            json!({"metadata": {"ownerReferences": owner}}),
            "node \"n1\" is not allowed to modify ownerReferences",
        ),
        (
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
            "is not allowed to modify labels: node-role.kubernetes.io/control-plane",
        ),
        (
            json!({"spec": {"configSource": {"configMap": {"name": "a", "namespace": "b", "kubeletConfigKey": "c"}}}}),
            "node \"n1\" is not allowed to update configSource to a new non-nil configSource",
        ),
    ];
    for (patch, words) in table {
        refused(&merge(own, patch.clone()).await, words);
        refused(&merge(&format!("{own}/status"), patch.clone()).await, words);
        let mut whole = world.admin.get(own).await;
        json_patch(&mut whole, &patch);
        refused(&kubelet.ask("PUT", own, whole.clone()).await, words);
        whole["apiVersion"] = json!("v1");
        whole["kind"] = json!("Node");
        whole["metadata"]["managedFields"] = Value::Null;
        if patch["spec"].get("taints").is_none() {
            refused(&kubelet.apply(own, whole).await, words);
        }
        // Administrators may change it.
        allowed(&world.admin.patch(own, "merge-patch+json", patch).await);
    }
    for path in ["/api/v1/nodes/n2", "/api/v1/nodes/n2/status"] {
        refused(
            &merge(path, json!({"metadata": {"annotations": {"a": "b"}}})).await,
            "node \"n1\" is not allowed to modify node \"n2\"",
        );
    }
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "4"}}});
    allowed(&merge(&format!("{own}/status"), status).await);
    let fine = json!({"metadata": {"labels": {"kubernetes.io/hostname": "x", "y": "z"}}, "spec": {"providerID": "p"}});
    allowed(&merge(own, fine).await);
    for path in [own, "/api/v1/nodes/n2"] {
        assert_eq!(kubelet.ask("DELETE", path, Value::Null).await.0, StatusCode::FORBIDDEN);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_makes_its_mirror_pods_only() {
    let world = World::start().await;
    let mirror = world.mirror().await;
    let with = |path: &str, value: Value| {
        let mut pod = mirror.clone();
        *pod.pointer_mut(path).expect("a field") = value;
        pod
    };
    let owner = |field: &str, value: Value| {
        let mut pod = mirror.clone();
        pod["metadata"]["ownerReferences"][0][field] = value;
        pod
    };
    let spec = |field: &str, value: Value| {
        let mut pod = mirror.clone();
        pod["spec"][field] = value;
        pod
    };
    let volume = |mut source: Value| {
        source["name"] = json!("v");
        spec("volumes", json!([source]))
    };
    let mut two = [(); 2].map(|()| mirror["metadata"]["ownerReferences"][0].clone());
    two[1]["uid"] = json!("another");
    let own = "node \"n1\" can only create pods with an owner reference set to itself";
    let uid = world.uid("/api/v1/nodes/n1").await;
    let mismatch =
        format!("node n1 UID mismatch: expected x got {}", uid.as_str().unwrap_or_default());
    for (pod, words) in [
        (
            with("/metadata/annotations", json!({})),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
        ),
        (
            with("/spec/nodeName", json!("n2")),
            "node \"n1\" can only create pods with spec.nodeName set to itself",
        ),
        (
            with("/spec/nodeName", Value::Null),
            "node \"n1\" can only create pods with spec.nodeName set to itself",
        ),
        (
            with("/metadata/ownerReferences", json!(two)),
            "node \"n1\" can only create pods with a single owner reference set to itself",
        ),
        (with("/metadata/ownerReferences", json!([])), own),
        (owner("name", json!("n2")), own),
        (owner("kind", json!("Pod")), own),
        (owner("apiVersion", json!("v2")), own),
        (
            owner("controller", json!(false)),
            "node \"n1\" can only create pods with a controller owner reference set to itself",
        ),
        (
            owner("controller", Value::Null),
            "node \"n1\" can only create pods with a controller owner reference set to itself",
        ),
        (
            owner("blockOwnerDeletion", json!(true)),
            "node \"n1\" must not set blockOwnerDeletion on an owner reference",
        ),
        (owner("uid", json!("x")), &mismatch),
        (
            spec("serviceAccountName", json!("default")),
            // The plug-in ServiceAccount is before NodeRestriction.
            "a mirror pod may not reference service accounts",
        ),
        (
            spec("serviceAccount", json!("default")),
            // The plug-in ServiceAccount is before NodeRestriction.
            "a mirror pod may not reference service accounts",
        ),
        (
            spec("imagePullSecrets", json!([{"name": "s"}])),
            "a mirror pod may not reference secrets",
        ),
        (volume(json!({"secret": {"secretName": "s"}})), "a mirror pod may not reference secrets"),
        (
            volume(json!({"configMap": {"name": "s"}})),
            "can not create pods that reference configmaps",
        ),
        (
            volume(json!({"persistentVolumeClaim": {"claimName": "s"}})),
            "can not create pods that reference persistentvolumeclaims",
        ),
        (
            spec("resourceClaims", json!([{"name": "r", "resourceClaimName": "c"}])),
            "can not create pods that reference resourceclaims",
        ),
        (
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "p"}}]}})),
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ] {
        refused(&world.kubelet.ask("POST", PODS, pod).await, words);
    }
    allowed(&world.kubelet.ask("POST", PODS, mirror.clone()).await);
    allowed(&world.kubelet.ask("DELETE", &format!("{PODS}/mirror"), Value::Null).await);
    // A node that is not registered owns nothing.
    let mut pod = with("/spec/nodeName", json!("n3"));
    pod["metadata"]["ownerReferences"][0]["name"] = json!("n3");
    let (code, status) = kubelet(&world.server, "n3").ask("POST", PODS, pod).await;
    assert_eq!((code.as_u16(), &status["message"]), (404, &json!("node \"n3\" not found")));
    // Other users may not create mirror pods to bypass the checks either.
    for (pod, words) in [
        (
            spec("serviceAccountName", json!("gone")),
            "a mirror pod may not reference service accounts",
        ),
        (volume(json!({"secret": {"secretName": "s"}})), "a mirror pod may not reference secrets"),
        (
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "p"}}]}})),
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ] {
        refused(&world.admin.ask("POST", PODS, pod).await, words);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_deletes_evicts_and_reports_on_its_own_pods() {
    let world = World::start().await;
    let kubelet = &world.kubelet;
    let (own, other) = (format!("{PODS}/p1"), format!("{PODS}/p2"));
    refused(
        &kubelet.ask("DELETE", &other, Value::Null).await,
        "node \"n1\" can only delete pods with spec.nodeName set to itself",
    );
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    refused(
        &kubelet.ask("POST", &format!("{other}/eviction"), eviction("p2")).await,
        "node n1 can only evict pods with spec.nodeName set to itself",
    );
    let (code, status) = kubelet.ask("POST", &format!("{PODS}/p3/eviction"), eviction("p3")).await;
    assert_eq!((code.as_u16(), &status["message"]), (404, &json!("pod \"p3\" not found")));
    let report = async |path: &str, body: Value| {
        kubelet.patch(&format!("{path}/status"), "strategic-merge-patch+json", body).await
    };
    refused(
        &report(&other, json!({"status": {"phase": "Failed"}})).await,
        "node \"n1\" can only update pod status for pods with spec.nodeName set to itself",
    );
    refused(
        &report(&own, json!({"metadata": {"labels": {"app": "web"}}})).await,
        "node \"n1\" cannot update labels through pod status",
    );
    refused(
        &report(
            &own,
            json!({"status": {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}]}}),
        )
        .await,
        "node \"n1\" cannot update resource claim statues",
    );
    let extended = json!({"status": {"extendedResourceClaimStatus": {"resourceClaimName": "c",
        "requestMappings": [{"containerName": "c", "resourceName": "a/b", "requestName": "r"}]}}});
    refused(
        &report(&own, extended).await,
        "node \"n1\" cannot update extended resource claim status",
    );
    allowed(&report(&own, json!({"status": {"phase": "Running", "podIP": "10.0.0.1"}})).await);
    allowed(&kubelet.ask("POST", &format!("{own}/eviction"), eviction("p1")).await);
    allowed(&kubelet.ask("DELETE", &format!("{own}?gracePeriodSeconds=0"), Value::Null).await);
    // Additional RBAC permissions do not lift the restriction.
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let binding = json!({"metadata": {"name": "nodes"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]});
    world.admin.make(&format!("{rbac}/clusterrolebindings"), binding).await;
    refused(
        &kubelet
            .patch(&other, "merge-patch+json", json!({"metadata": {"labels": {"a": "b"}}}))
            .await,
        "unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods",
    );
    let target = json!({"metadata": {"name": "p2"}, "target": {"kind": "Node", "name": "n1"}});
    for (part, words) in [
        ("binding", "binding"),
        ("ephemeralcontainers", "ephemeralcontainers"),
        ("resize", "resize"),
    ] {
        let path = format!("{other}/{part}");
        let answer = match part {
            "binding" => kubelet.ask("POST", &path, target.clone()).await,
            _ => {
                kubelet
                    .patch(&path, "merge-patch+json", json!({"metadata": {"labels": {"a": "b"}}}))
                    .await
            }
        };
        let words = format!(
            "unexpected pod subresource \"{words}\", only 'status' and 'eviction' are allowed"
        );
        refused(&answer, &words);
    }
    let all = kubelet.ask("DELETE", PODS, Value::Null).await;
    refused(&all, "node \"n1\" can only delete pods with spec.nodeName set to itself");
    let unnamed = User::authenticated("system:node:", ["system:nodes"]);
    let unnamed = Client(world.server.service_as(unnamed));
    refused(
        &unnamed.ask("DELETE", &other, Value::Null).await,
        "could not determine node from user \"system:node:\"",
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_asks_for_tokens_of_its_pods() {
    let world = World::start().await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let (p1, p2) = (world.uid(&format!("{PODS}/p1")).await, world.uid(&format!("{PODS}/p2")).await);
    let bound = |kind: &str, name: &str, uid: &Value| json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
    let request = |reference: Value, audiences: &[&str]| json!({"spec": {"boundObjectRef": reference, "audiences": audiences}});
    let node = world.uid("/api/v1/nodes/n1").await;
    let mine = || bound("Pod", "p1", &p1);
    let stale = format!(
        "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
        p2.as_str().unwrap_or_default()
    );
    for (body, words) in [
        (request(Value::Null, &[]), "node requested token not bound to a pod"),
        (request(bound("Node", "n1", &node), &[]), "node requested token not bound to a pod"),
        (
            request(bound("Pod", "p1", &Value::Null), &[]),
            "node requested token with a pod binding without a uid",
        ),
        (request(bound("Pod", "p1", &p2), &[]), &stale),
        (
            request(bound("Pod", "p2", &p2), &[]),
            "node requested token bound to a pod scheduled on a different node",
        ),
        (request(mine(), &["a", "b"]), "node may only request 0 or 1 audiences"),
        (
            request(mine(), &["https://vault/x"]),
            "audience \"https://vault/x\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience",
        ),
    ] {
        refused(&world.kubelet.ask("POST", path, body).await, words);
    }
    let gone = world.kubelet.ask("POST", path, request(bound("Pod", "p3", &p1), &[])).await;
    assert_eq!((gone.0.as_u16(), &gone.1["message"]), (404, &json!("pod \"p3\" not found")));
    allowed(&world.kubelet.ask("POST", path, request(mine(), &[])).await);
    // A role may name audiences.
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "resources": ["https://vault/x"], "verbs": ["request-serviceaccounts-token-audience"], "resourceNames": ["default"]});
    world
        .admin
        .make(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": "a"}, "rules": [rule]}))
        .await;
    let binding = json!({"metadata": {"name": "a"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]});
    world.admin.make(&format!("{rbac}/clusterrolebindings"), binding).await;
    allowed(&world.kubelet.ask("POST", path, request(mine(), &["https://vault/x"])).await);
    // An account that no pod of the node runs as.
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    world.admin.make(accounts, json!({"metadata": {"name": "other"}})).await;
    let other =
        world.kubelet.ask("POST", &format!("{accounts}/other/token"), request(mine(), &[])).await;
    assert_eq!(other.0, StatusCode::FORBIDDEN);
    let path = format!("{accounts}/other/token");
    let (code, answer) = world.admin.ask("POST", &path, request(mine(), &[])).await;
    let words = "cannot bind token for serviceaccount \"other\" to pod running with different serviceaccount name.";
    assert_eq!((code.as_u16(), &answer["message"]), (400, &json!(words)));
    // A token that is bound to a node is invalid after the node is deleted.
    let path = format!("{accounts}/default/token");
    let (_, made) =
        world.admin.ask("POST", &path, request(bound("Node", "n2", &Value::Null), &[])).await;
    let review = json!({"spec": {"token": made["status"]["token"]}});
    let is_known = async || {
        let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
        world.admin.make(reviews, review.clone()).await["status"]["authenticated"] == true
    };
    assert!(is_known().await);
    world.admin.ask("DELETE", "/api/v1/nodes/n2", Value::Null).await;
    assert!(!is_known().await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_uses_audiences_through_its_volumes() {
    let world = World::start().await;
    let csi = "/apis/storage.k8s.io/v1/csidrivers";
    for (driver, audience) in [("inline.x", "a"), ("claimed.x", "b")] {
        let spec = json!({"tokenRequests": [{"audience": audience}], "volumeLifecycleModes": ["Ephemeral", "Persistent"]});
        world.admin.make(csi, json!({"metadata": {"name": driver}, "spec": spec})).await;
    }
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "csi": {"driver": "claimed.x", "volumeHandle": "h"}, "storageClassName": "s"}});
    world.admin.make("/api/v1/persistentvolumes", volume).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v",
        "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "s"}});
    world.admin.make("/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    let mut pod = running("p", "n1");
    pod["spec"]["volumes"] = json!([
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "p", "audience": "c"}}]}},
        {"name": "i", "csi": {"driver": "inline.x"}},
        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
    ]);
    let uid = world.admin.make(PODS, pod).await["metadata"]["uid"].clone();
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    for (audience, expected) in [("a", 201), ("b", 201), ("c", 201), ("d", 403)] {
        let body = json!({"spec": {"audiences": [audience], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}}});
        let (code, answer) = world.kubelet.ask("POST", path, body).await;
        assert_eq!(code.as_u16(), expected, "{audience}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_changes_the_status_of_its_claims_only() {
    let world = World::start().await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "s"}})
    };
    for (name, node) in [("c1", "n1"), ("c2", "n2")] {
        world.admin.make(claims, claim(name)).await;
        let mut pod = running(&format!("{name}-pod"), node);
        pod["spec"]["volumes"] =
            json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
        world.admin.make(PODS, pod).await;
    }
    let only = "node \"n1\" is not allowed to update fields other than status.quantity and status.conditions";
    let own = format!("{claims}/c1/status");
    let merge =
        async |path: &str, body: Value| world.kubelet.patch(path, "merge-patch+json", body).await;
    for body in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"finalizers": ["a.b/c"]}}),
        json!({"spec": {"volumeName": "v"}}),
        json!({"status": {"phase": "Bound"}}),
    ] {
        refused(&merge(&own, body).await, only);
    }
    let resized = json!({"status": {"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"},
        "conditions": [{"type": "Resizing", "status": "True"}]}});
    allowed(&merge(&own, resized.clone()).await);
    for path in [format!("{claims}/c2/status"), format!("{claims}/c1")] {
        assert_eq!(merge(&path, resized.clone()).await.0, StatusCode::FORBIDDEN);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_writes_its_own_lease_csi_node_and_slices() {
    let world = World::start().await;
    let kubelet = &world.kubelet;
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}});
    let (home, away) = ("kube-node-lease", "default");
    let leases =
        |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let own = "can only access node lease with the same name as the requesting node";
    refused(&kubelet.ask("POST", &leases(home), lease("n2")).await, own);
    assert_eq!(kubelet.ask("POST", &leases(away), lease("n1")).await.0, StatusCode::FORBIDDEN);
    assert_eq!(
        kubelet.ask("PUT", &format!("{}/n2", leases(home)), lease("n2")).await.0,
        StatusCode::FORBIDDEN
    );
    allowed(&kubelet.ask("POST", &leases(home), lease("n1")).await);
    allowed(
        &kubelet
            .patch(
                &format!("{}/n1", leases(home)),
                "merge-patch+json",
                json!({"spec": {"leaseDurationSeconds": 40}}),
            )
            .await,
    );
    let csi = "/apis/storage.k8s.io/v1/csinodes";
    let csi_node = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    refused(
        &kubelet.ask("POST", csi, csi_node("n2")).await,
        "can only access CSINode with the same name as the requesting node",
    );
    allowed(&kubelet.ask("POST", csi, csi_node("n1")).await);
    slices(&world).await;
}

async fn slices(world: &World) {
    let kubelet = &world.kubelet;
    let path = "/apis/resource.k8s.io/v1/resourceslices";
    let slice = |name: &str, node: &str| {
        json!({"metadata": {"name": name}, "spec": {"driver": "d.x", "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
    };
    refused(
        &kubelet.ask("POST", path, slice("s2", "n2")).await,
        "can only create ResourceSlice with the same NodeName as the requesting node",
    );
    allowed(&kubelet.ask("POST", path, slice("s1", "n1")).await);
    world.admin.make(path, slice("s2", "n2")).await;
    for (name, expected) in [("s1", StatusCode::OK), ("s2", StatusCode::FORBIDDEN)] {
        let path = format!("{path}/{name}");
        assert_eq!(kubelet.ask("GET", &path, Value::Null).await.0, expected);
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        assert_eq!(kubelet.patch(&path, "merge-patch+json", patch).await.0, expected);
    }
    let moved = json!({"spec": {"nodeName": "n2"}});
    let (code, _) = kubelet.patch(&format!("{path}/s1"), "merge-patch+json", moved).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let selected = format!("{path}?fieldSelector=spec.nodeName%3Dn1");
    let (code, list) = kubelet.ask("GET", &selected, Value::Null).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (StatusCode::OK, Some(1)));
    for other in [
        path,
        &format!("{path}?fieldSelector=spec.nodeName%3Dn2"),
        &format!("{path}?fieldSelector=spec.nodeName!%3Dn1"),
    ] {
        for verb in ["GET", "DELETE"] {
            assert_eq!(
                kubelet.ask(verb, other, Value::Null).await.0,
                StatusCode::FORBIDDEN,
                "{verb} {other}"
            );
        }
    }
    allowed(&kubelet.ask("DELETE", &selected, Value::Null).await);
    let left = world.admin.get(path).await;
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_node_lists_its_own_pods() {
    let world = World::start().await;
    let list = async |query: &str| {
        let (code, list) =
            world.kubelet.ask("GET", &format!("/api/v1/pods{query}"), Value::Null).await;
        (code.as_u16(), list["items"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(list("?fieldSelector=spec.nodeName%3Dn1").await, (200, 1));
    for query in [
        "",
        "?fieldSelector=spec.nodeName%3Dn2",
        "?fieldSelector=spec.nodeName!%3Dn1",
        "?fieldSelector=spec.nodeName%3D",
    ] {
        assert_eq!(list(query).await, (403, 0), "{query}");
    }
}

/// Returns a certificate request with these common names, as the Base64 of PEM.
fn pem(names: &[&str]) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    for name in names {
        params.distinguished_name.push(DnType::CommonName, *name);
    }
    let key = KeyPair::generate().expect("a key");
    STANDARD.encode(params.serialize_request(&key).and_then(|r| r.pem()).expect("a request"))
}

#[tokio::test(start_paused = true)]
async fn a_node_asks_for_its_own_certificates() {
    let world = World::start().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = |name: &str, signer: &str, request: String| {
        json!({"metadata": {"name": name}, "spec": {"signerName": signer,
        "request": request, "usages": ["digital signature", "server auth"]}})
    };
    let own = "can only create a node CSR with CN=system:node:n1";
    for signer in ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"] {
        for other in ["system:node:n2", "n1", "system:node:n1x"] {
            refused(
                &world.kubelet.ask("POST", path, request("r", signer, pem(&[other]))).await,
                own,
            );
        }
        refused(&world.kubelet.ask("POST", path, request("r", signer, pem(&[]))).await, own);
        let name = signer.replace('/', "-");
        allowed(
            &world
                .kubelet
                .ask("POST", path, request(&name, signer, pem(&["system:node:n1"])))
                .await,
        );
    }
    allowed(
        &world
            .kubelet
            .ask("POST", path, request("other", "example.com/x", pem(&["anything"])))
            .await,
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_asks_for_certificates_of_its_pods() {
    let world = World::start().await;
    let path = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
    let mut pod = running("p", "n1");
    pod["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [
        {"podCertificate": {"signerName": "example.com/x", "keyType": "ED25519", "credentialBundlePath": "b"}}]}}]);
    let pod = world.admin.make(PODS, pod).await["metadata"]["uid"].clone();
    let node = world.uid("/api/v1/nodes/n1").await;
    let account = world.uid("/api/v1/namespaces/default/serviceaccounts/default").await;
    let spec = json!({"signerName": "example.com/x", "podName": "p", "podUID": pod, "serviceAccountName": "default",
        "serviceAccountUID": account, "nodeName": "n1", "nodeUID": node, "maxExpirationSeconds": 86400, "stubPKCS10Request": pem(&[])});
    let request = |name: &str, more: Value| {
        let mut request = json!({"metadata": {"name": name}, "spec": spec});
        json_patch(&mut request["spec"], &more);
        request
    };
    let other = world.uid(&format!("{PODS}/p2")).await;
    for (more, words) in [
        (
            json!({"nodeName": "n2"}),
            "PodCertificateRequest.Spec.NodeName=\"n2\", which is not the requesting node \"n1\"",
        ),
        (
            json!({"podName": "p2", "podUID": other}),
            "pod \"default/p2\" is not running on node \"n1\" named in the PodCertificateRequest",
        ),
        (
            json!({"serviceAccountName": "other"}),
            "contains serviceAccountName (\"other\") that differs from running pod (\"default\")",
        ),
        (
            json!({"signerName": "example.com/y"}),
            "system:node:n1 is not authorized to request certificates of this signer",
        ),
    ] {
        refused(&world.kubelet.ask("POST", path, request("r", more)).await, words);
    }
    // The server may not have observed the objects yet.
    for more in [
        json!({"nodeUID": "x"}),
        json!({"podName": "gone"}),
        json!({"podUID": "x"}),
        json!({"serviceAccountUID": "x"}),
    ] {
        let (code, answer) = world.kubelet.ask("POST", path, request("r", more)).await;
        assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    }
    allowed(&world.kubelet.ask("POST", path, request("r", json!({}))).await);
    allowed(&world.kubelet.ask("GET", &format!("{path}/r"), Value::Null).await);
    let (code, _) =
        kubelet(&world.server, "n2").ask("GET", &format!("{path}/r"), Value::Null).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
}
