//! Servers: their options, users and kubeconfigs.

use crate::{CRDS, code, object, pod};
use evenkeel_test::{Clock, CrdError, StartError, TestServer, TestServerBuilder};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Pod, Secret},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;

fn params() -> PostParams {
    PostParams::default()
}

fn config_map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}}))
}

async fn start(builder: TestServerBuilder) -> TestServer {
    builder.start().await.expect("a server")
}

#[tokio::test(start_paused = true)]
async fn servers_share_nothing_and_repeat_with_a_seed() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
    let mut created = Vec::new();
    for seed in [7, 7, 8] {
        let server = start(TestServer::builder().clock(clock.clone()).seed(seed)).await;
        let map = server.api().create(&params(), &config_map("a")).await.expect("created");
        assert_eq!(
            map.metadata.creation_timestamp.expect("a time").0.to_string(),
            "2026-01-01T00:00:00Z"
        );
        created.push(map.metadata.uid);
    }
    assert_eq!(created[0], created[1]);
    assert_ne!(created[0], created[2]);
}

#[tokio::test(start_paused = true)]
async fn an_api_has_the_objects_of_the_default_namespace() {
    let server = start(TestServer::builder()).await;
    let maps = server.api::<ConfigMap>();
    let created = maps.create(&params(), &config_map("a")).await.expect("created");
    assert_eq!(created.metadata.namespace.as_deref(), Some("default"));
    let elsewhere: Api<ConfigMap> = Api::namespaced(server.client(), "kube-system");
    elsewhere.create(&params(), &config_map("b")).await.expect("created");
    let found = maps.list(&ListParams::default()).await.expect("granted").items;
    let names: Vec<_> = found.iter().map(|map| map.metadata.name.as_deref()).collect();
    assert_eq!(names, [Some("a")]);
}

#[tokio::test(start_paused = true)]
async fn rbac_grants_by_user_and_group() {
    let server = start(TestServer::builder()).await;
    let hers = |groups: &[&str]| {
        let client = server.client_as("alice", groups.iter().copied());
        Api::<Secret>::default_namespaced(client)
    };
    let list = ListParams::default();
    assert_eq!(code(hers(&["devs"]).list(&list).await), 403);
    let role = json!({
        "metadata": {"name": "devs"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}],
    });
    let binding = json!({
        "metadata": {"name": "devs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "devs"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}],
    });
    let roles: Api<Role> = Api::default_namespaced(server.client());
    roles.create(&params(), &object(role)).await.expect("created");
    let bindings: Api<RoleBinding> = Api::default_namespaced(server.client());
    bindings.create(&params(), &object(binding)).await.expect("created");
    hers(&["devs"]).list(&list).await.expect("granted");
    assert_eq!(code(hers(&[]).list(&list).await), 403);

    let server = start(TestServer::builder().without_rbac()).await;
    let hers: Api<Secret> = Api::default_namespaced(server.client_as("alice", []));
    hers.list(&list).await.expect("allowed");
}

#[tokio::test(start_paused = true)]
async fn admission_plugins_are_switched() {
    // Expected: whether a pod without a service account is created, and a ConfigMap in a missing namespace.
    for (name, builder, expected) in [
        ("default", TestServer::builder(), [true, false]),
        (
            "enabled",
            TestServer::builder().enable_admission_plugin("ServiceAccount"),
            [false, false],
        ),
        (
            "disabled",
            TestServer::builder().disable_admission_plugin("NamespaceLifecycle"),
            [true, true],
        ),
        ("none", TestServer::builder().without_admission(), [true, true]),
        (
            "one of none",
            TestServer::builder().without_admission().enable_admission_plugin("ServiceAccount"),
            [false, true],
        ),
        (
            "none of one",
            TestServer::builder().enable_admission_plugin("ServiceAccount").without_admission(),
            [true, true],
        ),
    ] {
        let server = start(builder).await;
        let pods: Api<Pod> = Api::default_namespaced(server.client());
        let maps: Api<ConfigMap> = Api::namespaced(server.client(), "absent");
        let made = [
            pods.create(&params(), &pod("a")).await.is_ok(),
            maps.create(&params(), &config_map("a")).await.is_ok(),
        ];
        assert_eq!(made, expected, "{name}");
    }
    let error = TestServer::builder().disable_admission_plugin("Wrong").start().await;
    assert!(matches!(error, Err(StartError::Server(_))));
}

#[tokio::test(start_paused = true)]
async fn definitions_of_files_are_served_at_once() {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let resource = ApiResource::from_gvk(&kind);
    let widget = |name: &str, size: i32| {
        DynamicObject::new(name, &resource).data(json!({"spec": {"size": size}}))
    };
    let at_start = start(TestServer::builder().crds_from(CRDS)).await;
    let later = start(TestServer::builder()).await;
    later.crds_from(format!("{CRDS}/widgets.yaml")).await.expect("established");
    for server in [at_start, later] {
        let widgets: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &resource);
        let small = widgets.create(&params(), &widget("small", 1)).await.expect("created");
        assert_eq!(small.data["spec"], json!({"size": 1, "color": "blue"}));
        assert_eq!(code(widgets.create(&params(), &widget("none", 0)).await), 422);
        let again = server.crds_from(CRDS).await;
        assert!(
            matches!(again, Err(CrdError::Refused { name, .. }) if name == "widgets.example.com")
        );
    }
    let absent = TestServer::builder().crds_from("absent").start().await;
    assert!(matches!(absent, Err(StartError::Crds(CrdError::Read { .. }))));
}

#[tokio::test(start_paused = true)]
async fn definitions_are_refused_or_not_established() {
    let definition = |plural: &str, singular: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"plural": plural, "singular": singular, "kind": singular.to_uppercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object"}}}],
            },
        })
    };
    let server = start(TestServer::builder().crd_value(&definition("as", "a"))).await;
    server.crd_value(&definition("bs", "b")).await.expect("established");
    // The singular name is taken, so the server does not accept the definition's names.
    let error = server.crd_value(&definition("cs", "a")).await;
    assert!(
        matches!(&error, Err(CrdError::NotEstablished { name, .. }) if name == "cs.example.com"),
        "{error:?}"
    );
    let error = server.crd_value(&json!({"metadata": {"name": "x"}})).await;
    assert!(matches!(error, Err(CrdError::Refused { .. })), "{error:?}");
    let error = server.crd_value(&"text").await;
    assert!(matches!(error, Err(CrdError::Invalid(_))), "{error:?}");
}

/// This test runs in real time, because the client uses a socket.
#[tokio::test]
async fn a_kubeconfig_leads_to_the_server_until_it_stops() {
    let server = start(TestServer::builder()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kubeconfig");
    server.kubeconfig(&path).await.expect("written");
    let first = std::fs::read_to_string(&path).expect("it is there");
    server.kubeconfig(&path).await.expect("written again");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), first, "the port stays open");
    let mode = path.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let config = Kubeconfig::read_from(&path).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("a config")).expect("a client");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&params(), &config_map("over-the-socket")).await.expect("created");
    let inside: Api<ConfigMap> = Api::default_namespaced(server.client());
    inside.get("over-the-socket").await.expect("it is the same server");
    server.stop().await;
    assert_eq!(code(maps.get("over-the-socket").await), 0);
}
