//! Ports of a manager: probes and metrics, on real sockets.

use crate::{map, start};
use evenkeel_runtime::{
    manager::{BuildError, ManagerBuilder},
    prelude::*,
};
use evenkeel_test::TestServer;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, api::PostParams};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn manager(server: &TestServer) -> ManagerBuilder {
    Manager::builder(server.client()).component("test")
}

/// Sends a GET over a connection, and returns the status and the body.
async fn get(
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    token: Option<&str>,
) -> (u16, String) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n\r\n");
    io.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // A server may close the connection without TLS's `close_notify`.
    let _ = io.read_to_string(&mut answer).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn get_plain(address: SocketAddr, path: &str) -> (u16, String) {
    get(TcpStream::connect((LOCALHOST, address.port())).await.unwrap(), path, None).await
}

#[tokio::test]
async fn probes_say_whether_the_manager_is_well_and_ready() {
    let server = TestServer::start().await.unwrap();
    let manager = manager(&server).probes_on((LOCALHOST, 0).into()).build().unwrap();
    manager.health_check("disk", || Err("the disk is full".to_owned()));
    manager.ready_check("peers", || Ok(()));
    manager.controller::<ConfigMap>().reconcile(async |_, _: Context| Ok(Outcome::Settled));
    let (address, elected) = (manager.probes_address().unwrap(), manager.elected());
    start(manager);
    elected.await;
    let table = [
        ("/readyz", 200, "ok"),
        ("/readyz/", 200, "ok"),
        ("/readyz?verbose", 200, "[+]informer-sync ok\n[+]peers ok\nreadyz check passed\n"),
        ("/readyz/peers", 200, "ok"),
        ("/healthz", 500, "[+]tasks ok\n[-]disk failed: reason withheld\nhealthz check failed\n"),
        ("/healthz/", 500, "[+]tasks ok\n[-]disk failed: reason withheld\nhealthz check failed\n"),
        ("/healthz?exclude=disk", 200, "ok"),
        ("/healthz/disk", 500, "internal server error: the disk is full\n"),
        ("/healthz/unknown", 404, "404 page not found\n"),
        ("/metrics", 404, "404 page not found\n"),
    ];
    for (path, status, body) in table {
        assert_eq!(get_plain(address, path).await, (status, body.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn a_manager_is_not_ready_before_its_caches_are() {
    let server = TestServer::start().await.unwrap();
    let manager = manager(&server).probes_on((LOCALHOST, 0).into()).build().unwrap();
    let kind = Kind::new("example.com", "v1", "Gadget", "gadgets", true);
    manager
        .controller_of_dynamic(kind)
        .reconcile_dynamic(async |_, _: Context| Ok(Outcome::Settled));
    let address = manager.probes_address().unwrap();
    start(manager);
    let (status, body) = get_plain(address, "/readyz/informer-sync").await;
    let reason = "internal server error: 1 caches not filled yet: gadgets\n";
    assert_eq!((status, &*body), (500, reason));
    assert_eq!(get_plain(address, "/healthz").await.0, 200);
}

#[tokio::test]
async fn plain_metrics_have_controller_runtimes_names() {
    let server = TestServer::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    maps.create(&PostParams::default(), &map("web")).await.unwrap();
    let options = CacheOptions::<ConfigMap>::in_namespace("default").fields("metadata.name=web");
    let metrics = Metrics::plain(0).address(LOCALHOST).debug();
    let manager = manager(&server).cache(options).metrics(metrics).build().unwrap();
    let (sender, mut passes) = futures::channel::mpsc::unbounded();
    manager.controller::<ConfigMap>().state(sender).reconcile(
        async |_, cx: Context<futures::channel::mpsc::UnboundedSender<()>>| {
            cx.state().unbounded_send(())?;
            Ok(Outcome::Settled)
        },
    );
    let address = manager.metrics_address().unwrap();
    start(manager);
    futures::StreamExt::next(&mut passes).await.unwrap();
    let (status, body) = get_plain(address, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "controller_runtime_max_concurrent_reconciles{controller=\"configmap\"} 1",
        "controller_runtime_reconcile_errors_total{controller=\"configmap\"} 0",
        "controller_runtime_terminal_reconcile_errors_total{controller=\"configmap\"} 0",
        "controller_runtime_reconcile_timeouts_total{controller=\"configmap\"} 0",
        "controller_runtime_reconcile_panics_total{controller=\"configmap\"} 0",
        "workqueue_adds_total{controller=\"configmap\",name=\"configmap\"} ",
        "workqueue_depth{controller=\"configmap\",name=\"configmap\",priority=\"0\"} 0",
        "rest_client_requests_total{",
        "process_resident_memory_bytes ",
    ] {
        assert!(body.contains(line), "{line} is missing in:\n{body}");
    }
    let (status, body) = get_plain(address, "/debug/controllers").await;
    assert!(status == 200 && body.contains("\"configmap\""), "{body}");
}

/// Creates a ServiceAccount, and returns a token for it.
async fn token(server: &TestServer, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client());
    let post = PostParams::default();
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    accounts.create(&post, &account).await.unwrap();
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let issued = accounts.create_token_request(name, &post, &request).await.unwrap();
    issued.status.unwrap().token.unwrap()
}

/// Permits the ServiceAccount `reader` to read metrics.
async fn permit(server: &TestServer) {
    let post = PostParams::default();
    let roles: Api<ClusterRole> = Api::all(server.client());
    let role = json!({
        "metadata": {"name": "metrics-reader"},
        "rules": [
            {"nonResourceURLs": ["/metrics", "/debug/pprof/cmdline"], "verbs": ["get"]},
        ],
    });
    roles.create(&post, &serde_json::from_value(role).unwrap()).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(server.client());
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics-reader"});
    let binding = json!({
        "metadata": {"name": "metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "reader"}],
        "roleRef": role,
    });
    bindings.create(&post, &serde_json::from_value(binding).unwrap()).await.unwrap();
}

#[tokio::test]
async fn secure_metrics_ask_the_api_server_who_may_read_them() {
    let server = TestServer::start().await.unwrap();
    permit(&server).await;
    let (reader, nobody) = (token(&server, "reader").await, token(&server, "nobody").await);
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let issued = rcgen::generate_simple_self_signed(["metrics.example".to_owned()]).unwrap();
    std::fs::write(&certificate, issued.cert.pem()).unwrap();
    std::fs::write(&key, issued.signing_key.serialize_pem()).unwrap();
    let metrics = Metrics::secure(0).address(LOCALHOST).certificate(&certificate, &key);
    let metrics = metrics.pprof();
    let manager = manager(&server).metrics(metrics).build().unwrap();
    let address = manager.metrics_address().unwrap();
    start(manager);

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let table = [
        ("/metrics", None, 401),
        ("/metrics", Some("unknown-token"), 401),
        ("/metrics", Some(&*nobody), 403),
        ("/debug/controllers", Some(&*reader), 403),
        ("/debug/pprof/cmdline", None, 401),
        ("/debug/pprof/cmdline", Some(&*nobody), 403),
        ("/debug/pprof/cmdline", Some(&*reader), 200),
        ("/debug/pprof/profile?seconds=1", Some(&*reader), 403),
        ("/metrics", Some(&*reader), 200),
    ];
    for (path, token, expected) in table {
        let stream = TcpStream::connect((LOCALHOST, address.port())).await.unwrap();
        let name = ServerName::try_from("metrics.example").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (status, body) = get(stream, path, token).await;
        assert_eq!(status, expected, "{path} {token:?}: {body}");
        let is_metrics = status == 200 && path == "/metrics";
        assert_eq!(body.contains("process_open_fds"), is_metrics, "{body}");
    }
}

#[tokio::test]
async fn profiles_are_served_only_if_the_manager_says_so() {
    let server = TestServer::start().await.unwrap();
    let without = Metrics::plain(0).address(LOCALHOST).debug();
    let without = manager(&server).metrics(without).build().unwrap();
    assert_eq!(without.pprof_address(), None);
    let on_metrics = Metrics::plain(0).address(LOCALHOST).pprof();
    let with =
        manager(&server).metrics(on_metrics).pprof_on((LOCALHOST, 0).into()).build().unwrap();
    let addresses = [
        (without.metrics_address().unwrap(), 404),
        (with.metrics_address().unwrap(), 200),
        (with.pprof_address().unwrap(), 200),
    ];
    start(without);
    start(with);
    for (address, expected) in addresses {
        let (status, body) = get_plain(address, "/debug/pprof/goroutine?debug=1").await;
        assert_eq!(status, expected, "{address}: {body}");
        assert_eq!(body.contains("goroutine profile: total "), status == 200, "{body}");
        assert_eq!(get_plain(address, "/debug/pprof/").await.0, expected);
    }
    assert_eq!(get_plain(addresses[2].0, "/metrics").await.0, 404);
}

#[tokio::test]
async fn without_files_the_certificate_is_self_signed() {
    let server = TestServer::start().await.unwrap();
    let metrics = Metrics::secure(0).address(LOCALHOST);
    let manager = manager(&server).metrics(metrics).build().unwrap();
    let address = manager.metrics_address().unwrap();
    start(manager);
    let (status, body) = get_plain(address, "/metrics").await;
    assert_eq!((status, body.contains("HTTP request to an HTTPS server")), (400, true), "{body}");
}

#[tokio::test]
async fn a_port_in_use_is_an_error_and_a_simulation_opens_none() {
    let server = TestServer::start().await.unwrap();
    let first = manager(&server).probes_on((LOCALHOST, 0).into()).build().unwrap();
    let port = first.probes_address().unwrap().port();
    let second = manager(&server).metrics(Metrics::plain(port).address(LOCALHOST)).build();
    let Err(BuildError::Listen { purpose: "metrics", address, .. }) = second else {
        panic!("the port was in use");
    };
    assert_eq!(address.port(), port);
    let simulated = Setup::simulated(server.clock().clone(), "me");
    let third = manager(&server).setup(simulated).probes(0).metrics(Metrics::secure(0));
    let third = third.build().unwrap();
    assert_eq!((third.probes_address(), third.metrics_address()), (None, None));
}
