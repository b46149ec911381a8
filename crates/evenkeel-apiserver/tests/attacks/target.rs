//! The server under attack, and its clients. They write HTTP/1.1 over TLS themselves, because no library sends the
//! requests of attacks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel_apiserver::{
    Kubelet, LogLine, Output, PodConnection, PodRef, Server, StreamError, Streams,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::kube_apiserver::{TOKENS, Upstream};

/// Maximum time until a response, in virtual time on the embedded server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(100);

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// A server that listens.
pub(crate) struct Target {
    address: SocketAddr,
    /// The authority that signs certificates of its clients, and its key, PEM.
    ca: String,
    ca_key: String,
    is_upstream: bool,
    names: AtomicUsize,
}

/// Kubelets whose containers copy their input to their output, whatever the command.
struct Copies;

impl Kubelet for Copies {
    fn container_log(&self, _: PodRef<'_>, _: &str, _: bool) -> Vec<LogLine> {
        Vec::new()
    }

    fn follow_log(&self, _: PodRef<'_>, _: &str, _: bool, _: usize) -> BoxStream<'static, LogLine> {
        Box::pin(futures::stream::empty())
    }

    fn exec(
        &self,
        _: PodRef<'_>,
        _: &str,
        _: Vec<String>,
        streams: Streams,
    ) -> BoxFuture<'static, Result<i32, StreamError>> {
        Box::pin(async move {
            let Streams { stdin, output, .. } = streams;
            let Some(mut stdin) = stdin else { return Ok(0) };
            while let Some(bytes) = stdin.recv().await {
                if output.send(Output { to_stderr: false, bytes }).await.is_err() {
                    break;
                }
            }
            Ok(0)
        })
    }

    fn attach(
        &self,
        pod: PodRef<'_>,
        container: &str,
        streams: Streams,
    ) -> BoxFuture<'static, Result<(), StreamError>> {
        let copied = self.exec(pod, container, Vec::new(), streams);
        Box::pin(async move { copied.await.map(drop) })
    }

    fn connect(&self, _: PodRef<'_>, port: u16) -> Option<PodConnection> {
        let (stream, server) = tokio::io::duplex(1024);
        // Port 81 switches protocols on request, and sends the request back.
        let switches = port == 81;
        let copies = async move {
            let (mut reader, mut writer) = tokio::io::split(server);
            if switches {
                let mut head = Vec::new();
                while let Ok(byte) = reader.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        break;
                    }
                }
                let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
                let _ = writer.write_all(&[&answer[..], &head].concat()).await;
            }
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        };
        (port == 80 || switches).then(|| PodConnection { stream, server: Box::pin(copies) })
    }

    fn connect_node(&self, _: &str) -> Option<PodConnection> {
        None
    }
}

/// A certificate with its key, and the certificate of its issuer.
pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

impl Target {
    /// Starts the embedded server in this process, on the runtime of the test.
    pub(crate) async fn embedded() -> Self {
        let server = Server::builder().tokens_csv(TOKENS).build().await.expect("a server");
        server.connect_kubelet(Arc::new(Copies));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let target = Self {
            address: listener.local_addr().expect("an address"),
            ca: server.ca_pem().to_owned(),
            ca_key: server.ca_key_pem().to_owned(),
            is_upstream: false,
            names: AtomicUsize::new(0),
        };
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
        target
    }

    /// Waits until upstream's server is ready, and returns it as the target.
    pub(crate) async fn upstream(upstream: &Upstream) -> Self {
        let target = Self {
            address: upstream.address,
            ca: upstream.ca.clone(),
            ca_key: upstream.ca_key.clone(),
            is_upstream: true,
            names: AtomicUsize::new(0),
        };
        for _ in 0..600 {
            if target.admin().get("/readyz").await.code == 200 {
                return target;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("upstream's server is not ready");
    }

    /// Returns whether upstream's server is the target. A case that depends on it states the reason for the difference.
    pub(crate) fn is_upstream(&self) -> bool {
        self.is_upstream
    }

    /// Returns the port that the server listens on.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns a name that no other case uses.
    pub(crate) fn fresh(&self, prefix: &str) -> String {
        format!("{prefix}-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a client with a token.
    pub(crate) fn user(&self, token: &str) -> Client<'_> {
        let authorization = ("authorization".to_owned(), format!("Bearer {token}").into_bytes());
        Client { target: self, identity: None, headers: vec![authorization] }
    }

    /// Returns a client of a user in the group `system:masters`.
    pub(crate) fn admin(&self) -> Client<'_> {
        self.user("admin")
    }

    /// Returns a client without credentials.
    pub(crate) fn anonymous(&self) -> Client<'_> {
        Client { target: self, identity: None, headers: Vec::new() }
    }

    /// Returns a client with a certificate.
    pub(crate) fn with_certificate(&self, identity: Identity) -> Client<'_> {
        Client { target: self, identity: Some(identity), headers: Vec::new() }
    }

