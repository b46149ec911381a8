//! How an extender is reached: whom the scheduler believes, and the certificate that it comes with.

use super::SetUpError;
use crate::program::config::{ExtenderConfig, ExtenderTls};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_runtime::client::transport;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// How often the files are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(10);

/// A connection that comes with what its files say.
pub(super) struct Connection {
    config: ExtenderConfig,
    current: Mutex<Current>,
}

struct Current {
    client: kube::Client,
    /// What it was made of.
    files: Option<Files>,
    looked: Instant,
}

/// What is in the files of the certificate and of its key.
type Files = [Vec<u8>; 2];

impl Connection {
    pub(super) fn new(config: &ExtenderConfig) -> Result<Self, SetUpError> {
        let client = connection(config)?;
        let files = files(config).transpose().unwrap_or_default();
        let current = Current { client, files, looked: Instant::now() };
        Ok(Self { config: config.clone(), current: Mutex::new(current) })
    }

    /// The connection to be used for a request. Files that cannot be used leave it as it is.
    pub(super) fn now(&self) -> kube::Client {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() < LOOK {
            return current.client.clone();
        }
        current.looked = Instant::now();
        let Some(Ok(now)) = files(&self.config) else { return current.client.clone() };
        if current.files.as_ref() != Some(&now) {
            match connection(&self.config) {
                Ok(client) => current.client = client,
                Err(error) => {
                    let extender = &self.config.url_prefix;
                    tracing::warn!(extender, %error, "Changed files cannot be used (yet)");
                }
            }
            current.files = Some(now);
        }
        current.client.clone()
    }
}

/// As upstream has it, a certificate is followed only where it and its key come from files.
fn files(config: &ExtenderConfig) -> Option<io::Result<Files>> {
    let tls = config.tls_config.as_ref()?;
    let from_files = tls.cert_data.is_empty() && tls.key_data.is_empty();
    let (certificate, key) = (given(&tls.cert_file)?, given(&tls.key_file)?);
    let read = || Ok([std::fs::read(certificate)?, std::fs::read(key)?]);
    from_files.then(read)
}

/// Upstream's rules: a certificate without its key is none, what is given as data goes before files, and with `enableHTTPS` and
/// nobody to believe everybody is.
fn connection(config: &ExtenderConfig) -> Result<kube::Client, SetUpError> {
    let address = || SetUpError::Address(config.url_prefix.clone());
    let url: http::Uri = config.url_prefix.parse().map_err(|_| address())?;
    if url.host().is_none() {
        return Err(address());
    }
    let mut connect = kube::Config::new(url);
    let none = ExtenderTls::default();
    let tls = config.tls_config.as_ref().unwrap_or(&none);
    let authority = authority(tls)?;
    if tls.insecure && authority.is_some() {
        return Err(SetUpError::InsecureWithAuthority);
    }
    connect.accept_invalid_certs = tls.insecure || (config.enable_https && authority.is_none());
    connect.root_cert = authority;
    connect.tls_server_name = given(&tls.server_name);
    let certificate = given(&tls.cert_data).or_else(|| given(&tls.cert_file));
    if certificate.and(given(&tls.key_data).or_else(|| given(&tls.key_file))).is_some() {
        let auth = &mut connect.auth_info;
        auth.client_certificate = given(&tls.cert_file);
        auth.client_key = given(&tls.key_file);
        auth.client_certificate_data = given(&tls.cert_data);
        auth.client_key_data = given(&tls.key_data).map(Into::into);
    }
    Ok(transport(&connect)?)
}

fn given(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// Who may sign its certificate; the system's where nobody is named.
fn authority(tls: &ExtenderTls) -> Result<Option<Vec<Vec<u8>>>, SetUpError> {
    let bad = |error: String| SetUpError::Certificate(error);
    let pem = match (tls.ca_data.as_str(), tls.ca_file.as_str()) {
        ("", "") => return Ok(None),
        ("", path) => std::fs::read(path)
            .map_err(|source| SetUpError::File { path: path.to_owned(), source })?,
        (data, _) => BASE64_STANDARD.decode(data).map_err(|error| bad(error.to_string()))?,
    };
    let certificates: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(&pem)
        .map(|certificate| certificate.map(|certificate| certificate.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|error| bad(error.to_string()))?;
    if certificates.is_empty() {
        return Err(bad("there is no certificate".to_owned()));
    }
    Ok(Some(certificates))
}
