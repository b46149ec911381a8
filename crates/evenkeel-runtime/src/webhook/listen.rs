//! The HTTPS listener of webhooks.

use super::{Shared, certificates::Served};
use crate::{clock::Clock, tasks::Tasks};
use evenkeel_listener::{
    Accepted, ConnectionLimits, HttpOptions, Listener, Protocol, TLS_HANDSHAKE_TIMEOUT,
    refuse_plain_http, serve as serve_http,
};
use http_body_util::Full;
use hyper::{Request, body::Incoming};
use rustls::ServerConfig;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Time that requests have to complete after the shutdown begins: the longest time-out of a webhook.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the TLS configuration: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, the certificate that is served now.
pub(super) fn tls_config(served: &Arc<Served>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(served) as _);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Serves until `stop`, and then completes the requests in flight.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    shared: Arc<Shared>,
    clock: Clock,
    stop: CancellationToken,
) {
    let (tasks, acceptor) = (Tasks::new(), TlsAcceptor::from(tls));
    let limits = ConnectionLimits::default();
    let mut listener = Listener::new(listener, limits, move || clock.instant());
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let connection =
            serve_connection(accepted, acceptor.clone(), Arc::clone(&shared), stop.clone());
        tasks.spawn_finite("webhook connection", connection);
    }
    drop(listener);
    tasks.shut_down(DRAIN_TIMEOUT).await;
}

async fn serve_connection(
    accepted: Accepted,
    acceptor: TlsAcceptor,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    let Accepted { mut stream, slot: _slot, peer } = accepted;
    let handshake = async {
        if refuse_plain_http(&mut stream).await? {
            return Ok(None);
        }
        acceptor.accept(stream).await.map(Some)
    };
    let handshake = tokio::select! {
        () = stop.cancelled() => return,
        handshake = tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, handshake) => handshake,
    };
    let stream = match handshake {
        Ok(Ok(Some(stream))) => stream,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            let error: std::io::Error = error;
            return tracing::debug!(%peer, %error, "TLS handshake of a webhook failed");
        }
        Err(_) => return tracing::debug!(%peer, "TLS handshake of a webhook timed out"),
    };
    let protocol = Protocol::negotiated(stream.get_ref().1.alpn_protocol());
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        Box::pin(
            async move { Ok::<_, Infallible>(shared.routes.answer(request).await.map(Full::new)) },
        )
    });
    let stopped = async { stop.cancelled().await };
    if let Err(error) = serve_http(stream, protocol, HttpOptions::default(), service, stopped).await
    {
        tracing::debug!(%peer, %error, "a connection of a webhook ended with an error");
    }
}
