//! The server: accepts connections, performs TLS handshakes, serves requests, and shuts down gracefully.

use super::{
    accept::Server,
    answer::{complete_response, rejection_response},
    guard::{Guard, path},
    headers::unreadable,
    plain,
    routes::Routes,
    tls::Tls,
};
use crate::{
    clock::Clock,
    tasks::{Tasks, panic_text},
};
use bytes::Bytes;
use evenkeel_listener::{Accepted, HttpOptions, Protocol, serve as serve_http};
use futures::FutureExt;
use http::{HeaderMap, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::sync::CancellationToken;

/// Maximum time to wait for open requests after the shutdown begins.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a request body in bytes. Bodies only contain a single number.
const MAX_BODY_SIZE: usize = 64 * 1024;
/// Timeout of a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Options of connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerOptions {
    /// Limit on concurrent streams of an HTTP/2 connection. Zero means 100.
    pub http2_streams: u32,
}

/// State that connections share.
struct Shared {
    tls: Arc<Tls>,
    routes: Routes,
    guard: Guard,
    options: ServerOptions,
    shutdown: CancellationToken,
}

/// Serves until `shutdown`, and then closes connections gracefully. Reloads changed certificates.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<Tls>,
    routes: Routes,
    guard: Guard,
    options: ServerOptions,
    clock: Clock,
    shutdown: CancellationToken,
) {
    let tasks = Tasks::new();
    let served_tls = tls.clone();
    let reload_clock = clock.clone();
    tasks.spawn_restarting_until_cancelled("certificates", move || {
        let (served_tls, reload_clock) = (served_tls.clone(), reload_clock.clone());
        async move { served_tls.keep_reloaded(&reload_clock).await }
    });
    let shared = Arc::new(Shared { tls, routes, guard, options, shutdown: shutdown.clone() });
    let task = "secure connection";
    Server { listener, clock, task, drain: DRAIN_TIMEOUT, stop: shutdown }
        .run(tasks, |accepted| serve_connection(accepted, shared.clone()))
        .await;
}

/// Serves plain HTTP, without authentication, until `shutdown`, and then closes connections gracefully.
pub async fn serve_plain(
    listener: TcpListener,
    routes: Routes,
    clock: Clock,
    shutdown: CancellationToken,
) {
    let (routes, stop) = (Arc::new(routes), shutdown.clone());
    Server { listener, clock, task: "plain connection", drain: DRAIN_TIMEOUT, stop: shutdown }
        .run(Tasks::new(), |accepted| {
            serve_plain_connection(accepted, Arc::clone(&routes), stop.clone())
        })
        .await;
}

async fn serve_plain_connection(accepted: Accepted, routes: Arc<Routes>, stop: CancellationToken) {
    let Accepted { stream, slot: _slot, .. } = accepted;
    let protocol = stop.run_until_cancelled(Protocol::detect(&stream)).await.flatten();
    let Some(protocol) = protocol else { return };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let routes = Arc::clone(&routes);
        Box::pin(
            async move { Ok::<_, Infallible>(answer_plain(&routes, request).await.map(Full::new)) },
        )
    });
    let stopped = stop.cancelled();
    if let Err(error) = serve_http(stream, protocol, HttpOptions::default(), service, stopped).await
    {
        tracing::debug!(%error, "Connection ended with an error");
    }
}

async fn answer_plain(routes: &Routes, request: Request<Incoming>) -> Response<Bytes> {
    let (parts, body) = request.into_parts();
    let (method, request_headers) = (parts.method.clone(), parts.headers.clone());
    let response = match refuse_unreadable(&request_headers) {
        Some(refused) => refused,
        None => route(routes, parts, body).await,
    };
    complete_response(response, &method, &request_headers)
}

