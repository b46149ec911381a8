//! Proxies and webhooks: which servers an attacker can make the server call.

use std::net::{Ipv4Addr, SocketAddr};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::target::{MERGE, Target};

/// Starts an HTTP listener that must never be called. Returns its address, and its number of calls.
async fn trap() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let (address, called) = (listener.local_addr().expect("an address"), Arc::new(AtomicUsize::new(0)));
    let calls = called.clone();
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(async move {
        while let Ok((_stream, _)) = listener.accept().await {
            calls.fetch_add(1, Ordering::Relaxed);
        }
    });
    (address, called)
}

/// CVE-2020-8562 and CVE-2022-3294: proxies do not connect to loopback and link-local addresses.
pub(crate) async fn proxies_to_the_machine_itself(target: &Target) {
    let (address, called) = trap().await;
    let namespace = target.namespace("proxy").await;
    let admin = target.admin();
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n9", "containers": [{"name": "c", "image": "i"}]}});
    admin.make(&pods, pod).await;
    for ip in ["127.0.0.1", "169.254.169.254"] {
        let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}], "hostIP": ip}});
        admin.patch(&format!("{pods}/p/status"), MERGE, &status).await.is(200, "");
        for path in [format!("p:{}/proxy/", address.port()), format!("https:p:{}/proxy/x", address.port()), "p/proxy".to_owned()] {
            let answer = admin.get(&format!("{pods}/{path}")).await;
            assert!((400..600).contains(&answer.code), "{ip} {path}: {}", answer.text());
        }
    }
    let node = target.fresh("node");
    admin.make("/api/v1/nodes", json!({"metadata": {"name": node}})).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": "localhost"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}}}});
    admin.patch(&format!("/api/v1/nodes/{node}/status"), MERGE, &status).await.is(200, "");
    for path in [format!("{node}/proxy/"), format!("http:{node}:{}/proxy/", address.port()), format!("{node}:{}/proxy/x", target.port())] {
        let answer = admin.get(&format!("/api/v1/nodes/{path}")).await;
        assert!((400..600).contains(&answer.code), "{path}: {}", answer.text());
    }
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": address.port()}]}});
    admin.make(&services, service).await;
    for path in ["s/proxy/", "http:s:80/proxy/", "s:x/proxy/"] {
        let answer = admin.get(&format!("{services}/{path}")).await;
        assert!((400..600).contains(&answer.code), "{path}: {}", answer.text());
    }
    assert_eq!(called.load(Ordering::Relaxed), 0, "nobody was called");
}

/// CVE-2022-3172: an extension API server cannot redirect clients. CVE-2018-1002105: it gets no credentials.
pub(crate) async fn aggregated_servers_that_redirect(target: &Target) {
    let (address, called) = trap().await;
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: http://{address}/secret\r\nContent-Length: 0\r\n\r\n");
    let behind = hook(Behaviour::Says(answer)).await;
    let port: u64 = behind.config["url"].as_str().and_then(|url| url.rsplit(':').next()?.trim_end_matches("/x").parse().ok()).expect("a port");
    let namespace = target.namespace("aggregated").await;
    let admin = target.admin();
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}});
    admin.make(&format!("/api/v1/namespaces/{namespace}/services"), service).await;
    let group = format!("{namespace}.attacks.example");
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let spec = json!({"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10, "insecureSkipTLSVerify": true,
        "service": {"namespace": namespace, "name": "s", "port": port}});
    let made = admin.post(services, &json!({"metadata": {"name": format!("v1.{group}")}, "spec": spec})).await;
    assert!(matches!(made.code, 201 | 403 | 404 | 405 | 422), "{}", made.text());
    if target.is_upstream() {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    }
    for (path, headers) in [
        ("things", &[][..]),
        ("things?watch=1", &[]),
        ("things", &[("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")]),
    ] {
        let answer = admin.send("GET", &format!("/apis/{group}/v1/{path}"), headers, b"").await;
        assert!((400..600).contains(&answer.code), "{path}: {} {}", answer.head(), answer.text());
        assert!(!answer.head().to_ascii_lowercase().contains("location:"), "{}", answer.head());
    }
    admin.send("DELETE", &format!("{services}/v1.{group}"), &[], b"").await;
    assert_eq!(called.load(Ordering::Relaxed), 0, "nobody followed");
}

