//! The operators of the examples on upstream's kube-apiserver, in real time, with the permissions of their manifests. The server
//! calls the webhooks of databases, whose certificates are rotated meanwhile.
//!
//! Needs the programs that `tests/upstream/build FOLDER` builds, and `EVENKEEL_UPSTREAM_BIN=FOLDER`.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

#[path = "../../../../examples/database/tests/calls/mod.rs"]
mod calls;
mod database;
#[path = "../../../../crates/evenkeel-apiserver/tests/kube_apiserver/mod.rs"]
mod kube_apiserver;
#[path = "../../../../examples/permissions.rs"]
mod permissions;
mod policy;
mod sharded;
mod webapp;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_plane::{Plane, PlaneOptions};
use evenkeel_runtime::{
    clock::Clock, manager::Manager, tasks::Tasks, tokio_util::sync::CancellationToken,
};
use evenkeel_test::eventually;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use kube_apiserver::Upstream;
use serde_json::{Value, from_value, json};
use std::{io::Write as _, path::PathBuf, time::Duration};
use tokio::sync::oneshot;

/// Most time that one wait takes.
const TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_run_on_kube_apiserver() {
    let Some(binaries) = binaries() else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: EVENKEEL_UPSTREAM_BIN is not set; tests/upstream/build FOLDER builds what it names"
        );
        return;
    };
    let server = Upstream::start(&binaries);
    let kube = connect(&server, None).await;
    until("the server is ready", async || {
        let request = evenkeel_runtime::http::Request::get("/readyz").body(Vec::new()).unwrap();
        kube.request_text(request).await.is_ok()
    })
    .await;
    let operator_of = async |manifest: &str, name: &str| {
        let groups = permissions::grant(&kube, &without_programs(manifest), name).await;
        let account = format!("system:serviceaccount:default:{name}");
        connect(&server, Some((account.as_str(), groups.as_slice()))).await
    };
    // One after the other: each has its own objects.
    let plane = Plane::start(&kube, &Clock::system(), PlaneOptions::all(2)).unwrap();
    let manifest = include_str!("../../../../examples/webapp/manifests/operator.yaml");
    let operator = operator_of(manifest, "webapp-operator").await;
    webapp::becomes_ready_scales_and_goes(&kube, &operator).await;
    let manifest = include_str!("../../../../examples/sharded/manifests/operator.yaml");
    let operator = operator_of(manifest, "external-secrets").await;
    sharded::replicas_split_objects_and_take_over(&kube, &operator).await;
    let manifest = include_str!("../../../../examples/policy/manifests/operator.yaml");
    let operator = operator_of(manifest, "policy-operator").await;
    policy::objects_are_audited_also_of_a_later_kind(&kube, &operator).await;
    let manifest = include_str!("../../../../examples/database/manifests/operator.yaml");
    let operator = operator_of(manifest, "database-operator").await;
    database::certificates_are_rotated_while_databases_are_created(&kube, &operator).await;
    assert_eq!(plane.stop().await, [""; 0]);
}

#[expect(clippy::disallowed_methods, reason = "the environment names upstream's programs")]
fn binaries() -> Option<PathBuf> {
    std::env::var("EVENKEEL_UPSTREAM_BIN").ok().filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns the objects of a manifest without the operator's Deployment and Service: it runs in this process.
fn without_programs(manifest: &str) -> String {
    let is_kept = |object: &&str| {
        !["kind: Deployment", "kind: Service"].iter().any(|kind| object.lines().any(|l| l == *kind))
    };
    manifest.split("---\n").filter(is_kept).collect::<Vec<_>>().join("---\n")
}

/// Returns the administrator's client, or that of a user with groups, whom the administrator impersonates.
async fn connect(server: &Upstream, user: Option<(&str, &[&str])>) -> Client {
    let mut credentials = json!({"token": "admin"});
    if let Some((user, groups)) = user {
        credentials["as"] = json!(user);
        credentials["as-groups"] = json!(groups);
    }
    let kubeconfig: Kubeconfig = from_value(json!({
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://{}", server.address),
            "certificate-authority-data": BASE64_STANDARD.encode(&server.ca),
        }}],
        "users": [{"name": "test", "user": credentials}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }))
    .unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Waits until a condition holds.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("{what}: not in time"));
}

/// Creates a definition, and waits until the server serves it.
async fn define(kube: &Client, definition: Value) {
    let definitions: Api<CustomResourceDefinition> = Api::all(kube.clone());
    let definition: CustomResourceDefinition = from_value(definition).unwrap();
    let name = definition.metadata.name.clone().unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let is_established = |found: &CustomResourceDefinition| {
        let conditions = found
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten();
        conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True")
    };
    eventually(&definitions, &name, is_established).within(TIMEOUT).await.unwrap();
}

/// Manager that runs in the background.
struct Running {
    tasks: Tasks,
    stop: CancellationToken,
    ended: oneshot::Receiver<()>,
}

impl Running {
    fn start(manager: Manager) -> Self {
        let (tasks, stop) = (Tasks::new(), CancellationToken::new());
        let (end, ended) = oneshot::channel();
        let stopped = stop.clone().cancelled_owned();
        tasks.spawn_finite("operator", async move {
            manager.run(stopped).await.unwrap();
            // The test may have failed.
            let _ = end.send(());
        });
        Self { tasks, stop, ended }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.ended.await.expect("it ends without an error");
        assert_eq!(self.tasks.shut_down(TIMEOUT).await, [""; 0]);
    }
}
