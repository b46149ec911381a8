//! The controller manager as kubeadm runs it: with the static pod's arguments, except for paths of files, against the embedded
//! API server. Probes, metrics, lease and events are checked in the same way as for upstream's program.

pub(crate) mod exposition;
mod manifests;
mod monitoring;
mod queries;
mod upstream;

use crate::{
    cluster::{Cluster, items},
    objects::deployment,
    program::{Embedded, POLL_INTERVAL, Program, Watcher, free_port},
};
use http::{HeaderMap, header};
use k8s_openapi::api::core::v1::Pod;
use manifests::deployed;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::path::Path;

const MANAGER: &str = env!("CARGO_BIN_EXE_kube-controller-manager");

/// Users and keys like those of kubeadm, in a folder that stands for `/etc/kubernetes`.
struct Etc {
    folder: tempfile::TempDir,
    /// Certificate and key of a member of `system:masters`, from the cluster's client CA.
    admin: (String, String),
}

impl Etc {
    fn make(kubeconfig: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let pki = folder.path().join("pki");
        std::fs::create_dir(&pki).expect("a folder");
        let write =
            |path: &Path, text: &str| std::fs::write(path, text).expect("a file is written");
        write(&folder.path().join("controller-manager.conf"), kubeconfig);
        let (ca, key) = authority("kubernetes");
        write(&pki.join("ca.crt"), &ca);
        write(&pki.join("ca.key"), &key.key().serialize_pem());
        write(&pki.join("front-proxy-ca.crt"), &authority("front-proxy-ca").0);
        write(&pki.join("sa.key"), &KeyPair::generate().expect("a key").serialize_pem());
        let mut admin = CertificateParams::default();
        admin.distinguished_name.push(DnType::CommonName, "kubernetes-admin");
        admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
        let own = KeyPair::generate().expect("a key");
        let certificate = admin.signed_by(&own, &key).expect("a certificate").pem();
        Self { folder, admin: (certificate, own.serialize_pem()) }
    }

    /// Returns an argument with this folder instead of kubeadm's.
    fn argument(&self, argument: &str) -> String {
        argument.replace("/etc/kubernetes", &self.folder.path().display().to_string())
    }
}

fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, name);
    let issuer = Issuer::new(params.clone(), KeyPair::generate().expect("a key"));
    (params.self_signed(issuer.key()).expect("a certificate").pem(), issuer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_with_the_static_pods_arguments() {
    let Embedded { server, url, cluster, serving } = Embedded::start().await;

    let pod: Pod = deployed("static-pod/kube-controller-manager.yaml");
    let container = &pod.spec.as_ref().expect("a spec").containers[0];
    let command = container.command.as_ref().expect("a command");
    let etc = Etc::make(&server.kubeconfig(&url));
    let port = free_port();
    let mut arguments: Vec<String> = command[1..].iter().map(|one| etc.argument(one)).collect();
    // Tests run side by side: kubeadm's port may be taken.
    arguments.push(format!("--secure-port={port}"));
    let mut program = Program::start(MANAGER, &arguments, etc.folder.path());

    probes(&cluster, container, port, &mut program).await;
    elected(&cluster).await;
    work(&cluster).await;
    watched(&etc, port, server.admin_token()).await;

    program.stop(&cluster).await;
    let lease = cluster.get(LEASE).await;
    assert_eq!(lease["spec"]["holderIdentity"].as_str().unwrap_or_default(), "", "given back");
    serving.stop().await;
}

const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

/// Sends the kubelet's probes, without authentication.
async fn probes(
    cluster: &Cluster,
    container: &k8s_openapi::api::core::v1::Container,
    port: u16,
    program: &mut Program,
) {
    let kubelet = Watcher::anonymous(port);
    let probes = [&container.startup_probe, &container.liveness_probe];
    for probe in probes.into_iter().flatten() {
        let get = probe.http_get.as_ref().expect("a probe over HTTP");
        let path = get.path.as_deref().expect("a path");
        let mut tries = 0;
        while let Err(error) = kubelet.get(path, &HeaderMap::new()).await {
            tries += 1;
            let runs = program.is_running();
            assert!(runs && tries < 400, "{path}: {error}\n{}", program.last_words());
            cluster.sleep(POLL_INTERVAL).await;
        }
    }
    assert_eq!(container.startup_probe.iter().count() + container.liveness_probe.iter().count(), 2);
    let refused = kubelet.get("/metrics", &HeaderMap::new()).await;
    assert_eq!(refused.map_err(|error| error.code()).err(), Some(403));
}

/// Checks that the program holds the lease and has recorded an event.
async fn elected(cluster: &Cluster) {
    let held = |lease: &serde_json::Value| {
        lease["spec"]["holderIdentity"].as_str().is_some_and(|id| !id.is_empty())
    };
    let lease = cluster.until(LEASE, held).await;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let note = format!("{holder} became leader");
    let events = "/apis/events.k8s.io/v1/namespaces/kube-system/events";
    let of_election =
        |event: &serde_json::Value| event["reason"] == "LeaderElection" && event["note"] == *note;
    cluster.until(events, |events| items(events).iter().any(of_election)).await;
}

/// Checks that the controllers create the pods of a Deployment, and delete a namespace.
async fn work(cluster: &Cluster) {
    let namespace = cluster.namespace("work").await;
    namespace.create("deployments", deployment("web", 3, "app:v1")).await;
    namespace.until("pods", |pods| items(pods).len() == 3).await;
    let gone = cluster.namespace("gone").await;
    let path = format!("/api/v1/namespaces/{}", gone.name);
    cluster.delete(&path, "Background").await;
    cluster.until(&path, serde_json::Value::is_null).await;
}

/// Checks the metrics that Prometheus reads, with a certificate or with a token.
async fn watched(etc: &Etc, port: u16, token: &str) {
    use base64::Engine as _;
    let by_token = Watcher::with_token(port, token);
    by_token.text("/metrics").await;
    by_token.text("/metrics").await;
    let encode = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    let by_certificate = Watcher::new(port, |login| {
        login.client_certificate_data = Some(encode(&etc.admin.0));
        login.client_key_data = Some(encode(&etc.admin.1).into());
    });
    let text = by_certificate.text("/metrics").await;
    let mut families = exposition::read(&text).unwrap_or_else(|error| panic!("{error}"));
    // Names of upstream that violate the conventions.
    let kept = [
        "authenticated_user_requests:",
        "authentication_attempts:",
        "authentication_token_cache_active_fetch_count:",
    ];
    let mut problems = exposition::problems(&families);
    problems.retain(|problem| !kept.iter().any(|kept| problem.starts_with(kept)));
    assert_eq!(problems, [""; 0], "{text}");
    assert_eq!(upstream::differences(&families), [""; 0]);

    let slis = by_certificate.text("/metrics/slis").await;
    let slis = exposition::read(&slis).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(exposition::problems(&slis), [""; 0]);
    assert!(
        slis["kubernetes_healthcheck"]
            .samples
            .iter()
            .all(|check| check.label("type") == Some("healthz"))
    );
    families.extend(slis);
    assert_eq!(manifests::missing_series(&families), [""; 0]);
    formats(&by_certificate).await;
}

async fn formats(watcher: &Watcher) {
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    for (accept, want) in [
        (protobuf, "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily"),
        (
            "application/openmetrics-text;version=1.0.0",
            "application/openmetrics-text; version=1.0.0",
        ),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let accept = [
            (header::ACCEPT, header::HeaderValue::from_static(accept)),
            (header::ACCEPT_ENCODING, header::HeaderValue::from_static("gzip")),
        ];
        let answer = watcher.get("/metrics", &accept.into_iter().collect()).await.expect("metrics");
        let headers = answer.headers();
        let given = headers[header::CONTENT_TYPE].to_str().expect("text");
        assert!(given.starts_with(want), "{given}");
        assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
        assert_eq!(answer.body()[..2], [0x1f, 0x8b], "gzip's first bytes");
    }
}
