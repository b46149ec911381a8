//! Admission plug-ins, authorization modes and the range of cluster IPs, set at start.

use evenkeel_apiserver::{Builder, Server, User};
use http::StatusCode;
use serde_json::{Value, json};

use crate::Client;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub(crate) async fn admin(builder: Builder) -> Client {
    Client(builder.build().await.expect("a server in memory").service())
}

fn pod(name: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "a", "image": "a"}]);
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Effect of a plug-in on one object: its path, the object, and a check of the response that holds only if the plug-in
/// is enabled.
type Effect = (&'static str, &'static str, Value, fn(StatusCode, &Value) -> bool);

fn effects() -> Vec<Effect> {
    let toleration = |_, pod: &Value| !pod["spec"]["tolerations"].is_null();
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let refused = |code, _: &Value| code == StatusCode::FORBIDDEN;
    let absent = |code, _: &Value| code == StatusCode::NOT_FOUND;
    vec![
        (
            "NamespaceLifecycle",
            "/api/v1/namespaces/absent/configmaps",
            json!({"metadata": {"name": "a"}}),
            absent,
        ),
        ("ServiceAccount", PODS, pod("a", json!({})), refused),
        (
            "Priority",
            PODS,
            pod("b", json!({"priorityClassName": "absent", "serviceAccountName": "known"})),
            refused,
        ),
        (
            "RuntimeClass",
            PODS,
            pod("c", json!({"runtimeClassName": "absent", "serviceAccountName": "known"})),
            refused,
        ),
        (
            "DefaultTolerationSeconds",
            PODS,
            pod("d", json!({"serviceAccountName": "known"})),
            toleration,
        ),
        (
            "PodSecurity",
            "/api/v1/namespaces/strict/pods",
            pod("e", json!({"serviceAccountName": "known", "hostNetwork": true})),
            refused,
        ),
        (
            "LimitRanger",
            "/api/v1/namespaces/limited/pods",
            pod("f", json!({"serviceAccountName": "known"})),
            |_, pod| !pod["spec"]["containers"][0]["resources"]["limits"].is_null(),
        ),
        (
            "ResourceQuota",
            "/api/v1/namespaces/full/configmaps",
            json!({"metadata": {"name": "a"}}),
            refused,
        ),
        (
            "PodTopologyLabels",
            PODS,
            pod("g", json!({"serviceAccountName": "known", "nodeName": "n"})),
            |_, pod| pod["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z",
        ),
        (
            "TaintNodesByCondition",
            "/api/v1/nodes",
            json!({"metadata": {"name": "m"}}),
            |_, node| !node["spec"]["taints"].is_null(),
        ),
        ("DefaultStorageClass", claims, claim.clone(), |_, claim| {
            claim["spec"]["storageClassName"] == "usual"
        }),
        ("StorageObjectInUseProtection", claims, claim, |_, claim| {
            !claim["metadata"]["finalizers"].is_null()
        }),
    ]
}

/// Creates the objects that the plug-ins read.
async fn prepare(client: &Client) {
    let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}});
    client.make("/api/v1/nodes", node).await;
    let class =
        json!({"metadata": {"name": "usual", "annotations": {CLASS: "true"}}, "provisioner": "p"});
    client.make("/apis/storage.k8s.io/v1/storageclasses", class).await;
    let strict = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    for (name, labels) in [("strict", strict), ("limited", json!({})), ("full", json!({}))] {
        client
            .make("/api/v1/namespaces", json!({"metadata": {"name": name, "labels": labels}}))
            .await;
    }
    for namespace in ["default", "strict", "limited"] {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        client.make(&path, json!({"metadata": {"name": "known"}})).await;
    }
    let limits = json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}});
    client.make("/api/v1/namespaces/limited/limitranges", limits).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "0"}}});
    let quota = client.make("/api/v1/namespaces/full/resourcequotas", quota).await;
    let counted = json!({"status": {"hard": quota["spec"]["hard"], "used": {"configmaps": "0"}}});
    let path = "/api/v1/namespaces/full/resourcequotas/q/status";
    assert_eq!(client.ask("PATCH", path, counted).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_disabled_plug_in_does_nothing_and_the_others_go_on() {
    let effects = effects();
    let on = admin(Server::builder()).await;
    prepare(&on).await;
    for (plugin, path, object, seen) in &effects {
        let (code, answer) = on.ask("POST", &format!("{path}?dryRun=All"), object.clone()).await;
        assert!(seen(code, &answer), "{plugin} is on: {code} {answer}");
    }
    for (plugin, path, object, seen) in &effects {
        let off = admin(Server::builder().disable_admission_plugin(*plugin)).await;
        prepare(&off).await;
        let (code, answer) = off.ask("POST", path, object.clone()).await;
        assert_eq!(code, StatusCode::CREATED, "{plugin} is off: {answer}");
        assert!(!seen(code, &answer), "{plugin} is off: {answer}");
    }
}

#[tokio::test]
async fn authorizers_are_those_of_the_modes() {
    for (modes, code) in [
        (&[] as &[&str], StatusCode::FORBIDDEN),
        (&["RBAC"], StatusCode::FORBIDDEN),
        (&["AlwaysDeny"], StatusCode::FORBIDDEN),
        (&["Node", "AlwaysAllow"], StatusCode::OK),
    ] {
        let builder = modes.iter().fold(Server::builder(), |b, mode| b.authorization_mode(*mode));
        let server = builder.build().await.expect("a server in memory");
        let user = Client(server.service_as(User::authenticated("somebody", [])));
        assert_eq!(user.ask("GET", "/api/v1/secrets", Value::Null).await.0, code, "{modes:?}");
        let admin = Client(server.service());
        assert_eq!(admin.ask("GET", "/api/v1/secrets", Value::Null).await.0, StatusCode::OK);
    }
    let error = Server::builder().authorization_mode("ABAC").build().await.expect_err("refused");
    let why = "authorization-mode: authorization mode \"ABAC\" is not in this server";
    assert_eq!(error.to_string(), why);
}

#[tokio::test]
async fn cluster_ips_come_out_of_the_range_that_was_given() {
    let client = admin(Server::builder().service_cluster_ip_range("10.0.0.0/24")).await;
    let kubernetes = client.get("/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(kubernetes["spec"]["clusterIP"], "10.0.0.1");
    let range = client.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await;
    assert_eq!(range["spec"]["cidrs"], json!(["10.0.0.0/24"]));
    let service = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    let made = client.make("/api/v1/namespaces/default/services", service).await;
    let ip = made["spec"]["clusterIP"].as_str().unwrap_or_default();
    assert!(ip.starts_with("10.0.0."), "{ip}");
    for (range, why) in [
        ("10.0.0.0", "is not a range in CIDR notation"),
        ("10.0.0.0/16,10.1.0.0/16", "both ranges must be of different IP families"),
        ("10.0.0.0/16,fd00::/108,fd01::/108", "there must be one range or two"),
        ("fd00::/108", "the IP family of the first range, IPv6, must be that of the advertised"),
        ("10.0.0.0/16,fd00::/48", "the prefix of an IPv6 range has at least 64 bits"),
        ("10.0.0.0/30", "it must have at least 8 addresses"),
    ] {
        let error = Server::builder().service_cluster_ip_range(range).build().await;
        let error = error.expect_err(why).to_string();
        assert!(error.starts_with("service-cluster-ip-range: ") && error.contains(why), "{error}");
    }
}
