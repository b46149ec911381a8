//! The operator of databases on a whole cluster in this process.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod calls;
#[path = "../../permissions.rs"]
mod permissions;

use calls::database;
use database_operator::{Database, configurations, definition, operator, webhooks};
use evenkeel_runtime::prelude::*;
use evenkeel_test::{Running, TestCluster, TestServer, eventually, eventually_gone};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    batch::v1::CronJob,
    core::v1::{PersistentVolumeClaim, Pod, Service},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_database_gets_volumes_and_backups() {
    let cluster = TestCluster::start().await.unwrap();
    // The webhooks are not called, because a server in virtual time has no sockets.
    let mut crd = definition("default", 443).unwrap();
    crd["spec"]["conversion"] = json!({"strategy": "None"});
    cluster.crd_value(&crd).await.unwrap();
    // The operator has the permissions of its manifest.
    let manifest = include_str!("../manifests/operator.yaml");
    let groups = permissions::grant(&cluster.client(), manifest, "database-operator").await;
    let kube = cluster.client_as("system:serviceaccount:default:database-operator", groups);
    let hooks = || webhooks(0, "default");
    let running = cluster.run(move |_, setup| operator(kube.clone(), setup, hooks()));
    let databases = cluster.api::<Database>();
    databases.create(&PostParams::default(), &database(2, Some("*/5 * * * *"))).await.unwrap();
    let is_ready = |found: &Database| {
        found.status.as_ref().is_some_and(|status| {
            status.ready_instances == 2 && conditions::is_true(&status.conditions, "Ready")
        })
    };
    eventually(&databases, "orders", is_ready).await.unwrap();
    let claims = cluster.api::<PersistentVolumeClaim>();
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    for claim in ["data-orders-0", "data-orders-1"] {
        eventually(&claims, claim, is_bound).await.unwrap();
    }

    let has_backup =
        |found: &Database| found.status.as_ref().is_some_and(|status| status.last_backup.is_some());
    let minutes = Duration::from_secs(10 * 60);
    eventually(&databases, "orders", has_backup).within(minutes).await.unwrap();
    let none = Patch::Merge(json!({"spec": {"backupSchedule": null}}));
    databases.patch("orders", &PatchParams::default(), &none).await.unwrap();
    let backups = cluster.api::<CronJob>();
    eventually_gone(&backups, "orders-backup").await.unwrap();

    databases.delete("orders", &DeleteParams::default()).await.unwrap();
    eventually_gone(&databases, "orders").await.unwrap();
    let pods = cluster.api::<Pod>();
    eventually_gone(&pods, "orders-0").await.unwrap();
    eventually_gone(&claims, "data-orders-0").await.unwrap();
    running.stop().await.unwrap();
}

/// Starts the operator, whose webhooks listen on a free port, and makes the server call them.
async fn start_with_webhooks(server: &TestServer) -> Running {
    let hooks = webhooks(0, "default");
    let shared = hooks.clone();
    let running = server.run(move |kube, _| operator(kube, Setup::of_process()?, shared.clone()));
    while hooks.local_port().is_none() {
        tokio::task::yield_now().await;
    }
    let port = hooks.local_port().unwrap();
    server.crd_value(&definition("default", port).unwrap()).await.unwrap();
    let client = server.client();
    // The Service routes to this machine.
    let service = json!({
        "metadata": {"name": "database-webhooks"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    let post = PostParams::default();
    server.api::<Service>().create(&post, &object(service)).await.unwrap();
    let [mutating, validating] = configurations("default", port);
    let mutations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    mutations.create(&post, &object(mutating)).await.unwrap();
    validations.create(&post, &object(validating)).await.unwrap();
    eventually(&mutations, "databases", |found| {
        found.webhooks.iter().flatten().all(|hook| hook.client_config.ca_bundle.is_some())
    })
    .await
    .unwrap();
    eventually(&validations, "databases", |found| {
        found.webhooks.iter().flatten().all(|hook| hook.client_config.ca_bundle.is_some())
    })
    .await
    .unwrap();
    running
}

#[tokio::test]
async fn the_server_calls_the_webhooks() {
    let server = TestServer::start().await.unwrap();
    let running = start_with_webhooks(&server).await;
    calls::the_server_calls_the_webhooks(server.client()).await;
    running.stop().await.unwrap();
}
