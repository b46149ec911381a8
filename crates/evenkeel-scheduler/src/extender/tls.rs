//! How an extender is reached: whom the scheduler believes, and the certificate that it comes with.

use super::SetUpError;
use crate::program::config::{ExtenderConfig, ExtenderTls};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_runtime::client::transport;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

/// Upstream's rules: a certificate without its key is none, what is given as data goes before files, and with `enableHTTPS` and
/// nobody to believe everybody is.
pub(super) fn connection(config: &ExtenderConfig) -> Result<kube::Client, SetUpError> {
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
