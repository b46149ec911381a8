//! Listener: TLS, client certificates, HTTP/1.1 and HTTP/2.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_listener::{
    Accepted, ConnectionLimits, HttpOptions, Listener, Protocol, TLS_HANDSHAKE_TIMEOUT,
    serve as serve_http,
};
use evenkeel_tasks::{panic_text, watch};
use evenkeel_x509::CertPool;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::pki::{CertificateWithKey, Pki};
use super::service::{Peer, Service};
use crate::api::Api;
use crate::auth::RequestHeaderOptions;
use evenkeel_apimachinery::user::User;

/// Maximum time for open requests to finish during the shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Error of a listener.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A certificate or key cannot be used.
    #[error("the serving certificate cannot be used: {0}")]
    Certificate(String),
}

/// Acceptor of TLS connections, and verification of their client certificates.
#[derive(Clone)]
pub(super) struct Acceptor {
    tls: TlsAcceptor,
    trust: Arc<ClientTrust>,
}

/// Distinguishes clients from front proxies, because the handshake accepts certificates of both. `None` if no front
/// proxy is configured: the handshake then has verified the client.
struct ClientTrust(Option<Verifiers>);

/// Verifiers that distinguish clients and front proxies.
struct Verifiers {
    client_verifier: Arc<dyn ClientCertVerifier>,
    proxy_verifier: Arc<dyn ClientCertVerifier>,
    options: RequestHeaderOptions,
}

/// Returns the acceptor of TLS connections.
pub(super) fn acceptor(
    pki: &Arc<Pki>,
    front_proxy: Option<&RequestHeaderOptions>,
) -> Result<Acceptor, ServeError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = |roots: &str, is_mandatory| {
        CertPool::from_pem(roots.as_bytes())
            .and_then(|pool| pool.client_verifier(is_mandatory, provider.clone()))
            .map_err(|e| certificate_error(&e))
    };
    let client_roots = pki.client_roots_pem();
    let proxy_roots = front_proxy.map_or("", |options| &options.client_ca);
    let all_roots = format!("{client_roots}\n{proxy_roots}");
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| certificate_error(&e))?
        .with_client_cert_verifier(verifier(&all_roots, false)?)
        .with_cert_resolver(Arc::new(ListenerCertificate::new(pki.clone())?));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let verifiers = |options: &RequestHeaderOptions| -> Result<_, ServeError> {
        Ok(Verifiers {
            client_verifier: verifier(client_roots, true)?,
            proxy_verifier: verifier(&options.client_ca, true)?,
            options: options.clone(),
        })
    };
    let trust = Arc::new(ClientTrust(front_proxy.map(verifiers).transpose()?));
    Ok(Acceptor { tls: TlsAcceptor::from(Arc::new(config)), trust })
}

impl ClientTrust {
    /// Returns the client of a certificate chain. For a front proxy, also returns the end of the chain's validity.
    fn peer(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> (Option<Peer>, Option<Timestamp>) {
        let peer = peer(chain, now);
        let Some(Verifiers { client_verifier, proxy_verifier, options }) = &self.0 else {
            return (peer, None);
        };
        let is_allowed = |peer: &&Peer| options.allows(&peer.user.name);
        let proxy =
            peer.as_ref().filter(is_allowed).filter(|_| verifies(proxy_verifier, chain, now));
        let not_after = proxy.map(|peer| peer.not_after.unwrap_or(Timestamp::MAX));
        let is_client = verifies(client_verifier, chain, now);
        (if is_client { peer } else { Some(Peer::refused()) }, not_after)
    }
}

/// Returns whether a verifier accepts a certificate chain.
fn verifies(
    verifier: &Arc<dyn ClientCertVerifier>,
    chain: &[CertificateDer<'_>],
    now: Timestamp,
) -> bool {
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let Some((certificate, intermediates)) = chain.split_first() else { return false };
    verifier.verify_client_cert(certificate, intermediates, now).is_ok()
}

fn certificate_error(error: &dyn std::fmt::Display) -> ServeError {
    ServeError::Certificate(error.to_string())
}

/// Resolver of the listener's certificate, which follows renewals.
struct ListenerCertificate {
    pki: Arc<Pki>,
    current: Mutex<ParsedCertificate>,
}

/// Certificate that was parsed after a number of renewals.
struct ParsedCertificate {
    n_renewals: u64,
    certified_key: Arc<CertifiedKey>,
}

impl ListenerCertificate {
    fn new(pki: Arc<Pki>) -> Result<Self, ServeError> {
        let n_renewals = *pki.renewals().borrow();
        let certified_key = parse_certificate(&pki)?;
        Ok(Self { current: Mutex::new(ParsedCertificate { n_renewals, certified_key }), pki })
    }

    fn current(&self) -> Arc<CertifiedKey> {
        let n_renewals = *self.pki.renewals().borrow();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.n_renewals != n_renewals {
            match parse_certificate(&self.pki) {
                Ok(certified_key) => *current = ParsedCertificate { n_renewals, certified_key },
                Err(error) => tracing::error!(%error, "the renewed certificate is not served"),
            }
        }
        current.certified_key.clone()
    }
}

impl ResolvesServerCert for ListenerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl std::fmt::Debug for ListenerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ListenerCertificate")
    }
}

