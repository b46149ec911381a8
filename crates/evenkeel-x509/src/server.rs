//! Verification of server certificates.

use crate::{
    CertPool,
    leaf::{self, Usage},
    message::LegacyCommonName,
};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::sync::Arc;

/// Verifies a server's certificate as Go's clients do.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    pub(crate) pool: CertPool,
    /// Verifies chains that end in the pool. `None` when the pool is empty.
    pub(crate) chains: Option<Arc<WebPkiServerVerifier>>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = if self.pool.contains(certificate) {
            leaf::verify_root(certificate, Usage::ServerAuth, now)
                .and_then(|parsed| verify_server_name(&parsed, name))
                .map(|()| ServerCertVerified::assertion())
        } else if let Some(chains) = &self.chains {
            chains.verify_server_cert(certificate, intermediates, name, ocsp, now)
        } else {
            Err(CertificateError::UnknownIssuer.into())
        };
        verified.map_err(|error| {
            if relies_on_common_name(certificate, name) {
                CertificateError::Other(OtherError(Arc::new(LegacyCommonName))).into()
            } else {
                error
            }
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns whether a refused certificate has this name only as its common name. The error then names this cause, so
/// that the certificate can be issued again with SANs.
///
/// Upstream: `HostnameError.Error` of Go's `crypto/x509`.
fn relies_on_common_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let Some(parsed) = leaf::parse(certificate) else { return false };
    if !matches!(parsed.subject_alternative_name(), Ok(None)) {
        return false;
    }
    let name = name.to_str();
    let mut common_names =
        parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    common_names.any(|common| common.eq_ignore_ascii_case(&name) || matches_wildcard(common, &name))
}

/// Returns whether the pattern, such as `*.example.com`, matches the name, such as `a.example.com`.
fn matches_wildcard(pattern: &str, name: &str) -> bool {
    let Some(domain) = pattern.strip_prefix("*.") else { return false };
    name.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain))
}
