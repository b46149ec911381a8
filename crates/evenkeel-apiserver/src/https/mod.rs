//! Client for HTTPS requests to other servers, each over a new connection.

mod any_certificate;
mod kubeconfig;
mod refusal;

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_x509::CertPool;
use futures::FutureExt as _;
use http::uri::Authority;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use any_certificate::AnyCertificate;
pub(crate) use kubeconfig::Target;
pub(crate) use refusal::error_of_response;

/// Address of a server.
pub(crate) struct Address {
    /// Name that the server's certificate must have.
    pub(crate) host: String,
    /// Name or IP address to connect to, with port.
    pub(crate) address: String,
}

impl Address {
    /// Returns the address of the server in a URL. The default port is 443.
    pub(crate) fn from_authority(authority: &Authority) -> Self {
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(443);
        let address = join_host_port(&host, port);
        Self { host, address }
    }
}

/// Joins a name or an IP address and a port. An IPv6 address gets brackets.
///
/// Upstream: Go's `net.JoinHostPort`.
pub(crate) fn join_host_port(host: &str, port: impl std::fmt::Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Certificates that a client accepts.
pub(crate) enum Trust {
    /// Certificates that these certificate authorities signed.
    Roots(CertPool),
    /// Every certificate, signed by any CA.
    Any,
}

/// Certificate chain and key of a client.
pub(crate) struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ClientIdentity {
    /// Parses a chain and its key from PEM.
    pub(crate) fn from_pem(chain: &str, key: &str) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        if chain.is_empty() {
            return Err("it contains no PEM of a certificate".to_owned());
        }
        let key =
            PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| error.to_string())?;
        let identity = Self { chain, key };
        // The creation of a configuration checks that the key belongs to the certificate.
        client_config(Trust::Any, Some(&identity))?;
        Ok(identity)
    }
}

/// Creates the TLS configuration of a client, with its own certificate if it has one.
pub(crate) fn client_config(
    trust: Trust,
    identity: Option<&ClientIdentity>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = match trust {
        Trust::Roots(roots) => roots.server_verifier(provider.clone()),
        Trust::Any => Arc::new(AnyCertificate(provider.clone())),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    match identity {
        None => Ok(config.with_no_client_auth()),
        Some(ClientIdentity { chain, key }) => config
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|error| error.to_string()),
    }
}

/// Opens a TCP connection. `shown` is the address as errors name it.
pub(crate) async fn dial(address: impl ToSocketAddrs, shown: &str) -> Result<TcpStream, String> {
    TcpStream::connect(address).await.map_err(|error| {
        let error = if error.kind() == std::io::ErrorKind::ConnectionRefused {
            "connect: connection refused".to_owned()
        } else {
            error.to_string()
        };
        format!("dial tcp {shown}: {error}")
    })
}

/// Connects to a server, and verifies its certificate.
pub(crate) async fn connect(
    server: &Address,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, String> {
    let stream = dial(&server.address, &server.address).await?;
    let name = ServerName::try_from(server.host.clone()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(config);
    connector.connect(name, stream).await.map_err(|error| handshake_error(&error))
}

/// Sends a request over a new connection to a server that `roots` must have signed. Returns the status code and the
/// body of the response. A body of more than `limit` bytes is an error.
pub(crate) async fn send(
    server: &Address,
    roots: &CertPool,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<(StatusCode, Bytes), String> {
    let config = client_config(Trust::Roots(roots.clone()), None)?;
    let response = exchange(server, Arc::new(config), request, limit).await?;
    Ok((response.status(), response.into_body()))
}

/// Sends a request over a new connection with this TLS configuration, and returns the response. A body of more than
/// `limit` bytes is an error.
pub(crate) async fn exchange(
    server: &Address,
    config: Arc<ClientConfig>,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<Response<Bytes>, String> {
    let stream = connect(server, config).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let response_future = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, limit).collect().await;
        Ok(Response::from_parts(head, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    // Drive the connection only while waiting for the response. If the server closes it right after a short response,
    // `response_future` is ready at the next poll.
    let mut response_future = std::pin::pin!(response_future);
    tokio::select! {
        biased;
        response = &mut response_future => response,
        _ = connection => response_future
            .now_or_never()
            .unwrap_or_else(|| Err("the connection was closed before an answer".to_owned())),
    }
}

/// Returns the reason of a failed TLS handshake. Common reasons have Go's message, which users can search for.
fn handshake_error(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    inner.and_then(evenkeel_x509::message).unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_the_default_port_and_ipv6_brackets() {
        for (authority, host, address) in [
            ("a.example.com", "a.example.com", "a.example.com:443"),
            ("a.example.com:8443", "a.example.com", "a.example.com:8443"),
            ("10.0.0.1", "10.0.0.1", "10.0.0.1:443"),
            ("[2001:db8::1]:8443", "2001:db8::1", "[2001:db8::1]:8443"),
        ] {
            let parsed = Address::from_authority(&authority.parse().expect("an authority"));
            assert_eq!((&*parsed.host, &*parsed.address), (host, address));
        }
        assert_eq!(join_host_port("2001:db8::1", 443), "[2001:db8::1]:443");
    }
}