/// An extension API server gets the user of the request, regardless of the client's headers, and no credentials.
pub(crate) async fn aggregated_servers_get_no_foreign_users(target: &Target) {
    // The checks of the server have deadlines, and sockets take real time.
    let is_virtual = !target.is_upstream();
    if is_virtual {
        tokio::time::resume();
    }
    let says = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let behind = hook(Behaviour::Says(says.to_owned())).await;
    let port: u64 = behind.config["url"].as_str().and_then(|url| url.rsplit(':').next()?.trim_end_matches("/x").parse().ok()).expect("a port");
    let namespace = target.namespace("users").await;
    let admin = target.admin();
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}});
    admin.make(&format!("/api/v1/namespaces/{namespace}/services"), service).await;
    let group = format!("{namespace}.attacks.example");
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let spec = json!({"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10, "insecureSkipTLSVerify": true,
        "service": {"namespace": namespace, "name": "s", "port": port}});
    admin.make(services, json!({"metadata": {"name": format!("v1.{group}")}, "spec": spec})).await;
    let path = format!("/apis/{group}/v1/things");
    let headers = [("X-Remote-User", "mallory"), ("X-Remote-Group", "mallory"), ("X-Remote-Uid", "mallory"), ("X-Remote-Extra-Mallory", "1"), ("Connection", "X-Remote-User")];
    let mut code = 0;
    let attempts = if is_virtual { 1_000 } else { 60 };
    for _ in 0..attempts {
        code = admin.send("GET", &path, &headers, b"").await.code;
        match (code, is_virtual) {
            (200, _) => break,
            (_, true) => tokio::task::yield_now().await,
            (_, false) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
        }
    }
    if is_virtual {
        tokio::time::pause();
    }
    let stored = admin.get(&format!("{services}/v1.{group}")).await;
    assert_eq!(code, 200, "it is not available: {}", stored.text());
    let heads = behind.heads.lock().expect("no panic before").clone();
    let line = format!("get {path} ");
    let heads: Vec<String> = heads.iter().map(|head| head.to_ascii_lowercase()).filter(|head| head.starts_with(&line)).collect();
    assert!(!heads.is_empty(), "it was asked");
    for head in &heads {
        assert!(head.contains("\r\nx-remote-user: admin\r\n") && head.contains("\r\nx-remote-group: system:masters\r\n"), "{head}");
        assert!(!head.contains("mallory") && !head.contains("\r\nauthorization:"), "{head}");
    }
    // A user without permission is refused before the server is called.
    let refused = target.user("ann").send("GET", &path, &headers, b"").await;
    assert_eq!(refused.code, 403, "{}", refused.text());
    let asked = behind.heads.lock().expect("no panic before").iter().filter(|head| head.to_ascii_lowercase().contains("x-remote-user: ann")).count();
    assert_eq!(asked, 0, "it was not asked");
    admin.send("DELETE", &format!("{services}/v1.{group}"), &[], b"").await;
}

/// CVE-2020-8559: a kubelet that responds to an upgrade with a redirect cannot redirect the client.
pub(crate) async fn kubelets_that_redirect(target: &Target) {
    let (address, called) = trap().await;
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: http://{address}/exec\r\nContent-Length: 0\r\n\r\n");
    let kubelet = hook(Behaviour::Says(answer)).await;
    let port: u64 = kubelet.config["url"].as_str().and_then(|url| url.rsplit(':').next()?.trim_end_matches("/x").parse().ok()).expect("a port");
    let namespace = target.namespace("redirected").await;
    let admin = target.admin();
    let node = target.fresh("redirecting");
    admin.make("/api/v1/nodes", json!({"metadata": {"name": node}})).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    admin.patch(&format!("/api/v1/nodes/{node}/status"), MERGE, &status).await.is(200, "");
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    admin.make(&pods, pod).await;
    let spdy = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v4.channel.k8s.io")];
    let websocket = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Protocol", "v5.channel.k8s.io")];
    for path in ["exec?command=id&stdout=1", "attach?stdout=1", "portforward?ports=80", "log"] {
        for (method, headers) in [("POST", &spdy[..]), ("GET", &websocket[..]), ("GET", &[][..])] {
            let answer = admin.send(method, &format!("{pods}/p/{path}"), headers, b"").await;
            assert!(!(300..400).contains(&answer.code), "{method} {path}: {}", answer.head());
            assert!(!answer.head().to_ascii_lowercase().contains("location:"), "{}", answer.head());
        }
    }
    assert_eq!(called.load(Ordering::Relaxed), 0, "nobody followed");
}