/// Parses the listener's chain and key.
fn parse_certificate(pki: &Pki) -> Result<Arc<CertifiedKey>, ServeError> {
    let CertificateWithKey { chain, key } = pki.listener_certificate();
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| certificate_error(&e))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| certificate_error(&e))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new).map_err(|e| certificate_error(&e))
}

/// Accepts connections until `shutdown` is ready.
pub(super) async fn serve(
    api: Arc<Api>,
    listener: TcpListener,
    limits: ConnectionLimits,
    acceptor: Option<Acceptor>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let clock = api.clock.clone();
    let mut listener = Listener::new(listener, limits, move || clock.instant());
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                log_panic(ended);
                continue;
            }
            () = &mut shutdown => break,
        };
        #[expect(clippy::disallowed_methods, reason = "joined by this loop, which logs its panic")]
        connections.spawn(serve_connection(
            api.clone(),
            accepted,
            acceptor.clone(),
            stopped.clone(),
        ));
    }
    drop(listener);
    stop.send_replace(true);
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, async {
        while connections.join_next().await.is_some() {}
    })
    .await;
    connections.abort_all();
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Logs a connection that panicked while it sent a response.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        tracing::error!(panic = panic_text(&*panic), "a connection panicked");
    }
}

/// Serves a connection until its client or the listener closes it. Does the TLS handshake if there is an acceptor.
async fn serve_connection(
    api: Arc<Api>,
    accepted: Accepted,
    acceptor: Option<Acceptor>,
    stopped: watch::Receiver<bool>,
) {
    let Accepted { stream, peer: remote, slot: _slot } = accepted;
    let remote = remote.ip();
    let Some(acceptor) = acceptor else {
        if let Some(protocol) = Protocol::detect(&stream).await {
            serve_requests(Service::new(api, None).with_remote(remote), stream, protocol, stopped)
                .await;
        }
        return;
    };
    match tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, acceptor.tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let session = stream.get_ref().1;
            let chain = session.peer_certificates();
            let (peer, front_proxy) =
                chain.map(|chain| acceptor.trust.peer(chain, api.clock.now())).unwrap_or_default();
            let protocol = Protocol::negotiated(session.alpn_protocol());
            let service = Service::new(api, peer).with_remote(remote).with_front_proxy(front_proxy);
            serve_requests(service, stream, protocol, stopped).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// Serves the requests of one connection. A shutdown finishes requests in flight. An unauthenticated request ends an
/// HTTP/2 connection, to protect the server from denial of service.
///
/// Upstream: `UnauthenticatedHTTP2DOSMitigation`.
async fn serve_requests<S>(
    service: Service,
    stream: S,
    protocol: Protocol,
    mut stopped: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Only HTTP/2 services notify it.
    let anonymous_request = Arc::new(Notify::new());
    let service = match protocol {
        Protocol::Http1 => service.upgradable(stopped.clone()),
        Protocol::Http2 => service.notify_anonymous(anonymous_request.clone()),
    };
    let close = async {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = anonymous_request.notified() => {}
        }
    };
    let service = TowerToHyperService::new(service);
    if let Err(error) = serve_http(stream, protocol, HttpOptions::default(), service, close).await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Returns the client of a certificate chain. Upstream verifies the chain at each request, so the client expires with
/// the chain's first certificate to expire. Certificates that had expired before the handshake do not count.
fn peer(chain: &[CertificateDer<'_>], now: Timestamp) -> Option<Peer> {
    let user = Arc::new(certificate_user(chain.first()?)?);
    let not_after = |certificate: &CertificateDer<'_>| {
        let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
        Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
    };
    let client_end = chain.first().and_then(not_after);
    let issuer_ends = chain.iter().skip(1).filter_map(not_after).filter(|end| now <= *end);
    Some(Peer { user, not_after: client_end.into_iter().chain(issuer_ends).min() })
}

/// Returns the user of a client certificate: its last common name, with its organizations as groups.
fn certificate_user(certificate: &[u8]) -> Option<User> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = certificate.subject();
    // Of several common names, Go and the signers of certificate requests use the last one, too.
    let name = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
    let groups: Vec<&str> =
        subject.iter_organization().filter_map(|organization| organization.as_str().ok()).collect();
    Some(User::authenticated(&name, groups))
}
