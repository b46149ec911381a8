//! The operator on an API server in this process, in virtual time, with no more than the permissions of `deploy/rbac.yaml`.

use evenkeel_runtime::prelude::*;
use evenkeel_test::{TestServer, eventually};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Event},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use {{crate_name}}::{{kind}};
use {{crate_name}}::{{kind}}Spec;
use {{crate_name}}::operator;

const RBAC: &str = include_str!("../deploy/rbac.yaml");

/// Returns the object of a kind in `deploy/rbac.yaml`.
fn deployed<K: serde::de::DeserializeOwned>(kind: &str) -> K {
    let objects: Vec<Value> = serde_saphyr::from_multiple(RBAC).unwrap();
    let found = objects.into_iter().find(|object| object["kind"] == kind);
    serde_json::from_value(found.unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_config_map_follows_the_object() {
    let server = TestServer::builder().crd::<{{kind}}>().start().await.unwrap();
    let (roles, bindings) = (Api::all(server.client()), Api::all(server.client()));
    let role: ClusterRole = deployed("ClusterRole");
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding: ClusterRoleBinding = deployed("ClusterRoleBinding");
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let account = "system:serviceaccount:{{project-name}}:{{project-name}}";
    let restricted = server.client_as(account, ["system:serviceaccounts"]);
    let running = server.run(move |_, setup| operator(restricted.clone(), setup));

    let objects = server.api::<{{kind}}>();
    let hello = {{kind}}::new("hello", {{kind}}Spec { text: "hello".to_owned() });
    objects.create(&PostParams::default(), &hello).await.unwrap();
    let ready = |object: &{{kind}}| {
        let conditions = object.status.as_ref().map(|status| &*status.conditions);
        conditions::is_true(conditions.unwrap_or_default(), "Ready")
    };
    eventually(&objects, "hello", ready).await.unwrap();
    let maps = server.api::<ConfigMap>();
    let has = |text: &'static str| {
        move |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["text"] == text)
    };
    eventually(&maps, "hello", has("hello")).await.unwrap();

    let change = Patch::Merge(json!({"spec": {"text": "goodbye"}}));
    objects.patch("hello", &PatchParams::default(), &change).await.unwrap();
    eventually(&maps, "hello", has("goodbye")).await.unwrap();
    let events = server.api::<Event>();
    let written = ListParams::default().fields("reason=Written");
    assert!(!events.list(&written).await.unwrap().items.is_empty());
    running.stop().await.unwrap();
}