/// Names that would change the structure of the URL that the server builds from them.
pub(crate) async fn proxies_by_names_that_are_urls(target: &Target) {
    let namespace = target.namespace("proxy").await;
    let admin = target.admin();
    for name in ["a@169.254.169.254", "169.254.169.254:80%2flatest", "x:80:80:80", ":", "http:", "https::", "..", "%2e%2e%2fx", "[::1]:80"] {
        for kind in [format!("namespaces/{namespace}/pods"), format!("namespaces/{namespace}/services"), "nodes".to_owned()] {
            let answer = admin.get(&format!("/api/v1/{kind}/{name}/proxy/x")).await;
            assert!((400..600).contains(&answer.code), "{kind}/{name}: {} {}", answer.code, answer.text());
        }
    }
}

/// Creates a pod with an IP address, and returns the path of its ports.
async fn pod_with_ports(target: &Target) -> String {
    let namespace = target.namespace("proxied").await;
    let admin = target.admin();
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n9", "containers": [{"name": "c", "image": "i"}]}});
    admin.make(&pods, pod).await;
    let status = json!({"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}});
    admin.patch(&format!("{pods}/p/status"), MERGE, &status).await.is(200, "");
    format!("{pods}/p")
}

/// A service gets the client's bytes after an upgrade, and never the credentials of the client.
pub(crate) async fn services_that_ask_for_credentials(target: &Target) {
    if target.is_upstream() {
        // The address belongs to no pod.
        return;
    }
    let path = pod_with_ports(target).await;
    let admin = target.admin();
    let (answer, mut stream) = admin.upgrade(&format!("{path}:81/proxy/a?b"), "x").await;
    assert_eq!(answer.code, 101, "{}", answer.head());
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("what the service was asked"));
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    assert!(head.starts_with("get /a?b http/1.1\r\n"), "{head}");
    for name in ["authorization", "impersonate-", "x-remote-"] {
        assert!(!head.contains(name), "{head}");
    }
    stream.write_all(b"hello").await.expect("it is written");
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).await.expect("it comes back");
    assert_eq!(&hello, b"hello");
}

/// Services whose responses are invalid, or that switch protocols without a request.
pub(crate) async fn services_that_lie(target: &Target) {
    if target.is_upstream() {
        return;
    }
    let path = pod_with_ports(target).await;
    let admin = target.admin();
    // The service sends the request back, which is not a valid response.
    for path in [format!("{path}/proxy/"), format!("{path}:80/proxy/x")] {
        admin.get(&path).await.is(503, "error trying to reach service: ");
    }
    let (answer, _) = admin.upgrade(&format!("{path}:80/proxy/"), "x").await;
    assert_eq!(answer.code, 503, "{}", answer.head());
    let answer = admin.get(&format!("{path}:81/proxy/")).await;
    assert!(answer.code >= 500, "{}", answer.head());
}

/// A webhook that sends these bytes in response to each request.
struct Hook {
    config: Value,
    asked: Arc<AtomicUsize>,
    /// Head of each request.
    heads: Arc<Mutex<Vec<String>>>,
}

/// Behavior of a webhook.
#[derive(Clone)]
enum Behaviour {
    Hang,
    Endless,
    Says(String),
}

