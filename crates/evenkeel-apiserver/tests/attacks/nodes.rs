//! Attacks with the credentials of a compromised node.

use serde_json::{Value, json};

use crate::target::{JSON, MERGE, STRATEGIC, Target};

/// Creates a node as the administrator.
async fn node(target: &Target, name: &str) {
    let made = target.admin().post("/api/v1/nodes", &json!({"metadata": {"name": name}})).await;
    assert!(matches!(made.code, 201 | 409), "{}", made.text());
}

fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}

fn mirror(name: &str, node: &str, uid: &Value) -> Value {
    let mut pod = pod(name, node);
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true}]);
    pod
}

async fn uid(target: &Target, node: &str) -> Value {
    target.admin().get(&format!("/api/v1/nodes/{node}")).await.json()["metadata"]["uid"].clone()
}

pub(crate) async fn secrets_of_others(target: &Target) {
    node(target, "n1").await;
    node(target, "n2").await;
    let namespace = target.namespace("graph").await;
    let admin = target.admin();
    let base = format!("/api/v1/namespaces/{namespace}");
    for name in ["mine", "theirs"] {
        admin.make(&format!("{base}/secrets"), json!({"metadata": {"name": name}})).await;
    }
    for (name, node, secret) in [("a", "n1", "mine"), ("b", "n2", "theirs")] {
        let mut pod = pod(name, node);
        pod["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": secret}}]);
        admin.make(&format!("{base}/pods"), pod).await;
    }
    let n1 = target.user("n1");
    for _ in 0..100 {
        if n1.get(&format!("{base}/secrets/mine")).await.code == 200 {
            break;
        }
        // Upstream updates its graph from watches, with a delay.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    n1.get(&format!("{base}/secrets/mine")).await.is(200, "");
    for path in ["secrets/theirs", "secrets", "secrets?fieldSelector=metadata.name!%3Dmine", "secrets/none"] {
        n1.get(&format!("{base}/{path}")).await.is(403, "");
    }
    n1.get("/api/v1/secrets").await.is(403, "");
    n1.send("DELETE", &format!("{base}/secrets/mine"), &[], b"").await.is(403, "");
    n1.patch(&format!("{base}/secrets/mine"), MERGE, &json!({"data": {"k": "eA=="}})).await.is(403, "");
    // A pod of another node, and its account's token.
    n1.get(&format!("{base}/pods/b")).await.is(403, "");
    let token = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "b"}}});
    n1.post(&format!("{base}/serviceaccounts/default/token"), &token).await.is(403, "");
    n1.post("/api/v1/namespaces/kube-system/serviceaccounts/default/token", &json!({"spec": {}})).await.is(403, "");
}

pub(crate) async fn other_nodes(target: &Target) {
    node(target, "n1").await;
    node(target, "n2").await;
    let n1 = target.user("n1");
    let cordon = json!({"spec": {"unschedulable": true}});
    n1.patch("/api/v1/nodes/n2", MERGE, &cordon).await.is(403, "");
    n1.patch("/api/v1/nodes/n2/status", MERGE, &json!({"status": {"addresses": [{"type": "InternalIP", "address": "1.1.1.1"}]}})).await.is(403, "");
    n1.send("DELETE", "/api/v1/nodes/n2", &[], b"").await.is(403, "");
    n1.send("DELETE", "/api/v1/nodes/n1", &[], b"").await.is(403, "");
    n1.post("/api/v1/nodes", &json!({"metadata": {"name": target.fresh("node")}})).await.is(403, "");
    n1.get("/api/v1/nodes/n2").await.is(403, "");
    n1.get("/api/v1/nodes").await.is(403, "");
    let lease = json!({"metadata": {"name": "n2", "namespace": "kube-node-lease"}, "spec": {}});
    n1.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease).await.is(403, "");
    target.user("nameless").get("/api/v1/nodes").await.is(403, "");
}

/// A node may not write labels and taints that determine the scheduling of pods.
pub(crate) async fn labels_and_taints_of_ones_own(target: &Target) {
    node(target, "n1").await;
    let n1 = target.user("n1");
    for patch in [
        json!({"metadata": {"labels": {"node-restriction.kubernetes.io/trusted": "yes"}}}),
        json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        json!({"metadata": {"labels": {"x.kubernetes.io/y": ""}}}),
        json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        // CVE-2025-5187: a node whose owner does not exist is garbage-collected.
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}]}}),
        json!({"spec": {"configSource": {"configMap": {"name": "x", "namespace": "y", "kubeletConfigKey": "z"}}}}),
    ] {
        for path in ["/api/v1/nodes/n1", "/api/v1/nodes/n1/status"] {
            let answer = n1.patch(path, MERGE, &patch).await;
            let kept = answer.code == 200 && path.ends_with("status");
            assert!(matches!(answer.code, 403 | 422) || kept, "{path} {patch}: {}", answer.text());
        }
    }
    let node = target.admin().get("/api/v1/nodes/n1").await.json();
    for path in ["/metadata/labels/x.kubernetes.io~1y", "/metadata/ownerReferences", "/spec/configSource", "/metadata/labels/node-restriction.kubernetes.io~1trusted"] {
        assert_eq!(node.pointer(path), None, "{path}");
    }
}