    /// Creates a namespace that `ann` administers. She gets the rules that the role `admin` aggregates, because no
    /// controller of this server aggregates roles.
    pub(crate) async fn tenancy(&self) -> String {
        let namespace = self.namespace("ann").await;
        for role in ["admin", "edit", "view"] {
            let binding = json!({"metadata": {"name": role},
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": format!("system:aggregate-to-{role}")},
                "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "ann"}]});
            self.admin()
                .make(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), binding)
                .await;
        }
        namespace
    }

    /// Returns a client with only these rules, in all namespaces.
    pub(crate) async fn somebody(&self, rules: Value) -> Client<'_> {
        let name = self.fresh("user");
        self.grant(&name, rules).await;
        self.admin().header("Impersonate-User", name)
    }

    /// Creates a namespace with a service account for its pods, and returns its name.
    pub(crate) async fn namespace(&self, prefix: &str) -> String {
        let namespace = self.fresh(prefix);
        self.admin().make("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.admin().make(&accounts, json!({"metadata": {"name": "default"}})).await;
        namespace
    }

    /// Grants these rules to a user in all namespaces.
    pub(crate) async fn grant(&self, user: &str, rules: Value) {
        let name = self.fresh("grant");
        let role = json!({"metadata": {"name": name}, "rules": rules});
        self.admin().make(&format!("{RBAC}/clusterroles"), role).await;
        let binding = json!({"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}]});
        self.admin().make(&format!("{RBAC}/clusterrolebindings"), binding).await;
    }

    /// Creates a CustomResourceDefinition whose objects may have any fields, and returns the path of the objects in a
    /// namespace. `change` changes the definition first.
    pub(crate) async fn define(&self, namespace: &str, change: impl FnOnce(&mut Value)) -> String {
        let plural = self.fresh("thing").replace('-', "");
        let (definition, objects) = definition(&plural, namespace, change);
        self.admin().make(DEFINITIONS, definition).await;
        for _ in 0..1000 {
            if self.admin().get(&objects).await.code == 200 {
                return objects;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{plural} are not served");
    }

    /// Returns a client certificate that the server's authority signed. `change` sets its subject and the other
    /// parameters.
    pub(crate) fn certificate(&self, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = KeyPair::from_pem(&self.ca_key).expect("a key");
        let name = if self.is_upstream { "attacked" } else { "evenkeel-ca" };
        signed(&authority(name, key), change)
    }

    /// Returns the certificate and key of the authority that the server trusts.
    pub(crate) fn authority(&self) -> Identity {
        let chain = vec![CertificateDer::from_pem_slice(self.ca.as_bytes()).expect("PEM")];
        Identity { chain, key: KeyPair::from_pem(&self.ca_key).expect("a key") }
    }

    /// Opens a connection, with HTTP/2 on request.
    pub(crate) async fn connect(
        &self,
        identity: Option<&Identity>,
        alpn: &[u8],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca.as_bytes()).expect("PEM");
        roots.add(ca).expect("an authority");
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots);
        let mut config = match identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::Pkcs8(identity.key.serialize_der().into());
                config.with_client_auth_cert(identity.chain.clone(), key).expect("a pair")
            }
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Sends bytes, and reads until the server closes the connection.
    pub(crate) async fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let stream = self.connect(None, b"http/1.1").await.expect("a connection");
        exchange(stream, bytes).await.unwrap_or_default()
    }

    /// Checks the server after an attack: it serves requests, and has released all resources of the attack.
    pub(crate) async fn is_as_before(&self) {
        let admin = self.admin();
        assert_eq!(admin.get("/readyz").await.code, 200, "it is ready");
        let name = self.fresh("after");
        let path = "/api/v1/namespaces/default/configmaps";
        admin.make(path, json!({"metadata": {"name": name}})).await;
        assert_eq!(admin.send("DELETE", &format!("{path}/{name}"), &[], b"").await.code, 200);
        if self.is_upstream {
            // The case shares the server with other cases, and the metrics lag behind by up to a second.
            return;
        }
        for _ in 0..1000 {
            let text = admin.get("/metrics").await.text();
            let gauge = |name: &str| -> f64 {
                let lines = text.lines().filter(|line| line.starts_with(name));
                lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
            };
            let left = gauge("apiserver_current_inflight_requests")
                + gauge("apiserver_longrunning_requests");
            // The request for the metrics counts as one.
            if left <= 1.0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("requests are still counted as being served");
    }
}

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns a CustomResourceDefinition whose objects may have any fields, and the path of the objects in a namespace.
/// `change` changes the definition first.
pub(crate) fn definition(
    plural: &str,
    namespace: &str,
    change: impl FnOnce(&mut Value),
) -> (Value, String) {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}});
    let mut definition = json!({"metadata": {"name": format!("{plural}.attacks.example")}, "spec": {"group": "attacks.example",
        "scope": "Namespaced", "names": {"plural": plural, "kind": format!("Kind{plural}")}, "versions": [version]}});
    change(&mut definition);
    (definition, format!("/apis/attacks.example/v1/namespaces/{namespace}/{plural}"))
}

