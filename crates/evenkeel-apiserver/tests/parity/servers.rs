//! The two servers, and requests to them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_apiserver::{Builder, Server};
use http::{HeaderMap, Method, Request};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service as _;

use super::kube_apiserver::{TOKENS, Upstream};

/// A request to both servers.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) media: &'static str,
    pub(crate) body: Value,
}

impl Sent {
    pub(crate) fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), media: "", body: Value::Null }
    }

    pub(crate) fn post(path: &str, body: Value) -> Self {
        Self { method: Method::POST, path: path.to_owned(), media: "application/json", body }
    }
}

/// A response of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

/// A raw response of a server.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    /// Zero if the connection ended without a response.
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

/// A connection to a server.
pub(crate) enum Connection {
    Upstream(Arc<Upstream>, SendRequest<Full<Bytes>>),
    Embedded(evenkeel_apiserver::Service),
}

/// A server that accepts connections.
#[derive(Clone)]
pub(crate) enum Oracle {
    Upstream(Arc<Upstream>),
    Embedded(Server),
}

/// A streaming response: one JSON document per line.
pub(crate) struct Stream {
    body: UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>,
    buffer: Vec<u8>,
}

impl Stream {
    /// Returns the next document; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a document"));
            }
            let frame = self.body.frame().await?.ok()?;
            self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
        }
    }
}

impl Oracle {
    /// Starts upstream's server from a folder of programs, then ours; upstream's is ready.
    pub(crate) async fn both(binaries: &Path) -> [Self; 2] {
        Self::both_with(binaries, &[], Server::builder()).await
    }

    /// Like [`both`](Self::both), with the feature gate `ShardedListAndWatch`.
    pub(crate) async fn both_sharded(binaries: &Path) -> [Self; 2] {
        let flags = ["--feature-gates=ShardedListAndWatch=true".to_owned()];
        Self::both_with(binaries, &flags, Server::builder().sharded_list_and_watch(true)).await
    }

    async fn both_with(binaries: &Path, flags: &[String], builder: Builder) -> [Self; 2] {
        let upstream = Self::Upstream(Arc::new(Upstream::start_with(binaries, flags)));
        let server = builder.tokens_csv(TOKENS).build().await.expect("a server");
        upstream.ready().await;
        [upstream, Self::Embedded(server)]
    }

    pub(crate) async fn connect(&self) -> Connection {
        match self {
            Self::Embedded(server) => Connection::Embedded(server.service()),
            Self::Upstream(upstream) => {
                let sender = over_tls(upstream).await.expect("a connection");
                Connection::Upstream(upstream.clone(), sender)
            }
        }
    }

    /// Sends a request whose response does not end, on a connection of its own.
    pub(crate) async fn stream(&self, request: Request<Full<Bytes>>) -> Stream {
        let body = match self.connect().await {
            Connection::Upstream(_, mut sender) => {
                let response = sender.send_request(request).await.expect("an answer");
                // The connection is open as long as its sender exists.
                let kept = response.into_body().map_frame(move |frame| {
                    let _ = &sender;
                    frame
                });
                kept.map_err(Box::from).boxed_unsync()
            }
            Connection::Embedded(mut service) => {
                let response = service.call(request).await.expect("an answer");
                response.into_body().map_err(Box::from).boxed_unsync()
            }
        };
        Stream { body, buffer: Vec::new() }
    }

    /// Waits until the server is ready.
    pub(crate) async fn ready(&self) {
        let Self::Upstream(upstream) = self else { return };
        for _ in 0..600 {
            if over_tls(upstream).await.is_some() {
                let mut connection = self.connect().await;
                if connection.ask(&Sent::get("/readyz")).await.code == 200 {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("upstream's server is not ready");
    }
}

/// Connects to upstream's server; `None` while it does not listen.
async fn over_tls(upstream: &Upstream) -> Option<SendRequest<Full<Bytes>>> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(upstream.ca.as_bytes()).expect("a certificate");
    roots.add(ca).expect("an authority");
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(upstream.address).await.ok()?;
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(connection);
    Some(sender)
}

impl Connection {
    /// Creates a namespace with its default ServiceAccount, because no controller creates the account.
    pub(crate) async fn make_namespace(&mut self, name: &str) {
        let namespace = json!({"metadata": {"name": name}});
        let made = self.ask(&Sent::post("/api/v1/namespaces", namespace)).await;
        assert_eq!(made.code, 201, "{}", made.body);
        let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
        self.ask(&Sent::post(&accounts, json!({"metadata": {"name": "default"}}))).await;
    }

    /// Waits until a path is served, such as that of a kind that was just defined.
    pub(crate) async fn until_served(&mut self, path: &str) {
        for _ in 0..600 {
            if self.ask(&Sent::get(path)).await.code == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{path} is not served");
    }

    pub(crate) async fn ask(&mut self, sent: &Sent) -> Answer {
        let bytes = if sent.body.is_null() { Bytes::new() } else { sent.body.to_string().into() };
        let request = Request::builder()
            .method(sent.method.clone())
            .uri(&sent.path)
            .header("host", "localhost")
            .header("content-type", sent.media)
            .header("accept", "application/json")
            .header("user-agent", "parity/1")
            .header("authorization", "Bearer admin")
            .body(Full::new(bytes))
            .expect("a request");
        let raw = self.send(request).await;
        let warnings = raw.headers.get_all("warning").iter();
        let warnings =
            warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        let body = serde_json::from_slice(&raw.bytes)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&raw.bytes).into_owned()));
        let body = if raw.code == 0 { Value::Null } else { body };
        Answer { code: raw.code, warnings, body }
    }

    /// Sends a request, and reads its response to the end.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Raw {
        match self {
            Self::Upstream(upstream, sender) => {
                if sender.ready().await.is_err() {
                    *sender = over_tls(upstream).await.expect("a connection");
                }
                // A handler that panics ends the connection without a response.
                let Ok(response) = sender.send_request(request).await else {
                    *sender = over_tls(upstream).await.expect("a connection");
                    return Raw::default();
                };
                let (head, body) = response.into_parts();
                let bytes = body.collect().await.expect("a body").to_bytes();
                Raw { code: head.status.as_u16(), headers: head.headers, bytes }
            }
            Self::Embedded(service) => {
                let (head, body) = service.call(request).await.expect("an answer").into_parts();
                let bytes = body.collect().await.expect("a body").to_bytes();
                Raw { code: head.status.as_u16(), headers: head.headers, bytes }
            }
        }
    }
}
