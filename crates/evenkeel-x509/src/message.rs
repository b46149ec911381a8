//! TLS errors in Go's words, which people search for.

use jiff::Timestamp;
use rustls::{
    CertificateError, Error,
    pki_types::{ServerName, UnixTime},
};

/// Error of a server certificate whose name is only in the common name, which clients no longer read.
#[derive(thiserror::Error)]
#[error("x509: certificate relies on legacy Common Name field, use SANs instead")]
pub(crate) struct LegacyCommonName;

impl std::fmt::Debug for LegacyCommonName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // rustls prints a verifier's own errors with `Debug`.
        std::fmt::Display::fmt(self, f)
    }
}

/// Returns the message of Go's TLS client for a handshake error, or `None` if Go has no such error.
///
/// Upstream: the `Error` methods in `verify.go` of Go's `crypto/x509`, and `CertificateVerificationError` of `crypto/tls`.
pub fn message(error: &Error) -> Option<String> {
    let Error::InvalidCertificate(cause) = error else { return None };
    Some(format!("tls: failed to verify certificate: {}", certificate_message(cause)?))
}

fn certificate_message(error: &CertificateError) -> Option<String> {
    Some(match error {
        // webpki refuses a CA certificate before it looks for the issuer. Mostly the issuer is that CA itself,
        // so Go would report an unknown authority.
        CertificateError::Other(other)
            if matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) =>
        {
            "x509: certificate signed by unknown authority".into()
        }
        CertificateError::UnknownIssuer => "x509: certificate signed by unknown authority".into(),
        CertificateError::ExpiredContext { time, not_after } => {
            out_of_validity(*time, "after", *not_after)
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            out_of_validity(*time, "before", *not_before)
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "x509: certificate specifies an incompatible key usage".into()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            wrong_name_message(expected, presented)
        }
        CertificateError::Other(other) if other.0.is::<LegacyCommonName>() => other.to_string(),
        _ => return None,
    })
}

/// Returns the message for a certificate outside of its validity: `now` is `before` or `after` the `bound`.
fn out_of_validity(now: UnixTime, side: &str, bound: UnixTime) -> String {
    let format_time = |time: UnixTime| {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |at| at.to_string())
    };
    let (now, bound) = (format_time(now), format_time(bound));
    format!(
        "x509: certificate has expired or is not yet valid: current time {now} is {side} {bound}"
    )
}

/// Returns the message for a certificate that has other names than the expected one.
fn wrong_name_message(expected: &ServerName<'_>, presented: &[String]) -> String {
    let host = expected.to_str();
    let is_address = matches!(expected, ServerName::IpAddress(_));
    let names: Vec<&str> =
        presented.iter().filter_map(|name| name_of_kind(name, is_address)).collect();
    match (names.as_slice(), is_address) {
        ([], true) => format!(
            "x509: cannot validate certificate for {host} because it doesn't contain any IP SANs"
        ),
        ([], false) => {
            format!("x509: certificate is not valid for any names, but wanted to match {host}")
        }
        (names, _) => format!("x509: certificate is valid for {}, not {host}", names.join(", ")),
    }
}

/// Returns the name in webpki's output `DnsName("a")` or `IpAddress(10.0.0.1)`. Returns `None` if the name is of the
/// other kind.
fn name_of_kind(presented: &str, is_address: bool) -> Option<&str> {
    let kind = if is_address { "IpAddress(" } else { "DnsName(" };
    let name = presented.strip_prefix(kind)?.strip_suffix(')')?;
    Some(name.trim_matches('"'))
}
