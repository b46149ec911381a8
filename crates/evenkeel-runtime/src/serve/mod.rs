//! The secure port: health, metrics and introspection over TLS, for those who may see them.
//!
//! Who asks is found out, and whether they may, as upstream's programs do it: the cluster is asked (TokenReview and
//! SubjectAccessReview), with its answers remembered for a while; some paths are open to all.

mod guard;
mod metrics;
mod reviews;
mod tls;

use crate::tasks::Tasks;
use bytes::Bytes;
use guard::Refusal;
pub use guard::{Guard, User};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
pub use metrics::Metrics;
pub use reviews::{ReviewTimes, Reviews};
use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};
pub use tls::{Certificate, TlsError, server_config};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// What answers requests to one path.
type Handler = Arc<dyn Fn(&Request<()>) -> Response<Bytes> + Send + Sync>;

/// How long a connection may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Paths and what answers them.
#[derive(Clone, Default)]
pub struct Routes(BTreeMap<String, Handler>);

impl Routes {
    /// No paths.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a path, answered to GET and HEAD.
    #[must_use]
    pub fn get(
        mut self,
        path: &str,
        handler: impl Fn(&Request<()>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(path.to_owned(), Arc::new(handler));
        self
    }

    /// Adds `/metrics`, in the format that is asked for.
    #[must_use]
    pub fn metrics(self, registry: prometheus::Registry) -> Self {
        self.get("/metrics", move |request| {
            crate::metrics::answer(request.headers(), &registry.gather())
        })
    }

    fn answer(&self, request: &Request<()>) -> Response<Bytes> {
        match self.0.get(request.uri().path()) {
            None => plain(StatusCode::NOT_FOUND, "404 page not found"),
            Some(_) if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                plain(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed")
            }
            Some(handler) => handler(request),
        }
    }
}

/// An answer of one line of text.
pub fn plain(code: StatusCode, text: &str) -> Response<Bytes> {
    answer(code, "text/plain; charset=utf-8", format!("{text}\n"))
}

/// An answer with a body.
pub fn answer(
    code: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-cache, private"));
    headers.insert("x-content-type-options", http::HeaderValue::from_static("nosniff"));
    response
}

/// Serves until `shutdown`; open connections are then told to finish.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    routes: Routes,
    guard: Guard,
    shutdown: CancellationToken,
) {
    let (tasks, acceptor) = (Tasks::new(), TlsAcceptor::from(tls));
    let (routes, guard) = (Arc::new(routes), Arc::new(guard));
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, most likely: others may close theirs.
                Err(error) => {
                    tracing::warn!(%error, "Connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let connection =
            connection(stream, acceptor.clone(), routes.clone(), guard.clone(), shutdown.clone());
        tasks.spawn("secure connection", connection);
    }
    tasks.shut_down(Duration::from_secs(1)).await;
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    routes: Arc<Routes>,
    guard: Arc<Guard>,
    shutdown: CancellationToken,
) {
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let certified = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| User::from_certificate(chain.first()?));
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (routes, guard, certified) = (routes.clone(), guard.clone(), certified.clone());
        async move {
            let request = request.map(drop);
            let response = match guard.admit(&request, certified).await {
                Ok(()) => routes.answer(&request),
                Err(refusal) => refused(&refusal, &request),
            };
            Ok::<_, Infallible>(response.map(Full::new))
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "Connection ended with an error");
    }
}

/// A refusal as the API machinery words it: a Status for who is unknown, text for who may not.
fn refused(refusal: &Refusal, request: &Request<()>) -> Response<Bytes> {
    match refusal {
        Refusal::Unauthorized => {
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
            });
            answer(StatusCode::UNAUTHORIZED, "application/json", status.to_string())
        }
        Refusal::Forbidden { user } => {
            let (verb, path) = (request.method().as_str().to_lowercase(), request.uri().path());
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": format!("forbidden: User {user:?} cannot {verb} path {path:?}"),
                "reason": "Forbidden", "details": {}, "code": 403,
            });
            answer(StatusCode::FORBIDDEN, "application/json", status.to_string())
        }
        Refusal::Unavailable(error) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("Internal Server Error: {error}"))
        }
    }
}
