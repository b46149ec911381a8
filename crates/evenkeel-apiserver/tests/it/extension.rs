//! An extension API server on this machine, for the tests of aggregation.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use evenkeel_tasks::watch;
use futures::StreamExt as _;
use http::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use rcgen::SanType;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::webhook::Identity;

/// API group that the extension API server serves, in version v1.
pub(crate) const GROUP: &str = "shop.example.com";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// Common name of the client's certificate; empty without one.
    pub(crate) certificate: String,
}

/// An extension API server.
#[derive(Clone)]
pub(crate) struct Extension {
    pub(crate) port: u16,
    pub(crate) identity: Arc<Identity>,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    stopped: Arc<watch::Sender<bool>>,
}

type Answer = Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

impl Extension {
    /// Starts an extension API server behind the Service `api` in the namespace `default`.
    pub(crate) async fn start() -> Self {
        let identity = Identity::own(|params| {
            let name = "api.default.svc".try_into().expect("a name");
            params.subject_alt_names = vec![SanType::DnsName(name)];
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let acceptor = identity.acceptor();
        let identity = Arc::new(identity);
        let (stopped, mut stopping) = watch::channel(false);
        let extension = Self { port, identity, asked: Arc::default(), stopped: Arc::new(stopped) };
        let served = extension.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = stopping.wait_for(|stopped| *stopped) => return,
                };
                let Ok((stream, _)) = accepted else { return };
                let (acceptor, served) = (acceptor.clone(), served.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let certificate = common_name(stream.get_ref().1.peer_certificates());
                    let service = hyper::service::service_fn(move |request| {
                        let (served, certificate) = (served.clone(), certificate.clone());
                        async move { served.serve(request, certificate).await }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection
                        .serve_connection(TokioIo::new(stream), service)
                        .with_upgrades()
                        .await;
                });
            }
        });
        extension
    }

    /// Stops the server: connections are refused.
    pub(crate) async fn stop(&self) {
        self.stopped.send_replace(true);
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {}
    }

    /// Returns the requests of clients since the last call, without requests of the server itself.
    pub(crate) fn take(&self) -> Vec<ReceivedRequest> {
        let all = std::mem::take(&mut *self.asked.lock().expect("no panic before"));
        let is_own = |asked: &ReceivedRequest| {
            let user = asked.headers.get("x-remote-user").map(http::HeaderValue::as_bytes);
            matches!(user, Some(b"system:kube-aggregator" | b"system:aggregator"))
        };
        all.into_iter().filter(|asked| !is_own(asked)).collect()
    }

    /// Returns all requests so far.
    pub(crate) fn all(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().expect("no panic before").clone()
    }

    async fn serve(
        &self,
        mut request: Request<Incoming>,
        certificate: String,
    ) -> Result<Answer, hyper::Error> {
        let upgrade =
            request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let asked = ReceivedRequest {
            line: format!("{} {}", head.method, head.uri),
            headers: head.headers.clone(),
            body: String::from_utf8_lossy(&body).into_owned(),
            certificate,
        };
        self.asked.lock().expect("no panic before").push(asked);
        let path = head.uri.path().strip_prefix("/apis/shop.example.com/v1");
        Ok(match (head.uri.path(), path) {
            ("/apis", _) => {
                let accept = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
                assert_eq!(accept, Some(AGGREGATED));
                document(AGGREGATED, &discovery())
            }
            ("/openapi/v3", _) => {
                let url = "/openapi/v3/apis/shop.example.com/v1?hash=1";
                let own = json!({"serverRelativeURL": url});
                let other = json!({"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=evil"});
                let paths = json!({"apis/shop.example.com/v1": own, "apis/apps/v1": other});
                document("application/json", &json!({"paths": paths}))
            }
            ("/openapi/v3/apis/shop.example.com/v1", _) => {
                document("application/json", &json!({"openapi": "3.0.0"}))
            }
            (_, Some("")) if head.uri.query() == Some("stall") => begun(futures::stream::pending()),
            (_, Some("/cut")) => {
                // The pause lets the beginning reach the client.
                let mut answer = begun(futures::stream::once(async {
                    tokio::task::yield_now().await;
                    String::new()
                }));
                answer.headers_mut().insert(CONTENT_LENGTH, 100.into());
                answer
            }
            (_, Some("")) => document("application/json", &json!({"kind": "APIResourceList"})),
            (_, Some("/redirect")) => {
                let mut answer = document("text/plain", &json!(""));
                answer.headers_mut().insert(LOCATION, "/elsewhere".parse().expect("a value"));
                with(answer, StatusCode::FOUND)
            }
            (_, Some("/stream")) => match upgrade {
                Some(upgrade) => {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "it ends with the test's runtime"
                    )]
                    tokio::spawn(async move {
                        let Ok(stream) = upgrade.await else { return };
                        let (mut stream, mut bytes) = (TokioIo::new(stream), [0; 4]);
                        stream.read_exact(&mut bytes).await.expect("four bytes");
                        bytes.reverse();
                        stream.write_all(&bytes).await.expect("written");
                    });
                    let mut answer = document("text/plain", &Value::Null);
                    answer.headers_mut().insert(UPGRADE, "echo".parse().expect("a value"));
                    answer.headers_mut().insert(CONNECTION, "Upgrade".parse().expect("a value"));
                    *answer.body_mut() = Full::default().boxed_unsync();
                    with(answer, StatusCode::SWITCHING_PROTOCOLS)
                }
                None => with(document("text/plain", &Value::Null), StatusCode::BAD_REQUEST),
            },
            (_, Some("/things" | "/namespaces/default/things"))
                if head.uri.query() == Some("watch=1") =>
            {
                let event = |n| json!({"type": "ADDED", "object": {"metadata": {"name": n}}});
                let first = futures::stream::iter(["a", "b"].map(|n| format!("{}\n", event(n))));
                let frames = first.map(|text| Ok(Frame::data(Bytes::from(text))));
                let body = StreamBody::new(frames.chain(futures::stream::pending()));
                let mut answer = document("application/json", &Value::Null);
                *answer.body_mut() = body.boxed_unsync();
                answer
            }
            (_, Some(path)) if path.contains("/things") => {
                let mut answer = document("application/json", &json!({"kind": "ThingList"}));
                answer
                    .headers_mut()
                    .insert("access-control-allow-origin", "*".parse().expect("a value"));
                answer.headers_mut().insert("x-served-by", "extension".parse().expect("a value"));
                answer
            }
            _ => with(document("text/plain", &json!("no such thing")), StatusCode::NOT_FOUND),
        })
    }
}

