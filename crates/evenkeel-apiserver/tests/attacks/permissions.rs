//! Users who try to exceed their permissions.

use serde_json::{Value, json};

use crate::target::{APPLY, GROUP, JSON, MERGE, RBAC, STRATEGIC, Target};

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Policies are evaluated for evictions, bindings and tokens.
pub(crate) async fn subresources_past_policies(target: &Target) {
    let namespace = target.namespace("guarded").await;
    let (admin, name) = (target.admin(), target.fresh("guard"));
    let base = format!("/api/v1/namespaces/{namespace}");
    for pod in ["free", "bound"] {
        let mut body = json!({"metadata": {"name": pod}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        if pod == "bound" {
            body["spec"]["nodeName"] = json!("n1");
        }
        admin.make(&format!("{base}/pods"), body).await;
    }
    let resources = ["pods/binding", "pods/eviction", "bindings", "serviceaccounts/token"];
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources}]);
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let validation = json!({"expression": format!("request.namespace != '{namespace}'"), "message": "it is guarded"});
    let policy = json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [validation]}});
    admin.make(&format!("{policies}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    admin.make(&format!("{policies}/validatingadmissionpolicybindings"), binding).await;
    let eviction = json!({"metadata": {"name": "bound"}});
    for _ in 0..100 {
        if admin.post(&format!("{base}/pods/bound/eviction?dryRun=All"), &eviction).await.code == 422 {
            break;
        }
        // Upstream compiles policies in the background.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let to_node = json!({"metadata": {"name": "free"}, "target": {"name": "n1"}});
    for (path, body) in [
        ("pods/bound/eviction", eviction),
        ("pods/free/binding", to_node.clone()),
        ("bindings", to_node),
        ("serviceaccounts/default/token", json!({"spec": {}})),
    ] {
        admin.post(&format!("{base}/{path}"), &body).await.is(422, "it is guarded");
    }
    admin.get(&format!("{base}/pods/bound")).await.is(200, "");
    assert_eq!(admin.get(&format!("{base}/pods/free")).await.json()["spec"]["nodeName"], Value::Null);
    let path = format!("{policies}/validatingadmissionpolicybindings/{name}");
    admin.send("DELETE", &path, &[], b"").await.is(200, "");
}

/// Returns a pod without a node.
fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

pub(crate) async fn roles_with_more_than_one_holds(target: &Target) {
    let own = target.tenancy().await;
    let ann = target.user("ann");
    let path = format!("{RBAC}/namespaces/{own}/roles");
    let all = json!({"metadata": {"name": "all"}, "rules": [rule("*", &["*"], &["*"])]});
    ann.post(&path, &all).await.is(403, "not currently held");
    let some = json!({"metadata": {"name": "some"}, "rules": [rule("", &["configmaps"], &["get"])]});
    ann.post(&path, &some).await.is(201, "");
    let more = json!({"rules": [rule("*", &["*"], &["*"])]});
    ann.patch(&format!("{path}/some"), MERGE, &more).await.is(403, "not currently held");
    let applied = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": {"name": "new"}, "rules": [rule("", &["nodes"], &["escalate"])]});
    ann.give("PATCH", &format!("{path}/new?fieldManager=m"), APPLY, applied.to_string()).await.is(403, "not currently held");
    // With and without wildcards, in all places.
    for wide in [rule("", &["*/exec"], &["create"]), rule("", &["pods/*"], &["create"]), rule("*", &["pods"], &["get"]), rule("", &["pods"], &["*"]), rule("", &["*/*"], &["get"])] {
        let role = json!({"metadata": {"name": "wide"}, "rules": [wide]});
        let answer = ann.post(&path, &role).await;
        assert_eq!(answer.code, 403, "{role}: {}", answer.text());
    }
}

/// Through labels, the rules of other roles are aggregated into `admin`, and apply to its subjects.
pub(crate) async fn roles_that_join_others(target: &Target) {
    let bob = target.somebody(json!([rule(GROUP, &["clusterroles"], &["create", "update", "patch", "get"])])).await;
    let path = format!("{RBAC}/clusterroles");
    let name = target.fresh("joins");
    let role = json!({"metadata": {"name": name, "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}, "rules": [rule("*", &["*"], &["*"])]});
    bob.post(&path, &role).await.is(403, "not currently held");
    let role = json!({"metadata": {"name": name}, "aggregationRule": {"clusterRoleSelectors": [{}]}, "rules": []});
    bob.post(&path, &role).await.is(403, "");
    bob.patch(&format!("{path}/view"), MERGE, &json!({"rules": [rule("*", &["*"], &["*"])]})).await.is(403, "not currently held");
}

pub(crate) async fn impersonation_without_the_right(target: &Target) {
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    for (name, value) in [("Impersonate-User", "admin"), ("IMPERSONATE-USER", "admin"), ("impersonate-user", "system:admin"), ("Impersonate-User", "system:serviceaccount:kube-system:default")] {
        target.user("ann").header(name, value).get(secrets).await.is(403, "cannot impersonate");
        target.anonymous().header(name, value).get(secrets).await.is(403, "cannot impersonate");
    }
    // A group, an extra field or a UID without a user.
    for (name, value) in [("Impersonate-Group", "system:masters"), ("Impersonate-Extra-Scopes", "x"), ("Impersonate-Uid", "x")] {
        let answer = target.user("ann").header(name, value).get(secrets).await;
        assert!(matches!(answer.code, 400 | 403 | 500), "{name}: {} {}", answer.code, answer.text());
    }
    let twice = target.user("ann").header("Impersonate-User", "ann").header("Impersonate-User", "admin");
    twice.get(secrets).await.is(403, "");
    // An empty name impersonates nobody: the request keeps its user.
    target.user("ann").header("Impersonate-User", "").get(secrets).await.is(403, "\\\"ann\\\"");
}

/// The permission to impersonate a user name does not include groups, UIDs or extra fields.
pub(crate) async fn impersonation_of_one_part(target: &Target) {
    let mut users = rule("", &["users"], &["impersonate"]);
    users["resourceNames"] = json!(["jane"]);
    target.grant("bob", json!([users])).await;
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let bob = || target.user("bob").header("Impersonate-User", "jane");
    bob().get(secrets).await.is(403, "\\\"jane\\\" cannot list");
    // The server first tries the impersonation mode that last allowed a user, and returns its refusal.
    bob().header("Impersonate-Group", "system:masters").get(secrets).await.is(403, "cannot impersonate resource \\\"groups\\\"");
    bob().header("impersonate-group", "a").header("IMPERSONATE-GROUP", "system:masters").get(secrets).await.is(403, "cannot impersonate");
    bob().header("Impersonate-Uid", "1").get(secrets).await.is(403, "cannot impersonate resource \\\"uids\\\"");
    bob().header("Impersonate-Extra-A", "1").get(secrets).await.is(403, "cannot impersonate resource \\\"userextras");
    target.user("bob").header("Impersonate-User", "admin").get(secrets).await.is(403, "cannot impersonate resource \\\"users\\\"");
    target.user("bob").header("Impersonate-User", "system:node:n1").get(secrets).await.is(403, "cannot impersonate");
}

/// A request with forged identity headers keeps the identity of its credentials.
pub(crate) async fn reviews_and_requests_in_others_names(target: &Target) {
    let ann = target.user("ann");
    for (path, kind) in [
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", "SubjectAccessReview"),
        ("/apis/authentication.k8s.io/v1/tokenreviews", "TokenReview"),
        ("/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", "LocalSubjectAccessReview"),
    ] {
        let body = json!({"kind": kind, "spec": {"user": "admin", "token": "admin"}});
        ann.post(path, &body).await.is(403, "");
    }
    let own = json!({"spec": {"resourceAttributes": {"resource": "secrets", "verb": "get"}, "user": "admin", "groups": ["system:masters"]}, "status": {"allowed": true}});
    let answer = ann.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &own).await;
    answer.is(201, "");
    assert_eq!(answer.json()["status"]["allowed"], json!(false), "{}", answer.text());
    // A namespace that differs from that of the path.
    let body = json!({"metadata": {"namespace": "default"}, "spec": {"user": "ann", "resourceAttributes": {"namespace": "kube-system", "resource": "pods", "verb": "get"}}});
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let answer = target.admin().post(path, &body).await;
    assert!(matches!(answer.code, 400 | 422), "{}", answer.text());
}

/// A short role grants more permissions than can be compared one by one.
pub(crate) async fn roles_of_a_billion_permissions(target: &Target) {
    let own = target.tenancy().await;
    // Upstream expands them in memory.
    let n = if target.is_upstream() { 12 } else { 5_000 };
    let many: Vec<String> = (0..n).map(|i| format!("x{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let path = format!("{RBAC}/namespaces/{own}/roles");
    let mut rules = rule("", &many, &many);
    rules["apiGroups"] = json!(many);
    let role = json!({"metadata": {"name": "many"}, "rules": [rules]});
    target.user("ann").post(&path, &role).await.is(403, "is attempting to grant RBAC permissions");
    rules["resourceNames"] = json!(many);
    let role = json!({"metadata": {"name": "many"}, "rules": [rules]});
    target.user("ann").post(&path, &role).await.is(403, "is attempting to grant RBAC permissions");
    // A user who holds all permissions may grant them.
    if !target.is_upstream() {
        target.admin().post(&path, &role).await.is(201, "");
    }
}

/// CVE-2023-2728 and CVE-2024-3177: a service account's list of mountable Secrets applies to all types of containers,
/// and to all sources of their environment.
pub(crate) async fn secrets_that_are_not_mountable(target: &Target) {
    let namespace = target.namespace("mountable").await;
    let base = format!("/api/v1/namespaces/{namespace}");
    let admin = target.admin();
    let annotations = json!({"kubernetes.io/enforce-mountable-secrets": "true"});
    let account = json!({"metadata": {"name": "strict", "annotations": annotations}, "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}]});
    admin.make(&format!("{base}/serviceaccounts"), account).await;
    for secret in ["mine", "theirs"] {
        admin.make(&format!("{base}/secrets"), json!({"metadata": {"name": secret}})).await;
    }
    let from = |secret: &str| json!({"name": "x", "image": "i", "envFrom": [{"secretRef": {"name": secret}}]});
    let key = |secret: &str| json!({"name": "x", "image": "i", "env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]});
    let pods = format!("{base}/pods");
    let with = |name: &str, field: &str, value: Value| {
        let mut pod = pod(name);
        pod["spec"]["serviceAccountName"] = json!("strict");
        pod["spec"][field] = value;
        pod
    };
    let uses = |secret: &str| {
        [
            ("containers", json!([from(secret)])),
            ("containers", json!([key(secret)])),
            ("initContainers", json!([from(secret)])),
            ("initContainers", json!([key(secret)])),
            ("volumes", json!([{"name": "v", "secret": {"secretName": secret}}])),
        ]
    };
    for (field, value) in uses("theirs") {
        admin.post(&pods, &with("bad", field, value)).await.is(403, "does not reference that secret");
    }
    let pull = json!([{"name": "theirs"}]);
    admin.post(&pods, &with("bad", "imagePullSecrets", pull)).await.is(403, "does not reference that imagePullSecret");
    for (i, (field, value)) in uses("mine").into_iter().enumerate() {
        admin.post(&pods, &with(&format!("good{i}"), field, value)).await.is(201, "");
    }
    let debug = async |mut container: Value| {
        container["name"] = json!(target.fresh("debug"));
        let patch = json!({"spec": {"ephemeralContainers": [container]}});
        admin.patch(&format!("{pods}/good0/ephemeralcontainers"), STRATEGIC, &patch).await
    };
    // Upstream's refusal has no reason.
    let code = if target.is_upstream() { 500 } else { 403 };
    debug(from("theirs")).await.is(code, "does not reference that secret");
    debug(key("theirs")).await.is(code, "does not reference that secret");
    debug(from("mine")).await.is(200, "");
}

/// The permission to read through a node's proxy does not allow running commands there, and no other permission gives
/// access to the proxy.
pub(crate) async fn proxies_of_nodes(target: &Target) {
    let node = target.fresh("proxied");
    target.admin().make("/api/v1/nodes", json!({"metadata": {"name": node}})).await;
    let reader = target.somebody(json!([rule("", &["nodes"], &["*"]), rule("", &["nodes/status", "nodes/log", "nodes/metrics"], &["*"])])).await;
    let proxy = format!("/api/v1/nodes/{node}/proxy");
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"] {
        for path in ["", "/", "/pods", "/logs/?query=x", "/exec/a/b/c?command=id", "/run/a/b/c", "/..%2f..%2fsecrets"] {
            let answer = reader.send(method, &format!("{proxy}{path}"), &[], b"").await;
            assert_eq!(answer.code, 403, "{method} {path}: {}", answer.text());
        }
    }
    let reader = target.somebody(json!([rule("", &["nodes/proxy"], &["get"])])).await;
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let answer = reader.send(method, &format!("{proxy}/run/a/b/c?cmd=id"), &[], b"").await;
        assert_eq!(answer.code, 403, "{method}: {}", answer.text());
    }
    // A header does not turn a `get` into a `create`.
    let headers = [("X-HTTP-Method-Override", "POST")];
    let answer = reader.send("GET", &format!("{proxy}/run/a/b/c?cmd=id"), &headers, b"").await;
    assert!((400..600).contains(&answer.code), "{}", answer.text());
}

/// CVE-2021-25737 and CVE-2021-25740: no endpoint may have a loopback or link-local address, and a tenant cannot
/// redirect other users' traffic.
pub(crate) async fn addresses_of_the_machine_itself(target: &Target) {
    let own = target.tenancy().await;
    let (admin, ann) = (target.admin(), target.user("ann"));
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{own}/endpointslices");
    let endpoints = format!("/api/v1/namespaces/{own}/endpoints");
    for (family, ip) in [("IPv4", "127.0.0.1"), ("IPv4", "169.254.169.254"), ("IPv4", "0.0.0.0"), ("IPv4", "224.0.0.1"), ("IPv6", "::1"), ("IPv6", "fe80::1"), ("IPv6", "ff02::1")] {
        let slice = json!({"metadata": {"name": "x"}, "addressType": family, "endpoints": [{"addresses": [ip]}], "ports": []});
        admin.post(&slices, &slice).await.is(422, "");
        let subsets = json!([{"addresses": [{"ip": ip}], "ports": [{"port": 80}]}]);
        admin.post(&endpoints, &json!({"metadata": {"name": "x"}, "subsets": subsets})).await.is(422, "");
    }
    let subsets = json!([{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]);
    ann.post(&endpoints, &json!({"metadata": {"name": "x"}, "subsets": subsets})).await.is(403, "");
    let slice = json!({"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": []});
    ann.post(&slices, &slice).await.is(403, "");
}

/// Subresources need separate permissions.
pub(crate) async fn subresources(target: &Target) {
    let namespace = target.namespace("sub").await;
    let bob = target.somebody(json!([
        rule("", &["pods", "serviceaccounts", "services", "namespaces", "nodes"], &["get", "list", "create", "update", "patch", "delete"]),
        rule("apps", &["deployments"], &["get", "create", "update", "patch"]),
        rule("certificates.k8s.io", &["certificatesigningrequests"], &["get", "create", "update"])
    ])).await;
    let base = format!("/api/v1/namespaces/{namespace}");
    bob.post(&format!("{base}/pods"), &pod("p")).await.is(201, "");
    for (method, path) in [
        ("GET", format!("{base}/pods/p/log")),
        ("GET", format!("{base}/pods/p/exec?command=id")),
        ("POST", format!("{base}/pods/p/exec?command=id")),
        ("POST", format!("{base}/pods/p/attach")),
        ("POST", format!("{base}/pods/p/portforward")),
        ("GET", format!("{base}/pods/p/proxy")),
        ("GET", format!("{base}/pods/p:80/proxy/x")),
        ("POST", format!("{base}/pods/p/eviction")),
        ("POST", format!("{base}/pods/p/binding")),
        ("POST", format!("{base}/bindings")),
        ("PUT", format!("{base}/pods/p/status")),
        ("PATCH", format!("{base}/pods/p/status")),
        ("PATCH", format!("{base}/pods/p/ephemeralcontainers")),
        ("PATCH", format!("{base}/pods/p/resize")),
        ("POST", format!("{base}/serviceaccounts/default/token")),
        ("GET", format!("{base}/services/x/proxy")),
        ("PATCH", format!("{base}/services/x/status")),
        ("PUT", format!("/api/v1/namespaces/{namespace}/finalize")),
        ("PATCH", format!("/api/v1/namespaces/{namespace}/status")),
        ("GET", "/api/v1/nodes/n1/proxy/metrics".to_owned()),
        ("PATCH", "/api/v1/nodes/n1/status".to_owned()),
        ("GET", format!("/apis/apps/v1/namespaces/{namespace}/deployments/d/scale")),
        ("PATCH", format!("/apis/apps/v1/namespaces/{namespace}/deployments/d/scale")),
        ("PATCH", format!("/apis/apps/v1/namespaces/{namespace}/deployments/d/status")),
        ("PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval".to_owned()),
        ("PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/c/status".to_owned()),
        ("DELETE", format!("{base}/pods")),
        ("DELETE", format!("{base}/pods?fieldSelector=metadata.name%3Dp")),
    ] {
        let media = if method == "PATCH" { MERGE } else { JSON };
        let answer = bob.give(method, &path, media, if method == "GET" || method == "DELETE" { "" } else { "{}" }).await;
        assert_eq!(answer.code, 403, "{method} {path}: {}", answer.text());
    }
}

/// The server drops all other fields of a request for status or scale.
pub(crate) async fn status_and_scale_change_nothing_else(target: &Target) {
    let namespace = target.namespace("status").await;
    let rules = json!([rule("", &["pods/status"], &["update", "patch"]), rule("apps", &["deployments/scale", "deployments/status"], &["*"])]);
    let (admin, bob) = (target.admin(), target.somebody(rules).await);
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    admin.make(&pods, pod("p")).await;
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "evil"}], "nodeName": "n1"}, "status": {"message": "m"}});
    bob.patch(&format!("{pods}/p/status"), MERGE, &patch).await.is(200, "");
    let read = admin.get(&format!("{pods}/p")).await.json();
    assert_eq!((&read["spec"]["containers"][0]["image"], &read["spec"]["nodeName"]), (&json!("i"), &Value::Null));
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    admin.make(&deployments, deployment).await;
    for sub in ["scale", "status"] {
        let patch = json!({"spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "evil"}]}}}});
        bob.patch(&format!("{deployments}/d/{sub}"), MERGE, &patch).await.is(200, "");
    }
    let read = admin.get(&format!("{deployments}/d")).await.json();
    assert_eq!(read["spec"]["template"]["spec"]["containers"][0]["image"], json!("i"));
}

const RESOURCE: &str = "resource.k8s.io";

/// Returns a claim of a device, as a user creates it.
fn claim(name: &str, admin: bool) -> Value {
    let mut exactly = json!({"deviceClassName": "gpus"});
    if admin {
        exactly["adminAccess"] = json!(true);
    }
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

/// The permission to write the status of claims does not include allocating devices, or reporting their status for
/// drivers.
pub(crate) async fn devices_of_others(target: &Target) {
    let namespace = target.namespace("claims").await;
    let claims = format!("/apis/{RESOURCE}/v1/namespaces/{namespace}/resourceclaims");
    target.admin().make(&claims, claim("c", false)).await;
    let status = format!("{claims}/c/status");
    let statuses = || rule(RESOURCE, &["resourceclaims", "resourceclaims/status"], &["get", "update", "patch"]);
    let bob = target.somebody(json!([statuses()])).await;
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    let result = json!({"request": "r", "driver": "d.example", "pool": "p", "device": "1"});
    let allocation = json!({"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}});
    let allocated = json!({"status": {"allocation": allocation}});
    let words = "requires resource=\"resourceclaims/binding\", verb=\"patch\" permission";
    for wanted in [allocated.clone(), json!({"status": {"allocation": {}}}), json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}})] {
        bob.patch(&status, MERGE, &wanted).await.is(422, words);
    }
    let mut body = target.admin().get(&format!("{claims}/c")).await.json();
    body["status"] = allocated["status"].clone();
    bob.give("PUT", &status, JSON, body.to_string()).await.is(422, "verb=\"update\" permission");
    // The permission in one namespace, or for one claim, is not enough: an allocation takes devices from the whole
    // cluster.
    let mut one = rule(RESOURCE, &["resourceclaims/binding"], &["patch"]);
    one["resourceNames"] = json!(["c"]);
    let jane = target.somebody(json!([statuses(), one])).await;
    jane.patch(&status, MERGE, &allocated).await.is(422, words);
    let scheduler = target.somebody(json!([statuses(), rule(RESOURCE, &["resourceclaims/binding"], &["patch"])])).await;
    scheduler.patch(&status, MERGE, &allocated).await.is(200, "");
    bob.patch(&status, MERGE, &json!({"status": {"allocation": null}})).await.is(422, words);
    // Only the driver may write a device's status.
    let devices = json!({"status": {"devices": [{"driver": "d.example", "pool": "p", "device": "1", "data": {"a": 1}}]}});
    let words = "requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:patch]\" permission";
    scheduler.patch(&status, MERGE, &devices).await.is(422, words);
    let mut other = rule(RESOURCE, &["resourceclaims/driver"], &["arbitrary-node:patch", "patch"]);
    other["resourceNames"] = json!(["other.example"]);
    target.somebody(json!([statuses(), other])).await.patch(&status, MERGE, &devices).await.is(422, words);
    let mut local = rule(RESOURCE, &["resourceclaims/driver"], &["associated-node:patch"]);
    local["resourceNames"] = json!(["d.example"]);
    target.somebody(json!([statuses(), local.clone()])).await.patch(&status, MERGE, &devices).await.is(422, words);
    // The driver's token names the claim's node.
    let account = target.fresh("system:serviceaccount:default:driver");
    target.grant(&account, json!([statuses(), local])).await;
    let on = |node: &str| target.admin().header("Impersonate-User", &account).header("Impersonate-Extra-Authentication.kubernetes.io%2fnode-name", node);
    on("other").patch(&status, MERGE, &devices).await.is(422, words);
    on("n").patch(&status, MERGE, &devices).await.is(200, "");
    bob.patch(&status, MERGE, &json!({"status": {"devices": null}})).await.is(422, words);
}

/// Admin access to devices needs a namespace with the label for it.
pub(crate) async fn devices_of_admins(target: &Target) {
    let namespace = target.namespace("devices").await;
    let words = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label";
    let admin = target.admin();
    let path = |resource: &str| format!("/apis/{RESOURCE}/v1/namespaces/{namespace}/{resource}");
    let template = |name: &str| json!({"metadata": {"name": name}, "spec": {"spec": claim("", true)["spec"]}});
    let (claims, templates) = (path("resourceclaims"), path("resourceclaimtemplates"));
    for value in [None, Some("false"), Some("True")] {
        let labels = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": value}}});
        admin.patch(&format!("/api/v1/namespaces/{namespace}"), MERGE, &labels).await.is(200, "");
        admin.post(&claims, &claim("c", true)).await.is(422, words);
        admin.post(&templates, &template("t")).await.is(422, words);
    }
    // A claim without admin access whose allocation has it.
    admin.make(&claims, claim("plain", false)).await;
    let result = json!({"request": "r", "driver": "d.example", "pool": "p", "device": "1", "adminAccess": true});
    let allocated = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    admin.patch(&format!("{claims}/plain/status"), MERGE, &allocated).await.is(422, words);
    let labels = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    admin.patch(&format!("/api/v1/namespaces/{namespace}"), MERGE, &labels).await.is(200, "");
    admin.make(&claims, claim("c", true)).await;
    admin.make(&templates, template("t")).await;
}

/// A policy's expressions read its parameters, and a refusal may contain their values.
pub(crate) async fn parameters_of_others(target: &Target) {
    const ADMISSION: &str = "admissionregistration.k8s.io";
    let path = |resource: &str| format!("/apis/{ADMISSION}/v1/{resource}");
    let all = ["validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];
    let policies = || rule(ADMISSION, &all, &["get", "create", "update", "patch"]);
    let bob = target.somebody(json!([policies()])).await;
    let list = target.somebody(json!([policies(), rule("", &["secrets"], &["list"])])).await;
    let get = target.somebody(json!([policies(), rule("", &["secrets"], &["get"])])).await;
    let mut one = rule("", &["secrets"], &["get"]);
    one["resourceNames"] = json!(["s"]);
    let named = target.somebody(json!([policies(), one])).await;
    for (policies, bindings, rules) in [
        ("validatingadmissionpolicies", "validatingadmissionpolicybindings", json!({"validations": [{"expression": "false"}]})),
        ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings", json!({"reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"test\", path: \"/a\", value: \"b\"}]"}}]})),
    ] {
        let (policies, bindings) = (path(policies), path(bindings));
        let name = target.fresh("reads");
        let policy = |kind: &str| {
            let things = json!([{"apiGroups": ["none.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}]);
            let mut spec = rules.clone();
            spec["matchConstraints"] = json!({"resourceRules": things});
            if !kind.is_empty() {
                spec["paramKind"] = json!({"apiVersion": "v1", "kind": kind});
            }
            json!({"metadata": {"name": name}, "spec": spec})
        };
        let words = "must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
        for somebody in [&bob, &list, &named] {
            somebody.post(&policies, &policy("Secret")).await.is(422, words);
        }
        bob.post(&policies, &policy("Nothing")).await.is(422, "(kind=Nothing, apiVersion=v1)");
        bob.post(&policies, &policy("")).await.is(201, "");
        let taken = json!({"spec": {"paramKind": {"apiVersion": "v1", "kind": "Secret"}}});
        bob.patch(&format!("{policies}/{name}"), MERGE, &taken).await.is(422, words);
        get.patch(&format!("{policies}/{name}"), MERGE, &taken).await.is(200, "");
        // Other changes of the policy need no such permission.
        bob.patch(&format!("{policies}/{name}"), MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await.is(200, "");
        let binding = |policy: &str, reference: Value| {
            let mut spec = json!({"policyName": policy, "paramRef": reference});
            if bindings.contains("validating") {
                spec["validationActions"] = json!(["Deny"]);
            }
            json!({"metadata": {"name": name}, "spec": spec})
        };
        let one = json!({"name": "s", "namespace": "kube-system", "parameterNotFoundAction": "Deny"});
        let chosen = json!({"selector": {}, "parameterNotFoundAction": "Deny"});
        let words = "permission on the object referenced by paramRef";
        for (somebody, reference) in [(&bob, &one), (&list, &one), (&bob, &chosen), (&get, &chosen)] {
            somebody.post(&bindings, &binding(&name, reference.clone())).await.is(422, words);
        }
        get.post(&bindings, &binding("none", one.clone())).await.is(422, "unable to get policy none to determine minimum required permissions");
        named.post(&bindings, &binding(&name, one.clone())).await.is(201, "");
        let other = json!({"spec": {"paramRef": {"name": "t"}}});
        named.patch(&format!("{bindings}/{name}"), MERGE, &other).await.is(422, words);
        list.patch(&format!("{bindings}/{name}"), MERGE, &json!({"spec": {"paramRef": {"name": null, "selector": {}}}})).await.is(200, "");
    }
}

/// A write of the status of these kinds cannot change labels, finalizers and owners.
pub(crate) async fn status_changes_no_metadata(target: &Target) {
    let namespace = target.namespace("status").await;
    let name = target.fresh("status");
    let selector = json!({"matchLabels": {"a": "b"}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let service_cidr = json!({"cidrs": ["10.77.0.0/24"]});
    let level = json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}});
    let match_resources = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}]});
    let policy = json!({"matchConstraints": match_resources, "validations": [{"expression": "true"}]});
    for (group, namespaced, resource, spec) in [
        ("storage.k8s.io/v1", false, "volumeattachments", json!({"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}})),
        ("resource.k8s.io/v1", true, "resourceclaims", json!({})),
        ("networking.k8s.io/v1", false, "servicecidrs", service_cidr),
        ("flowcontrol.apiserver.k8s.io/v1", false, "prioritylevelconfigurations", level),
        ("flowcontrol.apiserver.k8s.io/v1", false, "flowschemas", json!({"priorityLevelConfiguration": {"name": "exempt"}})),
        ("admissionregistration.k8s.io/v1", false, "validatingadmissionpolicies", policy),
        ("apps/v1", true, "deployments", json!({"selector": selector, "template": template})),
    ] {
        let base = format!("/apis/{group}{}", if namespaced { format!("/namespaces/{namespace}") } else { String::new() });
        let path = format!("{base}/{resource}");
        let permissions = rule(group.split('/').next().unwrap_or_default(), &[&format!("{resource}/status")], &["get", "update", "patch"]);
        let (admin, bob) = (target.admin(), target.somebody(json!([permissions])).await);
        admin.make(&path, json!({"metadata": {"name": name, "labels": {"a": "1"}}, "spec": spec})).await;
        let read = async || admin.get(&format!("{path}/{name}")).await.json();
        let labels = async || read().await["metadata"]["labels"].clone();
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
        let mut metadata = json!({"labels": {"a": "2", "b": "3"}, "finalizers": ["x.example/f"], "ownerReferences": [owner]});
        if resource == "deployments" {
            // Only the labels of its metadata are kept.
            metadata = json!({"labels": {"a": "2"}});
        }
        let status = format!("{path}/{name}/status");
        bob.patch(&status, MERGE, &json!({"metadata": metadata})).await.is(200, "");
        let mut body = read().await;
        for (field, value) in metadata.as_object().expect("fields") {
            body["metadata"][field] = value.clone();
        }
        bob.send("PUT", &status, &[("content-type", JSON)], body.to_string().as_bytes()).await.is(200, "");
        let applied = json!({"apiVersion": group, "kind": read().await["kind"], "metadata": {"name": name, "labels": {"a": "4"}}});
        bob.give("PATCH", &format!("{status}?fieldManager=m&force=true"), APPLY, applied.to_string()).await.is(200, "");
        let after = read().await;
        assert_eq!(labels().await, json!({"a": "1"}), "{resource}");
        for field in ["finalizers", "ownerReferences"] {
            let own = if (resource, field) == ("servicecidrs", "finalizers") { continue } else { Value::Null };
            assert_eq!(after["metadata"][field], own, "{resource}");
        }
        admin.send("DELETE", &format!("{path}/{name}"), &[], b"").await;
    }
}

/// A dry run leaves no object, cluster IP, node port or valid token behind.
pub(crate) async fn dry_runs(target: &Target) {
    let namespace = target.namespace("dry").await;
    let admin = target.admin();
    let base = format!("/api/v1/namespaces/{namespace}");
    let version = async || admin.get(&format!("{base}/configmaps")).await.json()["metadata"]["resourceVersion"].clone();
    let before = version().await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "clusterIP": "10.96.77.77", "ports": [{"port": 80, "nodePort": 31999}]}});
    admin.post(&format!("{base}/services?dryRun=All"), &service).await.is(201, "");
    admin.post(&format!("{base}/pods?dryRun=All"), &pod("p")).await.is(201, "");
    admin.send("DELETE", &format!("{base}/serviceaccounts/default?dryRun=All"), &[], b"").await.is(200, "");
    admin.send("DELETE", &format!("{base}/serviceaccounts?dryRun=All"), &[], b"").await.is(200, "");
    admin.patch(&format!("{base}?dryRun=All"), MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await.is(200, "");
    admin.post(&format!("{base}/configmaps?dryRun=Some"), &json!({"metadata": {"name": "x"}})).await.is(422, "");
    admin.get(&format!("{base}/pods/p")).await.is(404, "");
    admin.get(&format!("{base}/serviceaccounts/default")).await.is(200, "");
    admin.get("/api/v1/services?fieldSelector=metadata.name%3Ds").await.is(200, "\"items\":[]");
    if !target.is_upstream() {
        assert_eq!(before, version().await, "nothing was written");
    }
    // The cluster IP and the node port are still free.
    admin.post(&format!("{base}/services"), &service).await.is(201, "");
    // A dry run needs the permission to write.
    target.user("ann").post(&format!("{base}/pods?dryRun=All"), &pod("p")).await.is(403, "");
}

/// The permission to update does not include creation.
pub(crate) async fn updates_that_create(target: &Target) {
    let namespace = target.namespace("create").await;
    let rules = json!([rule("", &["configmaps", "events"], &["get", "update", "patch"]), rule("coordination.k8s.io", &["leases"], &["get", "update", "patch"])]);
    let user = target.somebody(rules).await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l");
    user.give("PUT", &path, JSON, lease.to_string()).await.is(403, "");
    user.give("PATCH", &format!("{path}?fieldManager=m"), APPLY, lease.to_string()).await.is(403, "");
    let configmap = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/c?fieldManager=m");
    user.give("PATCH", &path, APPLY, configmap.to_string()).await.is(403, "");
}

/// Fields that only the server writes.
pub(crate) async fn fields_of_the_server(target: &Target) {
    let bob = target.fresh("requester");
    target.grant(&bob, json!([rule("certificates.k8s.io", &["certificatesigningrequests"], &["*"])])).await;
    let user = target.admin().header("Impersonate-User", &bob);
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "x");
    let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let request = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, request);
    let csr = json!({"metadata": {"name": target.fresh("csr")}, "spec": {"request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
        "username": "admin", "groups": ["system:masters"], "uid": "0", "extra": {"a": ["b"]}},
        "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r"}], "certificate": "eA=="}});
    let answer = user.post("/apis/certificates.k8s.io/v1/certificatesigningrequests", &csr).await;
    answer.is(201, "");
    let made = answer.json();
    assert_eq!(made["spec"]["username"], json!(bob));
    assert_eq!(made["spec"]["groups"], json!(["system:authenticated"]));
    assert!(made["spec"]["extra"].get("a").is_none() && made["status"] == json!({}), "{made}");
    // Approval needs more than the permission to write the request.
    let name = made["metadata"]["name"].as_str().expect("a name");
    let mut approved = made.clone();
    approved["status"] = csr["status"].clone();
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
    user.give("PUT", &path, JSON, approved.to_string()).await.is(200, "");
    assert_eq!(target.admin().get(&path).await.json()["status"], json!({}));
    let root = json!({"metadata": {"name": target.fresh("csr")}, "spec": {"request": csr["spec"]["request"], "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    params.distinguished_name.push(rcgen::DnType::CommonName, "x");
    let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let mut root = root;
    root["spec"]["request"] = json!(base64::Engine::encode(&base64::prelude::BASE64_STANDARD, request));
    user.post("/apis/certificates.k8s.io/v1/certificatesigningrequests", &root).await.is(403, "system:masters");
}

/// Anonymous users may only read health checks and the version.
pub(crate) async fn anonymous_users(target: &Target) {
    let anonymous = target.anonymous();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        anonymous.get(path).await.is(200, "");
    }
    for path in ["/", "/api", "/apis", "/metrics", "/openapi/v2", "/openapi/v3", "/api/v1/namespaces", "/debug/pprof/", "/logs", "/metrics/slis", "/healthz/etcd", "/apis/apps/v1", "/configz", "/debug/flags/v"] {
        let answer = anonymous.get(path).await;
        assert_eq!(answer.code, 403, "{path}: {}", answer.text());
    }
}

