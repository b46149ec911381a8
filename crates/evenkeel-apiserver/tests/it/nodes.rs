//! Read permissions of kubelets.

use evenkeel_apiserver::{Server, User};
use serde_json::{Value, json};

use crate::Client;

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
    // The pod's node has access, and the other node does not.
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

/// Reasons that kube-apiserver gives for the same reviews.
#[tokio::test(start_paused = true)]
async fn a_refused_kubelet_learns_why() {
    let client = Client::start().await;
    let account = json!({"metadata": {"name": "default"}});
    client.ask("POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    client.make("/api/v1/namespaces/default/pods", pod).await;
    let reason = async |attributes: Value| {
        let spec = json!({"user": "system:node:n", "groups": ["system:nodes"], "resourceAttributes": attributes});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review = client.make(path, json!({ "spec": spec })).await;
        assert_eq!(review["status"]["allowed"].as_bool(), Some(false), "{review}");
        review["status"].get("reason").map(|reason| text(reason).to_owned())
    };
    let unrelated = "no relationship found between node 'n' and this object";
    let lease = "can only access node lease with the same name as the requesting node";
    for (verb, group, resource, namespace, name, why) in [
        ("get", "", "secrets", "default", "x", unrelated),
        ("list", "", "secrets", "default", "", "No Object name found"),
        ("list", "", "secrets", "", "", "can only read namespaced object of this type"),
        ("update", "", "secrets", "default", "x", "can only read resources of this type"),
        ("get", "", "secrets/x", "default", "x", "cannot read subresource"),
        ("list", "", "persistentvolumes", "", "", "can only get individual resources of this type"),
        ("get", "", "persistentvolumes/status", "", "x", "cannot get subresource"),
        ("get", "", "persistentvolumes", "", "x", unrelated),
        (
            "get",
            "",
            "persistentvolumeclaims/status",
            "default",
            "x",
            "can only get/update/patch this type",
        ),
        ("patch", "", "persistentvolumeclaims/status", "default", "x", unrelated),
        (
            "list",
            "",
            "serviceaccounts",
            "default",
            "",
            "can only create tokens for individual service accounts",
        ),
        (
            "create",
            "",
            "serviceaccounts",
            "default",
            "x",
            "can only create token subresource of serviceaccount",
        ),
        ("create", "", "serviceaccounts/token", "default", "x", unrelated),
        (
            "watch",
            "coordination.k8s.io",
            "leases",
            "kube-node-lease",
            "n",
            "can only get, create, update, patch, or delete a node lease",
        ),
        (
            "get",
            "coordination.k8s.io",
            "leases",
            "default",
            "n",
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        ("get", "coordination.k8s.io", "leases", "kube-node-lease", "m", lease),
        (
            "list",
            "storage.k8s.io",
            "csinodes",
            "",
            "",
            "can only get, create, update, patch, or delete a CSINode",
        ),
        (
            "get",
            "storage.k8s.io",
            "csinodes",
            "",
            "m",
            "can only access CSINode with the same name as the requesting node",
        ),
        ("get", "storage.k8s.io", "csinodes/x", "", "n", "cannot authorize CSINode subresources"),
        (
            "get",
            "storage.k8s.io",
            "csinodes/status",
            "",
            "n",
            "CSINode status access requires CSIVolumeHealth feature",
        ),
        (
            "get",
            "resource.k8s.io",
            "resourceslices/x",
            "",
            "x",
            "cannot authorize ResourceSlice subresources",
        ),
        (
            "list",
            "resource.k8s.io",
            "resourceslices",
            "",
            "",
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        (
            "bind",
            "resource.k8s.io",
            "resourceslices",
            "",
            "",
            "only the following verbs are allowed for a ResourceSlice: \
            get, watch, list, create, update, patch, delete, deletecollection",
        ),
        (
            "list",
            "certificates.k8s.io",
            "podcertificaterequests",
            "default",
            "",
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        (
            "update",
            "certificates.k8s.io",
            "podcertificaterequests/status",
            "default",
            "x",
            "nodes may not access the status subresource of PodCertificateRequests",
        ),
        (
            "update",
            "certificates.k8s.io",
            "podcertificaterequests",
            "default",
            "x",
            "nodes may not update podcertificaterequests",
        ),
        ("list", "", "nodes", "", "", "node 'n' cannot read all nodes, only its own Node object"),
        ("get", "", "nodes", "", "m", "node 'n' cannot read 'm', only its own Node object"),
        ("delete", "", "nodes", "", "n", ""),
        (
            "list",
            "",
            "pods",
            "default",
            "",
            "can only list/watch pods with spec.nodeName field selector",
        ),
        ("watch", "", "pods", "default", "q", unrelated),
        ("get", "", "pods/log", "default", "p", ""),
        ("get", "apps", "deployments", "default", "x", ""),
    ] {
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({"verb": verb, "group": group, "resource": resource, "subresource": part,
            "namespace": namespace, "name": name});
        let expected = (!why.is_empty()).then(|| format!("node: {why}"));
        assert_eq!(reason(attributes.clone()).await, expected, "{attributes}");
    }
    // A watch of one pod that runs on the node is allowed.
    let review = json!({"spec": {"user": "system:node:n", "groups": ["system:nodes"], "resourceAttributes":
        {"verb": "watch", "resource": "pods", "namespace": "default", "name": "p"}}});
    let review = client.make("/apis/authorization.k8s.io/v1/subjectaccessreviews", review).await;
    assert_eq!(review["status"]["allowed"].as_bool(), Some(true), "{review}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_and_a_review_of_rules_name_what_is_missing() {
    let server = Server::builder().build().await.expect("a server in memory");
    let admin = Client(server.service());
    let kubelet =
        |name: &str| Client(server.service_as(User::authenticated(name, ["system:nodes"])));
    let (node, nameless) = (kubelet("system:node:n"), kubelet("system:node:"));
    let message = async |client: &Client, path: &str| {
        let (code, status) = client.ask("GET", path, Value::Null).await;
        assert_eq!(code, 403, "{status}");
        text(&status["message"]).to_owned()
    };
    let secret = "/api/v1/namespaces/default/secrets/x";
    let refused = "secrets \"x\" is forbidden: User \"system:node:n\" cannot get resource \"secrets\" in API group \
        \"\" in the namespace \"default\": node: no relationship found between node 'n' and this object";
    assert_eq!(message(&node, secret).await, refused);
    assert_eq!(
        message(&nameless, "/api/v1/nodes").await,
        "nodes is forbidden: User \"system:node:\" cannot list resource \"nodes\" in API group \"\" at the cluster \
         scope: node: unknown node for user \"system:node:\""
    );
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let binding = |name: &str, kind: &str, role: &str| {
        json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]})
    };
    let bindings = format!("{rbac}/namespaces/default/rolebindings");
    admin.make(&bindings, binding("a", "Role", "local")).await;
    for name in ["b", "c"] {
        let bindings = format!("{rbac}/clusterrolebindings");
        admin.make(&bindings, binding(name, "ClusterRole", "gone")).await;
    }
    let gone = "clusterrole.rbac.authorization.k8s.io \"gone\" not found";
    let both = format!("{gone}, role.rbac.authorization.k8s.io \"local\" not found");
    assert_eq!(message(&node, secret).await, format!("{refused}\nrbac: RBAC: [{both}]"));
    assert_eq!(
        message(&node, "/apis/scheduling.k8s.io/v1/priorityclasses/x")
            .await
            .rsplit("scope: ")
            .next(),
        Some(&*format!("rbac: RBAC: {gone}"))
    );
    let review = json!({"spec": {"namespace": "default"}});
    let review = node.make("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review).await;
    assert_eq!(review["status"]["incomplete"].as_bool(), Some(true));
    let unsupported = "node authorizer does not support user rule resolution";
    assert_eq!(text(&review["status"]["evaluationError"]), format!("[{unsupported}, {both}]"));
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
