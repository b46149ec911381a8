//! Webhooks of an operator, which an API server calls over TLS.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod apps;

use apps::{SECRET, app, configuration, definition, service_object, webhooks};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_api::time::SignedDuration;
use evenkeel_runtime::{
    clock::Clock,
    manager::{Manager, ManagerError, RunContext, RunnableGroup, Setup},
    tasks::Tasks,
    webhook::WebhookServer,
};
use evenkeel_test::{TestServer, eventually};
use evenkeel_x509::CertPool;
use http::Request;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{Secret, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    client::Body,
    core::GroupVersionKind,
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpStream, sync::oneshot};
use tokio_util::sync::CancellationToken;

/// Timeout of a wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A day: the time in which a certificate becomes due.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A manager with webhooks that runs in the background.
struct Operator {
    hooks: WebhookServer,
    stop: CancellationToken,
    ended: oneshot::Receiver<Result<(), ManagerError>>,
}

impl Operator {
    /// Starts a manager, and waits until it serves.
    async fn start(server: &TestServer, tasks: &Tasks, clock: Clock, opens_port: bool) -> Self {
        let builder = Manager::builder(server.client()).clock(clock.clone());
        let manager = match opens_port {
            true => builder,
            false => builder.setup(Setup::simulated(clock, "me")),
        };
        let (manager, hooks) = (manager.build().unwrap(), webhooks());
        manager.add_webhooks(hooks.clone());
        let (started, is_started) = oneshot::channel();
        let readiness = manager.readiness().clone();
        manager.add(RunnableGroup::Others, "started", move |context: RunContext| async move {
            assert_eq!(readiness.failures(), []);
            let _ = started.send(());
            context.stopped().await;
            Ok(())
        });
        let (stop, (end, ended)) = (CancellationToken::new(), oneshot::channel());
        let stopped = stop.clone();
        tasks.spawn_finite("operator", async move {
            let _ = end.send(manager.run(stopped.cancelled_owned()).await);
        });
        tokio::time::timeout(TIMEOUT, is_started).await.unwrap().unwrap();
        Self { hooks, stop, ended }
    }

    fn port(&self) -> u16 {
        self.hooks.local_port().unwrap()
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, self.ended).await.unwrap().unwrap().unwrap();
    }
}

fn api<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<DynamicType = ()>,
{
    Api::all(client.clone())
}

fn apps(client: &Client, version: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("example.com", version, "App"),
        "apps",
    );
    Api::namespaced_with(client.clone(), "default", &resource)
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Creates the objects that call the webhooks, and waits until these objects trust the webhooks' CA.
async fn register(server: &TestServer, port: u16) {
    let (client, post) = (server.client(), PostParams::default());
    let services: Api<Service> = Api::default_namespaced(client.clone());
    services.create(&post, &object(service_object())).await.unwrap();
    server.crd_value(&definition(port)).await.unwrap();
    let mutating = configuration(port, "/mutate-example-com-v1-app");
    api::<MutatingWebhookConfiguration>(&client).create(&post, &object(mutating)).await.unwrap();
    let validating = configuration(port, "/validate-example-com-v1-app");
    api::<ValidatingWebhookConfiguration>(&client)
        .create(&post, &object(validating))
        .await
        .unwrap();
    let secret = secrets(&client).get(SECRET).await.unwrap();
    trusted(&client, &data(&secret, "ca.crt")).await;
}

fn secrets(client: &Client) -> Api<Secret> {
    Api::default_namespaced(client.clone())
}

fn data(secret: &Secret, key: &str) -> Vec<u8> {
    secret.data.as_ref().unwrap()[key].0.clone()
}

/// Waits until all callers have this bundle.
async fn trusted(client: &Client, bundle: &[u8]) {
    let bundle = Value::from(BASE64_STANDARD.encode(bundle));
    let hook = "/webhooks/0/clientConfig/caBundle";
    let mutating = api::<MutatingWebhookConfiguration>(client);
    eventually(&mutating, "apps", |found| has(found, hook, &bundle)).await.unwrap();
    let validating = api::<ValidatingWebhookConfiguration>(client);
    eventually(&validating, "apps", |found| has(found, hook, &bundle)).await.unwrap();
    let conversion = "/spec/conversion/webhook/clientConfig/caBundle";
    let definitions = api::<CustomResourceDefinition>(client);
    let has_bundle = |found: &_| has(found, conversion, &bundle);
    eventually(&definitions, "apps.example.com", has_bundle).await.unwrap();
}

