//! Rules for a peer's certificate that is itself in the pool of roots.

use rustls::{
    CertificateError, Error, ExtendedKeyPurpose,
    pki_types::{CertificateDer, UnixTime},
    server::ParsedCertificate,
};
use x509_parser::{certificate::X509Certificate, extensions::ExtendedKeyUsage};

/// Extended key usage that a peer's certificate needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Authentication of a server.
    ServerAuth,
    /// Authentication of a client.
    ClientAuth,
}

impl Usage {
    fn is_in(self, usages: &ExtendedKeyUsage<'_>) -> bool {
        match self {
            Self::ServerAuth => usages.server_auth,
            Self::ClientAuth => usages.client_auth,
        }
    }

    fn purpose(self) -> ExtendedKeyPurpose {
        match self {
            Self::ServerAuth => ExtendedKeyPurpose::ServerAuth,
            Self::ClientAuth => ExtendedKeyPurpose::ClientAuth,
        }
    }
}

/// Verifies a peer's certificate that is in the pool of roots, except for its name. It may be a CA certificate
/// or not, and its signature is not verified.
///
/// Upstream: `Certificate.Verify` of Go's `crypto/x509`, where `opts.Roots.contains(c)`.
pub(crate) fn verify_root<'a>(
    certificate: &'a CertificateDer<'a>,
    usage: Usage,
    now: UnixTime,
) -> Result<ParsedCertificate<'a>, Error> {
    // Parsing refuses unknown critical extensions, and version 1 certificates, which webpki does not support.
    let parsed = ParsedCertificate::try_from(certificate)?;
    let details = parse(certificate).ok_or(CertificateError::BadEncoding)?;
    verify_validity(&details, now)?;
    verify_usage(&details, usage)?;
    Ok(parsed)
}

/// Parses the certificate. Returns `None` if it is malformed or has trailing bytes.
pub(crate) fn parse<'a>(certificate: &'a CertificateDer<'a>) -> Option<X509Certificate<'a>> {
    let (rest, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    rest.is_empty().then_some(parsed)
}

fn verify_validity(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    let validity = certificate.validity();
    // UnixTime cannot be before 1970. The clock is later in any case, so 1970 replaces an earlier time.
    let unix_time = |seconds: i64| {
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds.max(0).unsigned_abs()))
    };
    let not_before = unix_time(validity.not_before.timestamp());
    let not_after = unix_time(validity.not_after.timestamp());
    if now.as_secs() < not_before.as_secs() {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now.as_secs() > not_after.as_secs() {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}

/// Requires that the certificate may be used for this purpose.
///
/// Upstream: `checkChainForKeyUsage` of Go's `crypto/x509`. A certificate without extended key usages may be
/// used for any purpose.
fn verify_usage(certificate: &X509Certificate<'_>, usage: Usage) -> Result<(), Error> {
    let usages = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    let allowed = usages.is_none_or(|usages| usages.value.any || usage.is_in(usages.value));
    if allowed {
        return Ok(());
    }
    let required = usage.purpose();
    Err(CertificateError::InvalidPurposeContext { required, presented: Vec::new() }.into())
}
