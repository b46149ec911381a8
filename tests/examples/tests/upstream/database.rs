//! The operator of databases, with webhooks that the server calls and certificates that are rotated meanwhile.

use crate::{Running, TIMEOUT, calls, define, until};
use database_operator::{Database, configurations, definition, operator, v1beta1, webhooks};
use evenkeel_runtime::{
    api::time::SignedDuration, clock::Clock, prelude::*, tasks::Tasks, webhook::WebhookServer,
};
use evenkeel_test::{eventually, eventually_gone};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{PersistentVolumeClaim, Secret, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::{from_value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::oneshot;

/// Secret of the certificates.
const SECRET: &str = "database-webhooks-tls";

/// Number of databases that are created before and after the rotation.
const DATABASES: usize = 5;

/// Returns a clock that is some days behind.
fn days_ago(days: i64) -> Clock {
    Clock::starting_at(Clock::system().now() - SignedDuration::from_hours(24 * days))
}

/// Starts a replica that has the webhooks alone.
fn replica(kube: &Client, clock: Clock, opens_port: bool, hooks: &WebhookServer) -> Running {
    let builder = Manager::builder(kube.clone());
    let builder = match opens_port {
        true => builder.clock(clock),
        false => builder.setup(Setup::simulated(clock, "webhooks")),
    };
    let manager = builder.build().unwrap();
    manager.add_webhooks(hooks.clone());
    Running::start(manager)
}

fn secrets(kube: &Client) -> Api<Secret> {
    Api::default_namespaced(kube.clone())
}

fn data<'s>(secret: &'s Secret, key: &str) -> &'s [u8] {
    &secret.data.as_ref().unwrap()[key].0
}

fn n_authorities(secret: &Secret) -> usize {
    String::from_utf8_lossy(data(secret, "ca.crt")).matches("BEGIN CERTIFICATE").count()
}