/// Mirror pods give no access to Secrets, service accounts, claims (CVE-2025-4563) or other nodes.
pub(crate) async fn mirror_pods(target: &Target) {
    node(target, "n1").await;
    node(target, "n2").await;
    let namespace = target.namespace("mirror").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let n1 = target.user("n1");
    let (own, other) = (uid(target, "n1").await, uid(target, "n2").await);
    n1.post(&pods, &pod("plain", "n1")).await.is(403, "");
    n1.post(&pods, &mirror("elsewhere", "n2", &other)).await.is(403, "");
    let with = |field: &str, value: Value| {
        let mut pod = mirror("m", "n1", &own);
        pod["spec"][field] = value;
        pod
    };
    for bad in [
        with("volumes", json!([{"name": "v", "secret": {"secretName": "s"}}])),
        with("volumes", json!([{"name": "v", "configMap": {"name": "s"}}])),
        with("volumes", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "s"}}])),
        with("volumes", json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}])),
        with("containers", json!([{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}])),
        with("initContainers", json!([{"name": "d", "image": "i", "env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}])),
        with("serviceAccountName", json!("default")),
        with("resourceClaims", json!([{"name": "r", "resourceClaimName": "s"}])),
        with("imagePullSecrets", json!([{"name": "s"}])),
    ] {
        let answer = n1.post(&pods, &bad).await;
        assert_eq!(answer.code, 403, "{bad}: {}", answer.text());
    }
    n1.post(&pods, &mirror("m", "n1", &own)).await.is(201, "");
    // It may not remove it afterwards either.
    let owners = json!({"metadata": {"ownerReferences": []}});
    let answer = n1.patch(&format!("{pods}/m"), STRATEGIC, &owners).await;
    assert_eq!(answer.code, 403, "{}", answer.text());
}

pub(crate) async fn pods_of_other_nodes(target: &Target) {
    node(target, "n1").await;
    node(target, "n2").await;
    let namespace = target.namespace("pods").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    target.admin().make(&pods, pod("theirs", "n2")).await;
    target.admin().make(&pods, pod("mine", "n1")).await;
    let n1 = target.user("n1");
    let status = json!({"status": {"phase": "Failed"}});
    n1.patch(&format!("{pods}/theirs/status"), MERGE, &status).await.is(403, "");
    n1.send("DELETE", &format!("{pods}/theirs"), &[], b"").await.is(403, "");
    let eviction = json!({"metadata": {"name": "theirs"}});
    n1.post(&format!("{pods}/theirs/eviction"), &eviction).await.is(403, "");
    // An eviction that names another pod than the path.
    let eviction = json!({"metadata": {"name": "theirs", "namespace": namespace}});
    let answer = n1.post(&format!("{pods}/mine/eviction"), &eviction).await;
    assert!(matches!(answer.code, 400 | 403), "{}", answer.text());
    // Labels are not part of the status.
    let labels = json!({"metadata": {"labels": {"app": "web"}}});
    let answer = n1.patch(&format!("{pods}/mine/status"), MERGE, &labels).await;
    assert_eq!(answer.code, 403, "{}", answer.text());
    n1.post(&format!("{pods}/theirs/binding"), &json!({"target": {"name": "n1"}})).await.is(403, "");
    n1.give("PUT", &format!("{pods}/mine"), JSON, pod("mine", "n1").to_string()).await.is(403, "");
}

/// CVE-2021-25735: a policy gets the stored node as the old object, not one from the request.
pub(crate) async fn old_nodes_in_policies(target: &Target) {
    let name = target.fresh("frozen");
    node(target, &name).await;
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/status"]}]);
    let policy = json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{
        "expression": format!("object.metadata.name != '{name}' || !has(oldObject.metadata.labels) || !('frozen' in oldObject.metadata.labels)"), "message": "it is frozen"}]}});
    let admin = target.admin();
    admin.make(&format!("{policies}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    admin.make(&format!("{policies}/validatingadmissionpolicybindings"), binding).await;
    let path = format!("/api/v1/nodes/{name}");
    admin.patch(&path, MERGE, &json!({"metadata": {"labels": {"frozen": "y"}}})).await.is(200, "");
    for _ in 0..100 {
        if admin.patch(&format!("{path}?dryRun=All"), MERGE, &json!({"metadata": {"annotations": {"a": "b"}}})).await.code == 422 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    for patch in [json!({"metadata": {"labels": null}}), json!({"metadata": {"labels": {"frozen": null}}}), json!({"spec": {"unschedulable": true}})] {
        admin.patch(&path, MERGE, &patch).await.is(422, "it is frozen");
    }
    let status = json!({"metadata": {"labels": null}, "status": {"capacity": {"cpu": "1"}}});
    admin.patch(&format!("{path}/status"), MERGE, &status).await.is(422, "it is frozen");
    admin.send("DELETE", &format!("{policies}/validatingadmissionpolicybindings/{name}"), &[], b"").await.is(200, "");
}
