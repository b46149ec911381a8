//! Client for one HTTPS request to another server.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_x509::CertPool;
use http::uri::Authority;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Address of a server.
pub(crate) struct Address {
    /// Name that the server's certificate must have.
    pub(crate) host: String,
    /// Name or IP address to connect to, with port.
    pub(crate) address: String,
}

impl Address {
    /// Returns the address of a URL's server. The default port is 443.
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

/// Sends a request over a new connection, and returns the status code and the body of the response. A body of more than
/// `limit` bytes is an error.
pub(crate) async fn send(
    server: &Address,
    roots: &CertPool,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<(StatusCode, Bytes), String> {
    let stream = TcpStream::connect(&server.address).await.map_err(|error| {
        let error = if error.kind() == std::io::ErrorKind::ConnectionRefused {
            "connect: connection refused".to_owned()
        } else {
            error.to_string()
        };
        format!("dial tcp {}: {error}", server.address)
    })?;
    let name = ServerName::try_from(server.host.clone()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(client_config(roots)?));
    let stream = connector.connect(name, stream).await.map_err(|error| untrusted(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let code = response.status();
        let body = Limited::new(response.into_body(), limit).collect().await;
        Ok((code, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    // Drive the connection only while waiting for the response.
    tokio::select! {
        answer = answered => answer,
        _ = connection => Err("the connection was closed before an answer".to_owned()),
    }
}

/// Returns the reason of a failed TLS handshake. Common reasons have Go's text, which users can search for.
fn untrusted(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    inner.and_then(evenkeel_x509::message).unwrap_or_else(|| error.to_string())
}

fn client_config(roots: &CertPool) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(roots.clone().server_verifier(provider));
    Ok(config.with_no_client_auth())
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