/// Returns the response to a request with an unreadable header, or `None` if all headers are readable.
fn refuse_unreadable(headers: &HeaderMap) -> Option<Response<Bytes>> {
    let name = unreadable(headers)?;
    let why = format!(
        "header \"{name}\" cannot be read: its value is not UTF-8; encode it or leave it out"
    );
    Some(plain(StatusCode::BAD_REQUEST, &why))
}

/// Serves one connection until the client closes it or the server shuts down.
async fn serve_connection(accepted: Accepted, shared: Arc<Shared>) {
    let Accepted { stream, slot: _slot, peer } = accepted;
    let Some(stream) = shared.tls.accept(stream, peer, &shared.shutdown).await else { return };
    let protocol = Protocol::negotiated(stream.get_ref().1.alpn_protocol());
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain: Arc<[CertificateDer<'static>]> =
        chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
    // Close an HTTP/2 connection after an anonymous request, because anonymous clients could overload the
    // server at little cost (upstream's `UnauthenticatedHTTP2DOSMitigation`).
    let close_requested = Arc::new(Notify::new());
    let (service_shared, request_close) = (shared.clone(), close_requested.clone());
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (shared, chain, request_close) =
            (service_shared.clone(), chain.clone(), request_close.clone());
        Box::pin(async move {
            let (response, keep_open) = shared.answer(request, &chain).await;
            if !keep_open {
                request_close.notify_one();
            }
            Ok::<_, Infallible>(response.map(Full::new))
        })
    });
    let options = HttpOptions { http2_streams: shared.options.http2_streams };
    let stop = async {
        tokio::select! {
            () = shared.shutdown.cancelled() => {}
            () = close_requested.notified() => {}
        }
    };
    if let Err(error) = serve_http(stream, protocol, options, service, stop).await {
        tracing::debug!(%error, "Connection ended with an error");
    }
}

impl Shared {
    /// Returns the response, and whether the connection stays open.
    async fn answer(
        &self,
        request: Request<Incoming>,
        chain: &[CertificateDer<'static>],
    ) -> (Response<Bytes>, bool) {
        let (parts, body) = request.into_parts();
        let (method, request_headers) = (parts.method.clone(), parts.headers.clone());
        let http2 = parts.version == Version::HTTP_2;
        if let Some(refused) = refuse_unreadable(&request_headers) {
            return (refused, !http2);
        }
        let admitted = self.guard.admit(&Request::from_parts(parts.clone(), ()), chain).await;
        let (response, authenticated) = match admitted {
            Err(rejection) => {
                let path = path(&Request::from_parts(parts.clone(), ()));
                (rejection_response(&rejection, &parts, &path), !rejection.is_anonymous())
            }
            Ok(user) => (route(&self.routes, parts, body).await, !user.is_anonymous()),
        };
        let mut response = complete_response(response, &method, &request_headers);
        if http2 {
            // HTTP/2 forbids this header.
            response.headers_mut().remove(header::CONNECTION);
        }
        // Only HTTP/2 connections of anonymous clients are closed.
        (response, authenticated || !http2)
    }
}

/// Reads the body and calls the handler of the path. If the handler panics, the server responds with status 500.
async fn route(
    routes: &Routes,
    mut parts: http::request::Parts,
    body: Incoming,
) -> Response<Bytes> {
    // Handlers do not need the credentials.
    parts.headers.remove(header::AUTHORIZATION);
    let body = Limited::new(body, MAX_BODY_SIZE).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Err(_) => {
            let why = "request body did not come within the allotted time";
            return plain(StatusCode::REQUEST_TIMEOUT, why);
        }
        Ok(Err(error)) => {
            return plain(StatusCode::BAD_REQUEST, &format!("error reading request body: {error}"));
        }
    };
    let path = parts.uri.path().to_owned();
    let response = routes.answer(Request::from_parts(parts, body));
    AssertUnwindSafe(response).catch_unwind().await.unwrap_or_else(|panic| {
        tracing::error!(path, panic = panic_text(&*panic), "A request handler panicked");
        plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "This request caused a panic. Look in the logs for details.",
        )
    })
}