/// Returns a certificate authority that the server does not trust.
pub(crate) fn other_authority(name: &str) -> Issuer<'static, KeyPair> {
    authority(name, KeyPair::generate().expect("a key"))
}

fn authority(name: &str, key: KeyPair) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Issuer::new(params, key)
}

/// Returns a client certificate that the issuer signed. `change` sets its subject and the other parameters.
pub(crate) fn signed(
    issuer: &Issuer<'_, KeyPair>,
    change: impl FnOnce(&mut CertificateParams),
) -> Identity {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let made = params.signed_by(&key, issuer).expect("a certificate");
    Identity { chain: vec![made.der().clone()], key }
}

/// A client that sends each request on a connection of its own.
pub(crate) struct Client<'a> {
    target: &'a Target,
    identity: Option<Identity>,
    headers: Vec<(String, Vec<u8>)>,
}

impl Client<'_> {
    /// Adds a header to each request.
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sends a request unchanged. Code 0 stands for a refused connection.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Answer {
        let body = body.as_ref();
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")
                .into_bytes();
        for (name, value) in headers {
            request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        for (name, value) in &self.headers {
            request.extend_from_slice(format!("{name}: ").as_bytes());
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
        }
        if !body.is_empty() || !matches!(method, "GET" | "HEAD" | "DELETE") {
            request.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        let _held = (!self.target.is_upstream).then(|| HeldTime::during_upload(body.len()));
        let Ok(stream) = self.target.connect(self.identity.as_ref(), b"http/1.1").await else {
            return Answer::none();
        };
        exchange(stream, &request)
            .await
            .map_or_else(|_| Answer::none(), |bytes| Answer::read(&bytes))
    }

    /// Sends a body of a media type.
    pub(crate) async fn give(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: impl AsRef<[u8]>,
    ) -> Answer {
        self.send(method, path, &[("content-type", media)], body).await
    }

    /// Sends the head of a request for an upgrade to WebSocket. Returns the head of the response, and the connection.
    pub(crate) async fn upgrade(
        &self,
        path: &str,
        protocol: &str,
    ) -> (Answer, TlsStream<TcpStream>) {
        let mut request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n"
        )
        .into_bytes();
        for (name, value) in &self.headers {
            request.extend_from_slice(format!("{name}: ").as_bytes());
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let stream = self.target.connect(self.identity.as_ref(), b"http/1.1").await;
        let mut stream = stream.expect("a connection");
        stream.write_all(&request).await.expect("it is written");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("an answer"));
        }
        (Answer::read(&head), stream)
    }

    /// Sends the handshake of SPDY. Returns the response and the connection.
    pub(crate) async fn upgrade_to_spdy(
        &self,
        path: &str,
        protocol: &str,
    ) -> (Answer, TlsStream<TcpStream>) {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n"
        )
        .into_bytes();
        for (name, value) in &self.headers {
            request.extend_from_slice(format!("{name}: ").as_bytes());
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let stream = self.target.connect(self.identity.as_ref(), b"http/1.1").await;
        let mut stream = stream.expect("a connection");
        stream.write_all(&request).await.expect("it is written");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("an answer"));
        }
        (Answer::read(&head), stream)
    }

    /// Reads an object or a list.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"").await
    }

    /// Sends the creation of an object, and returns any response.
    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.give("POST", path, JSON, object.to_string()).await
    }

    /// Creates an object that the case needs, and returns it.
    pub(crate) async fn make(&self, path: &str, object: Value) -> Value {
        let answer = self.post(path, &object).await;
        assert_eq!(answer.code, 201, "{path}: {}", answer.text());
        answer.json()
    }

    /// Patches in one of the forms.
    pub(crate) async fn patch(&self, path: &str, media: &str, patch: &Value) -> Answer {
        self.give("PATCH", path, media, patch.to_string()).await
    }
}

