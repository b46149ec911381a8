//! The HTTPS listener of webhooks.

use super::{Shared, certificates::Served};
use crate::{
    clock::Clock,
    secure_serving::{Server, handshake},
    tasks::Tasks,
};
use evenkeel_listener::{Accepted, HttpOptions, Protocol, serve as serve_http};
use http_body_util::Full;
use hyper::{Request, body::Incoming};
use rustls::ServerConfig;
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Maximum time for requests to complete after the shutdown begins: the maximum timeout of a webhook.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the TLS configuration: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, and the current certificate.
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
    let (acceptor, stopped) = (TlsAcceptor::from(tls), stop.clone());
    Server { listener, clock, task: "webhook connection", drain: DRAIN_TIMEOUT, stop }
        .run(Tasks::new(), |accepted| {
            serve_connection(accepted, acceptor.clone(), Arc::clone(&shared), stopped.clone())
        })
        .await;
}

async fn serve_connection(
    accepted: Accepted,
    acceptor: TlsAcceptor,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    let Accepted { stream, slot: _slot, peer } = accepted;
    let accept = async |stream| acceptor.accept(stream).await;
    let Some(stream) = handshake(stream, peer, &stop, accept).await else { return };
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