/// Makes the server call the webhooks at a port of this machine, and waits until it trusts them.
async fn register(kube: &Client, port: u16) {
    let post = PostParams::default();
    let services: Api<Service> = Api::default_namespaced(kube.clone());
    let service = json!({
        "metadata": {"name": "database-webhooks"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    services.create(&post, &from_value(service).unwrap()).await.unwrap();
    define(kube, definition("default", port).unwrap()).await;
    let [mutating, validating] = configurations("default", port);
    let mutations: Api<MutatingWebhookConfiguration> = Api::all(kube.clone());
    mutations.create(&post, &from_value(mutating).unwrap()).await.unwrap();
    let validations: Api<ValidatingWebhookConfiguration> = Api::all(kube.clone());
    validations.create(&post, &from_value(validating).unwrap()).await.unwrap();
    trusted(kube).await;
}

/// Waits until all callers trust the CAs of the Secret.
async fn trusted(kube: &Client) {
    let secret = secrets(kube).get(SECRET).await.unwrap();
    let bundle = &ByteString(data(&secret, "ca.crt").to_vec());
    let mutations: Api<MutatingWebhookConfiguration> = Api::all(kube.clone());
    let wait = eventually(&mutations, "databases", |found| {
        let hooks = found.webhooks.iter().flatten();
        hooks.into_iter().all(|hook| hook.client_config.ca_bundle.as_ref() == Some(bundle))
    });
    wait.within(TIMEOUT).await.unwrap();
    let validations: Api<ValidatingWebhookConfiguration> = Api::all(kube.clone());
    let wait = eventually(&validations, "databases", |found| {
        let hooks = found.webhooks.iter().flatten();
        hooks.into_iter().all(|hook| hook.client_config.ca_bundle.as_ref() == Some(bundle))
    });
    wait.within(TIMEOUT).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(kube.clone());
    let bundle = serde_json::to_value(bundle).unwrap();
    let wait = eventually(&definitions, "databases.data.example.com", |found| {
        let pointer = "/spec/conversion/webhook/clientConfig/caBundle";
        serde_json::to_value(found).unwrap().pointer(pointer) == Some(&bundle)
    });
    wait.within(TIMEOUT).await.unwrap();
}

/// Returns a database of this number, whose number of instances a webhook sets.
fn database(number: usize) -> Database {
    let mut database = calls::database(0, None);
    database.metadata.name = Some(format!("db-{number}"));
    database
}

/// Creates a database, reads it in its old version, and deletes it.
async fn create_and_read(kube: &Client, number: usize) -> Result<(), String> {
    let text = |error: kube::Error| error.to_string();
    let current: Api<Database> = Api::default_namespaced(kube.clone());
    let created = current.create(&PostParams::default(), &database(number)).await.map_err(text)?;
    let old: Api<v1beta1::Database> = Api::default_namespaced(kube.clone());
    let name = format!("db-{number}");
    let converted = old.get(&name).await.map_err(text)?;
    current.delete(&name, &DeleteParams::default()).await.map_err(text)?;
    match (created.spec.instances, converted.spec.storage_gi) {
        (1, 10) => Ok(()),
        other => Err(format!("{name}: default and conversion: {other:?}")),
    }
}

pub(crate) async fn certificates_are_rotated_while_databases_are_created(
    kube: &Client,
    of_operator: &Client,
) {
    // A CA that is seven years old, and a serving certificate that is valid for three more months.
    for days in [7 * 365, 9 * 30] {
        let before = secrets(kube).get_opt(SECRET).await.unwrap();
        let before = before.map(|secret| data(&secret, "tls.crt").to_vec());
        let founder = replica(kube, days_ago(days), false, &webhooks(0, "default"));
        let is_renewed = |secret: &Secret| before.as_deref() != Some(data(secret, "tls.crt"));
        eventually(&secrets(kube), SECRET, is_renewed).within(TIMEOUT).await.unwrap();
        founder.stop().await;
    }
    let founded = secrets(kube).get(SECRET).await.unwrap();
    assert_eq!(n_authorities(&founded), 1);

    // The replica that the server calls, with a clock by which nothing is due.
    let hooks = webhooks(0, "default");
    let serving = replica(kube, days_ago(9 * 30), true, &hooks);
    until("the webhooks listen", async || hooks.local_port().is_some()).await;
    let port = hooks.local_port().unwrap();
    register(kube, port).await;
    // The server learns of the configurations a moment later.
    let count = Arc::new(AtomicUsize::new(0));
    let attempt =
        async || create_and_read(kube, count.fetch_add(1, Ordering::SeqCst)).await.is_ok();
    until("the server calls the webhooks", attempt).await;

    let rotated = Arc::new(AtomicBool::new(false));
    let (until_rotated, counted, caller) = (Arc::clone(&rotated), Arc::clone(&count), kube.clone());
    let (tasks, (end, failures)) = (Tasks::new(), oneshot::channel());
    tasks.spawn_finite("requests", async move {
        let mut failures = Vec::new();
        while !until_rotated.load(Ordering::SeqCst) {
            let number = counted.load(Ordering::SeqCst);
            failures.extend(create_and_read(&caller, number).await.err());
            counted.store(number + 1, Ordering::SeqCst);
        }
        // The test may have failed.
        let _ = end.send(failures);
    });
    let more = async |what: &str| {
        let target = count.load(Ordering::SeqCst) + DATABASES;
        until(what, async || count.load(Ordering::SeqCst) >= target).await;
    };
    more("databases before the rotation").await;

    // The operator, with the right time: both the serving certificate and the CA are due.
    let setup = Setup::simulated(Clock::system(), "databases");
    let manager = operator(of_operator.clone(), setup, webhooks(0, "default")).unwrap();
    let running = Running::start(manager);
    let is_rotated = |secret: &Secret| n_authorities(secret) == 2;
    let renewed = eventually(&secrets(kube), SECRET, is_rotated).within(TIMEOUT).await.unwrap();
    assert!(
        data(&renewed, "ca.crt").ends_with(data(&founded, "ca.crt")),
        "the old CA stays trusted"
    );
    assert_ne!(data(&renewed, "tls.crt"), data(&founded, "tls.crt"));
    trusted(kube).await;
    more("databases after the rotation").await;
    rotated.store(true, Ordering::SeqCst);
    assert_eq!(failures.await.unwrap(), [""; 0]);
    assert_eq!(tasks.shut_down(TIMEOUT).await, [""; 0]);

    // Another process at the same port: the server connects anew, and trusts the new certificate.
    serving.stop().await;
    let hooks = webhooks(port, "default");
    let serving = replica(kube, Clock::system(), true, &hooks);
    until("the webhooks listen again", async || hooks.local_port().is_some()).await;
    calls::the_server_calls_the_webhooks(kube.clone()).await;
    let databases: Api<Database> = Api::default_namespaced(kube.clone());
    let is_ready = |found: &Database| {
        found.status.as_ref().is_some_and(|status| {
            status.ready_instances == 2 && conditions::is_true(&status.conditions, "Ready")
        })
    };
    eventually(&databases, "orders", is_ready).within(TIMEOUT).await.unwrap();
    databases.delete("orders", &DeleteParams::default()).await.unwrap();
    eventually_gone(&databases, "orders").within(TIMEOUT).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(kube.clone());
    eventually_gone(&claims, "data-orders-0").within(TIMEOUT).await.unwrap();
    running.stop().await;
    serving.stop().await;
}