/// A response; code 0 if the server sent none.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn none() -> Self {
        Self { code: 0, head: String::new(), body: Vec::new() }
    }

    /// Parses the first response on a connection.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Self::none();
        };
        let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        if code == 100 {
            return Self::read(&bytes[at + 4..]);
        }
        let body = &bytes[at + 4..];
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunk(body) } else { body.to_owned() };
        Self { code, head, body }
    }

    pub(crate) fn json(&self) -> Value {
        evenkeel_api::json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the message of the response's Status.
    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Status line and headers.
    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    /// Panics unless the response has this code, and its message contains `words`.
    #[track_caller]
    pub(crate) fn is(&self, code: u16, words: &str) {
        let text = self.text();
        let shown: String = text.chars().take(600).collect();
        assert_eq!(self.code, code, "{shown}");
        assert!(
            text.contains(words) || self.message().contains(words),
            "{words:?} is not in: {shown}"
        );
    }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(at) = body.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&body[..at])
            .ok()
            .and_then(|hex| usize::from_str_radix(hex, 16).ok());
        let Some(chunk) =
            size.filter(|size| *size > 0).and_then(|size| body.get(at + 2..at + 2 + size))
        else {
            break;
        };
        whole.extend_from_slice(chunk);
        body = body.get(at + 4 + chunk.len()..).unwrap_or_default();
    }
    whole
}

/// Guard that stops virtual time: a runtime that only waits for sockets would advance to the next deadline. After a
/// while, time continues, for responses that wait for a deadline.
struct HeldTime {
    /// Dropping it ends the thread that holds the time.
    _ends: std::sync::mpsc::Sender<()>,
}

impl HeldTime {
    /// Holds the time long enough for the upload of a body of this size on a busy machine.
    fn during_upload(size: usize) -> Self {
        let at_most = if size < 16 * 1024 { 1 } else { 20 };
        let (ends, ended) = std::sync::mpsc::channel();
        #[expect(clippy::disallowed_methods, reason = "it ends with the request")]
        tokio::task::spawn_blocking(move || {
            let _ = ended.recv_timeout(Duration::from_secs(at_most));
        });
        Self { _ends: ends }
    }
}

/// Writes the bytes, and reads until the server closes the connection. A server may respond and close before it has
/// read everything.
async fn exchange(stream: TlsStream<TcpStream>, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut read = Vec::new();
    let writing = async {
        // The server may refuse the request before it has read all of it.
        let _ = writer.write_all(bytes).await;
        let _ = writer.flush().await;
    };
    let reading = async {
        let mut buffer = vec![0; 65536];
        loop {
            match reader.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(n) => read.extend_from_slice(&buffer[..n]),
            }
        }
    };
    let both = async {
        tokio::pin!(reading);
        tokio::select! {
            () = &mut reading => {}
            () = writing => reading.await,
        }
    };
    tokio::time::timeout(ANSWER_TIMEOUT, both).await.map_err(|_| std::io::ErrorKind::TimedOut)?;
    if read.is_empty() { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
}