async fn hook(behaviour: Behaviour) -> Hook {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let made = params.self_signed(&key).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![made.der().clone()], PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())))
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let url = format!("https://localhost:{}/x", listener.local_addr().expect("an address").port());
    let bundle = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, made.pem());
    let hook = Hook { config: json!({"url": url, "caBundle": bundle}), asked: Arc::new(AtomicUsize::new(0)), heads: Arc::default() };
    let (asked, heads) = (hook.asked.clone(), hook.heads.clone());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            asked.fetch_add(1, Ordering::Relaxed);
            let mut buffer = vec![0; 65536];
            let size = stream.read(&mut buffer).await.unwrap_or_default();
            let head = String::from_utf8_lossy(&buffer[..size]).into_owned();
            heads.lock().expect("no panic before").push(head);
            match &behaviour {
                Behaviour::Hang => {}
                Behaviour::Says(text) => {
                    let _ = stream.write_all(text.as_bytes()).await;
                    let _ = stream.shutdown().await;
                }
                Behaviour::Endless => {
                    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
                    let _ = stream.write_all(head.as_bytes()).await;
                    let chunk = format!("10000\r\n{}\r\n", " ".repeat(65536));
                    while stream.write_all(chunk.as_bytes()).await.is_ok() {}
                }
            }
            held.push(stream);
        }
    });
    hook
}

/// Registers a webhook for ConfigMaps of a new namespace. Returns the path of these ConfigMaps.
async fn registered(target: &Target, kind: &str, config: &Value, seconds: i64) -> (String, String) {
    let namespace = target.namespace("hooked").await;
    let name = target.fresh("hook");
    let hooks = json!([{"name": "hook.attacks.example", "clientConfig": config, "timeoutSeconds": seconds, "failurePolicy": "Fail",
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}]);
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
    target.admin().make(&path, json!({"metadata": {"name": name}, "webhooks": hooks})).await;
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    if target.is_upstream() {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
    (configmaps, format!("{path}/{name}"))
}

/// A webhook that never responds delays its own request by its timeout, and no other request.
pub(crate) async fn webhooks_that_hang(target: &Target) {
    let hook = hook(Behaviour::Hang).await;
    let (path, hook_path) = registered(target, "validating", &hook.config, 1).await;
    let admin = target.admin();
    let hanging = json!({"metadata": {"name": "hangs"}});
    let (hung, other) = futures::join!(admin.post(&path, &hanging), admin.get("/version"));
    hung.is(500, "failed calling webhook");
    other.is(200, "");
    // The webhook is not called for its own configuration.
    admin.send("DELETE", &hook_path, &[], b"").await.is(200, "");
}

pub(crate) async fn webhooks_without_end(target: &Target) {
    let hook = hook(Behaviour::Endless).await;
    let (path, _) = registered(target, "mutating", &hook.config, 3).await;
    target.admin().post(&path, &json!({"metadata": {"name": "x"}})).await.is(500, "failed calling webhook");
}

/// CVE-2020-8561: redirects could make the server send requests to any address. Upstream follows them; this server does
/// not.
pub(crate) async fn webhooks_that_redirect(target: &Target) {
    let (address, called) = trap().await;
    for code in [301, 302, 307, 308] {
        let answer = format!("HTTP/1.1 {code} Found\r\nLocation: http://{address}/secret\r\nContent-Length: 0\r\n\r\n");
        let hook = hook(Behaviour::Says(answer)).await;
        let (path, _) = registered(target, "validating", &hook.config, 5).await;
        target.admin().post(&path, &json!({"metadata": {"name": "x"}})).await.is(500, "failed calling webhook");
        assert!(hook.asked.load(Ordering::Relaxed) > 0, "it was asked");
    }
    assert!(target.is_upstream() || called.load(Ordering::Relaxed) == 0, "nobody followed");
}

fn said(review: &Value) -> Behaviour {
    let text = review.to_string();
    Behaviour::Says(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}", text.len()))
}

/// Responses of a webhook that do not match the review.
pub(crate) async fn webhooks_that_lie(target: &Target) {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for says in [
        said(&json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "other", "allowed": true}})),
        said(&json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"})),
        said(&json!({"apiVersion": "v1", "kind": "Pod"})),
        said(&json!([])),
        Behaviour::Says(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{deep}", deep.len())),
        Behaviour::Says("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{".to_owned()),
        Behaviour::Says("not HTTP\r\n\r\n".to_owned()),
        Behaviour::Says(String::new()),
        Behaviour::Says(format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(200_000))),
    ] {
        let hook = hook(says).await;
        let (path, _) = registered(target, "mutating", &hook.config, 5).await;
        target.admin().post(&path, &json!({"metadata": {"name": "x"}})).await.is(500, "failed calling webhook");
    }
}

