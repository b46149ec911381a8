//! What kubelets may see.

use crate::Client;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_node_sees_what_its_pods_refer_to_and_nothing_else() {
    let client = Client::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    for (name, node) in [("p", "n"), ("q", "m")] {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "serviceAccountName": "default",
            "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "s", "secret": {"secretName": name}}, {"name": "v", "persistentVolumeClaim": {"claimName": name}}]}});
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        client.ask("POST", accounts, json!({"metadata": {"name": "default"}})).await;
        let (code, made) = client.ask("POST", pods, pod).await;
        assert_eq!(code, 201, "{made}");
    }
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/x"}, "claimRef": {"namespace": "default", "name": "p"}}});
    let (code, made) = client.ask("POST", "/api/v1/persistentvolumes", volume).await;
    assert_eq!(code, 201, "{made}");
    let may = async |node: &str, group: &str, verb: &str, resource: &str, name: &str| {
        let namespace = match resource {
            "leases" => "kube-node-lease",
            "nodes" | "persistentvolumes" | "csinodes" => "",
            _ => "default",
        };
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        let review = json!({"spec": {"user": format!("system:node:{node}"), "groups": ["system:nodes"], "resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": part, "namespace": namespace, "name": name}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (_, answer) = client.ask("POST", path, review).await;
        answer["status"]["allowed"] == true
    };
    // The one node may, the other may not.
    for (group, verb, resource, name) in [
        ("", "get", "secrets", "p"),
        ("", "watch", "secrets", "p"),
        ("", "get", "persistentvolumeclaims", "p"),
        ("", "get", "persistentvolumes", "v"),
        ("", "get", "pods", "p"),
        ("", "get", "nodes", "n"),
        ("coordination.k8s.io", "update", "leases", "n"),
        ("storage.k8s.io", "patch", "csinodes", "n"),
    ] {
        assert!(may("n", group, verb, resource, name).await, "{verb} {resource}");
        assert!(!may("m", group, verb, resource, name).await, "{verb} {resource}");
    }
    for (verb, resource, name) in [
        ("update", "secrets", "p"),
        ("list", "secrets", ""),
        ("get", "configmaps", "p"),
        ("delete", "nodes", "n"),
    ] {
        assert!(!may("n", "", verb, resource, name).await, "{verb} {resource}");
    }
    for (verb, resource, name) in [
        ("list", "services", ""),
        ("create", "serviceaccounts/token", "default"),
        ("patch", "pods/status", "p"),
    ] {
        assert!(may("n", "", verb, resource, name).await, "{verb} {resource}");
    }
}