fn has(object: &impl Serialize, pointer: &str, value: &Value) -> bool {
    serde_json::to_value(object).unwrap().pointer(pointer) == Some(value)
}

#[tokio::test]
async fn an_api_server_calls_the_webhooks() {
    let (server, tasks) = (TestServer::start().await.unwrap(), Tasks::new());
    let operator = Operator::start(&server, &tasks, Clock::system(), true).await;
    register(&server, operator.port()).await;
    let (client, post) = (server.client(), PostParams::default());
    let (current, old) = (apps(&client, "v1"), apps(&client, "v1beta1"));

    let small = current.create(&post, &object(app("small", 0))).await.unwrap();
    assert_eq!(small.data["spec"], json!({"size": 1}), "the default");
    let Err(kube::Error::Api(denied)) = current.create(&post, &object(app("bad", -1))).await else {
        panic!("a denied app is created");
    };
    assert_eq!((denied.code, &*denied.reason), (422, "Invalid"));
    assert_eq!(
        denied.message,
        "admission webhook \"apps.example.com\" denied the request: App.example.com \"bad\" is invalid: \
         spec.size: Invalid value: -1: must be at least 0"
    );
    let causes = denied.details.unwrap().causes;
    assert_eq!((&*causes[0].field, &*causes[0].reason), ("spec.size", "FieldValueInvalid"));

    let large = Request::post("/apis/example.com/v1/namespaces/default/apps")
        .header("content-type", "application/json")
        .body(Body::from(app("large", 2000).to_string().into_bytes()))
        .unwrap();
    let answer = client.send(large).await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["warning"], "299 - \"the app is very large\"");

    let converted = old.get("small").await.unwrap();
    assert_eq!(converted.data["spec"], json!({"replicas": 1}));
    assert_eq!(converted.metadata, small.metadata, "metadata stays");
    let body = json!({"apiVersion": "example.com/v1beta1", "kind": "App", "metadata": {"name": "old"}, "spec": {"replicas": 3}});
    old.create(&post, &object(body)).await.unwrap();
    assert_eq!(current.get("old").await.unwrap().data["spec"], json!({"size": 3}));
    let Err(kube::Error::Api(failed)) = old.get("large").await else {
        panic!("an app is converted that cannot be");
    };
    assert_eq!(failed.code, 500);
    assert!(
        failed.message.ends_with("App default/large: v1beta1 has no size of 2000"),
        "{}",
        failed.message
    );

    operator.stop().await;
    let Err(kube::Error::Api(unreachable)) = current.create(&post, &object(app("late", 1))).await
    else {
        panic!("an app is created without its webhook");
    };
    assert_eq!(unreachable.code, 500);
    assert!(tasks.shut_down(TIMEOUT).await.is_empty());
}

/// Returns a clock that is some days behind another one.
fn days_before(clock: &Clock, days: i64) -> Clock {
    Clock::starting_at(clock.now() - SignedDuration::from_hours(24 * days))
}

