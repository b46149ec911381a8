//! TLS connections to extenders: trusted roots and client certificates.

use super::SetUpError;
use crate::extender::{ExtenderConfig, ExtenderTlsConfig};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_runtime::{client::transport, clock::Clock};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Interval between checks of the certificate files.
pub(super) const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// A connection that is rebuilt when its certificate files change.
pub(super) struct Connection {
    clock: Clock,
    config: ExtenderConfig,
    current: Mutex<CurrentClient>,
}

/// Client in use.
struct CurrentClient {
    client: kube::Client,
    /// Contents of the files that the client uses. `None` if none are reloaded.
    files: Option<CertificateFiles>,
    /// Time of the last check of the files.
    checked_at: Instant,
}

/// Contents of the certificate file and of the key file.
#[derive(PartialEq, Eq)]
struct CertificateFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Connection {
    pub(super) fn new(config: &ExtenderConfig, clock: Clock) -> Result<Self, SetUpError> {
        let client = connect_client(config)?;
        let files = read_certificate_files(config).transpose().unwrap_or_default();
        let current = CurrentClient { client, files, checked_at: clock.instant() };
        Ok(Self { clock, config: config.clone(), current: Mutex::new(current) })
    }

    /// Returns the client for a request. If changed files cannot be used, it keeps the current client.
    pub(super) fn client(&self) -> kube::Client {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.instant();
        if now.saturating_duration_since(current.checked_at) < RELOAD_INTERVAL {
            return current.client.clone();
        }
        current.checked_at = now;
        let Some(Ok(files)) = read_certificate_files(&self.config) else {
            return current.client.clone();
        };
        if current.files.as_ref() != Some(&files) {
            match connect_client(&self.config) {
                Ok(client) => current.client = client,
                Err(error) => {
                    let extender = &self.config.url_prefix;
                    tracing::warn!(extender, %error, "Changed files cannot be used (yet)");
                }
            }
            current.files = Some(files);
        }
        current.client.clone()
    }
}

/// Reads the client certificate and key, if both are files. Like upstream, only these are reloaded.
fn read_certificate_files(config: &ExtenderConfig) -> Option<io::Result<CertificateFiles>> {
    let tls = config.tls_config.as_ref()?;
    let from_files = tls.cert_data.is_empty() && tls.key_data.is_empty();
    let certificate = non_empty(&tls.cert_file)?;
    let key = non_empty(&tls.key_file)?;
    from_files.then(|| {
        Ok(CertificateFiles { certificate: std::fs::read(certificate)?, key: std::fs::read(key)? })
    })
}

/// Builds a client by upstream's rules: a certificate needs its key, data take precedence over files, and
/// `enableHTTPS` without roots trusts every server.
fn connect_client(config: &ExtenderConfig) -> Result<kube::Client, SetUpError> {
    let address = || SetUpError::Address(config.url_prefix.clone());
    let url: http::Uri = config.url_prefix.parse().map_err(|_| address())?;
    if url.host().is_none() {
        return Err(address());
    }
    let mut connect = kube::Config::new(url);
    let default_tls = ExtenderTlsConfig::default();
    let tls = config.tls_config.as_ref().unwrap_or(&default_tls);
    let roots = root_certificates(tls)?;
    if tls.insecure && roots.is_some() {
        return Err(SetUpError::InsecureWithRoots);
    }
    connect.accept_invalid_certs = tls.insecure || (config.enable_https && roots.is_none());
    connect.root_cert = roots;
    connect.tls_server_name = non_empty(&tls.server_name);
    let has_certificate = !tls.cert_data.is_empty() || !tls.cert_file.is_empty();
    let has_key = !tls.key_data.is_empty() || !tls.key_file.is_empty();
    if has_certificate && has_key {
        let auth = &mut connect.auth_info;
        auth.client_certificate = non_empty(&tls.cert_file);
        auth.client_key = non_empty(&tls.key_file);
        auth.client_certificate_data = non_empty(&tls.cert_data);
        auth.client_key_data = non_empty(&tls.key_data).map(Into::into);
    }
    Ok(transport(&connect)?)
}

/// Returns a string, or `None` if it is empty.
fn non_empty(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// Returns the configured root certificates in DER, or `None` for the system's.
fn root_certificates(tls: &ExtenderTlsConfig) -> Result<Option<Vec<Vec<u8>>>, SetUpError> {
    let invalid = |error: String| SetUpError::Certificate(error);
    let pem = match (tls.ca_data.as_str(), tls.ca_file.as_str()) {
        ("", "") => return Ok(None),
        ("", path) => std::fs::read(path)
            .map_err(|source| SetUpError::File { path: path.to_owned(), source })?,
        (data, _) => BASE64_STANDARD.decode(data).map_err(|error| invalid(error.to_string()))?,
    };
    let certificates: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(&pem)
        .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(error.to_string()))?;
    if certificates.is_empty() {
        return Err(invalid("there is no certificate".to_owned()));
    }
    Ok(Some(certificates))
}