fn document(content_type: &str, body: &Value) -> Answer {
    let mut answer = Response::new(Full::from(body.to_string()).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, content_type.parse().expect("a value"));
    answer
}

/// Returns a response whose body begins with `{` and continues with `rest`.
fn begun(rest: impl futures::Stream<Item = String> + Send + 'static) -> Answer {
    let text = futures::stream::iter(["{".to_owned()]).chain(rest);
    let frames = text.map(|text| Ok(Frame::data(Bytes::from(text))));
    let mut answer = document("application/json", &Value::Null);
    *answer.body_mut() = StreamBody::new(frames).boxed_unsync();
    answer
}

fn with(mut answer: Answer, code: StatusCode) -> Answer {
    *answer.status_mut() = code;
    answer
}

fn discovery() -> Value {
    let kind = json!({"group": GROUP, "version": "v1", "kind": "Thing"});
    let things = json!({"resource": "things", "responseKind": kind, "scope": "Namespaced",
        "singularResource": "thing", "verbs": ["get", "list", "watch"]});
    let version = json!({"version": "v1", "resources": [things], "freshness": "Current"});
    let group = json!({"metadata": {"name": GROUP}, "versions": [version]});
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [group]})
}

fn common_name(chain: Option<&[rustls::pki_types::CertificateDer<'static>]>) -> String {
    let Some(first) = chain.and_then(<[_]>::first) else { return String::new() };
    let (_, parsed) = x509_parser::parse_x509_certificate(first).expect("a certificate");
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    name.unwrap_or_default().to_owned()
}