/// Returns the certificate that a server presents to clients that trust a bundle.
async fn presented(port: u16, bundle: &[u8]) -> CertificateDer<'static> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = CertPool::from_pem(bundle).unwrap().server_verifier(Arc::clone(&provider));
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let name = ServerName::try_from("app-hooks.default.svc").unwrap();
    let stream = TcpStream::connect(("localhost", port)).await.unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    stream.unwrap().get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn certificates_are_rotated_while_requests_go_on() {
    let (server, tasks) = (TestServer::start().await.unwrap(), Tasks::new());
    let client = server.client();
    // A CA that is seven years old.
    let founder =
        Operator::start(&server, &tasks, days_before(&Clock::system(), 7 * 365), false).await;
    founder.stop().await;
    let founded = secrets(&client).get(SECRET).await.unwrap();
    // A replica whose clock is nine months behind: its certificate is valid for three more months.
    let operator =
        Operator::start(&server, &tasks, days_before(&Clock::system(), 9 * 30), true).await;
    register(&server, operator.port()).await;
    let before = secrets(&client).get(SECRET).await.unwrap();
    assert_eq!(data(&before, "ca.crt"), data(&founded, "ca.crt"), "the CA stays");
    assert_ne!(data(&before, "tls.crt"), data(&founded, "tls.crt"), "an expired one is renewed");

    let (rotated, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (go_on, counted, current) = (Arc::clone(&rotated), Arc::clone(&count), apps(&client, "v1"));
    let (end, requests) = oneshot::channel();
    tasks.spawn_finite("requests", async move {
        let mut results = Vec::new();
        while !go_on.load(Ordering::SeqCst) {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let app = object(app(&format!("app-{number}"), 0));
            results.extend(current.create(&PostParams::default(), &app).await.err());
        }
        let _ = end.send(results);
    });

    // A replica with the right time: both the serving certificate and the CA are due.
    let renewer = Operator::start(&server, &tasks, Clock::system(), false).await;
    let n_authorities =
        |secret: &Secret| CertificateDer::pem_slice_iter(&data(secret, "ca.crt")).count();
    let after =
        eventually(&secrets(&client), SECRET, |found| n_authorities(found) == 2).await.unwrap();
    let bundle = data(&after, "ca.crt");
    assert!(bundle.ends_with(&data(&before, "ca.crt")), "the old CA stays trusted");
    trusted(&client, &bundle).await;
    let renewed = CertificateDer::from_pem_slice(&data(&after, "tls.crt")).unwrap();
    assert_ne!(data(&after, "tls.crt"), data(&before, "tls.crt"));
    let served = async {
        while presented(operator.port(), &bundle).await != renewed {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, served)
        .await
        .expect("the other replica serves the new certificate");
    let (seen, more) = (count.load(Ordering::SeqCst), async {
        while count.load(Ordering::SeqCst) < 5 {
            tokio::task::yield_now().await;
        }
    });
    tokio::time::timeout(TIMEOUT, more).await.expect("requests go on");
    assert!(apps(&client, "v1beta1").get("app-0").await.is_ok(), "conversions go on after {seen}");
    rotated.store(true, Ordering::SeqCst);
    let failures = requests.await.unwrap();
    assert!(failures.is_empty(), "{failures:?}");
    renewer.stop().await;
    operator.stop().await;
    assert!(tasks.shut_down(TIMEOUT).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_loses_its_bundle_gets_it_back() {
    let (server, tasks) = (TestServer::start().await.unwrap(), Tasks::new());
    // Certificates that are due within a day.
    let founder = Operator::start(&server, &tasks, days_before(server.clock(), 243), false).await;
    founder.stop().await;
    let clock = server.clock().clone();
    let first = Operator::start(&server, &tasks, clock.clone(), false).await;
    let second = Operator::start(&server, &tasks, clock, false).await;
    register(&server, 443).await;
    let client = server.client();
    let secret = secrets(&client).get(SECRET).await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    let configurations = api::<MutatingWebhookConfiguration>(&client);
    for _ in 0..2 {
        let mut changed = configurations.get("apps").await.unwrap();
        changed.webhooks.as_mut().unwrap()[0].client_config.ca_bundle = None;
        configurations.replace("apps", &PostParams::default(), &changed).await.unwrap();
        trusted(&client, &data(&secret, "ca.crt")).await;
    }
    let renewed = |found: &Secret| data(found, "tls.crt") != data(&secret, "tls.crt");
    let later = eventually(&secrets(&client), SECRET, renewed).within(DAY).await.unwrap();
    assert_eq!(data(&later, "ca.crt"), data(&secret, "ca.crt"));
    secrets(&client).delete(SECRET, &Default::default()).await.unwrap();
    let anew = eventually(&secrets(&client), SECRET, |_| true).await.unwrap();
    assert_ne!(data(&anew, "ca.crt"), data(&secret, "ca.crt"));
    trusted(&client, &data(&anew, "ca.crt")).await;
    first.stop().await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_serves_a_certificate_that_nobody_stores() {
    let (server, tasks) = (TestServer::start().await.unwrap(), Tasks::new());
    let setup = Setup::simulated(server.clock().clone(), "me");
    let manager = Manager::builder(server.client()).setup(setup).dry_run().build().unwrap();
    manager.add_webhooks(webhooks());
    let (started, is_started) = oneshot::channel();
    manager.add(RunnableGroup::Others, "started", move |context: RunContext| async move {
        let _ = started.send(());
        context.stopped().await;
        Ok(())
    });
    let writes = manager.dry_run_writes().cloned().unwrap();
    let stop = tasks.token();
    tasks.spawn_finite("operator", async move {
        manager.run(stop.cancelled_owned()).await.unwrap();
    });
    tokio::time::timeout(TIMEOUT, is_started).await.unwrap().unwrap();
    tokio::time::sleep(TIMEOUT).await;
    let lines: Vec<String> = writes.writes().iter().map(ToString::to_string).collect();
    assert_eq!(lines, [format!("create secrets default/{SECRET}")]);
    assert!(secrets(&server.client()).get_opt(SECRET).await.unwrap().is_none());
    assert!(tasks.shut_down(TIMEOUT).await.is_empty());
}
