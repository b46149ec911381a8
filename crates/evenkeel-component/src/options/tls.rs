//! Options of TLS: versions, cipher suites, key exchange groups, and certificates by server name.

use crate::flags::Reader;

/// Options of TLS on the secure port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The oldest accepted version.
    pub min_version: TlsVersion,
    /// IANA names of cipher suites. Empty means the library's default.
    pub ciphers: Vec<&'static str>,
    /// IANA numbers of key exchange groups. Empty means the library's default.
    pub groups: Vec<u16>,
    /// Certificates for clients that request certain server names.
    pub by_name: Vec<NamedCertificate>,
}

/// Minimum TLS version. Versions before 1.2 are valid values of the flag, but are never accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2, also for older values of the flag.
    #[default]
    Tls12,
    /// Only TLS 1.3.
    Tls13,
}

/// Certificate for clients that request certain server names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCertificate {
    /// Path of the certificate.
    pub certificate: String,
    /// Path of its key.
    pub key: String,
    /// Server names and patterns. Empty means the certificate's own names.
    pub names: Vec<String>,
}

/// Cipher suites that upstream prefers. Those of TLS 1.3 come first.
const PREFERRED: [&str; 15] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Cipher suites that upstream accepts but calls insecure.
const INSECURE: [&str; 12] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

impl TlsOptions {
    pub(super) fn from_flags(read: &Reader) -> Self {
        let min_version = match read.text("tls-min-version").as_str() {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => TlsVersion::Tls12,
            "VersionTLS13" => TlsVersion::Tls13,
            other => {
                read.record_invalid("tls-min-version", format!("unknown tls version {other:?}"));
                TlsVersion::default()
            }
        };
        let ciphers = read.list("tls-cipher-suites");
        let groups = read.list("tls-curve-preferences");
        Self {
            min_version,
            ciphers: ciphers.iter().filter_map(|cipher| supported_cipher(read, cipher)).collect(),
            groups: groups.iter().filter_map(|group| group.parse().ok()).collect(),
            by_name: read
                .list("tls-sni-cert-key")
                .iter()
                .filter_map(|text| named_certificate(text))
                .collect(),
        }
    }

    /// Returns the requested cipher suites that are insecure.
    pub(super) fn insecure_ciphers(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.ciphers.iter().copied().filter(|cipher| INSECURE.contains(cipher))
    }

    /// Returns the help text's list of cipher suites.
    pub fn options() -> String {
        let (preferred, insecure) = (PREFERRED.join(", "), INSECURE.join(", "));
        format!("Preferred values: {preferred}.\nInsecure values: {insecure}.")
    }
}

/// Returns a cipher suite that upstream accepts, or records the flag as invalid.
fn supported_cipher(read: &Reader, cipher: &str) -> Option<&'static str> {
    let supported = PREFERRED.iter().chain(&INSECURE).find(|known| **known == cipher).copied();
    if supported.is_none() {
        let rule = format!("Cipher suite {cipher} not supported or doesn't exist");
        read.record_invalid("tls-cipher-suites", rule);
    }
    supported
}

/// Parses `certificate,key:name,name`. The flag's type has already validated the syntax.
fn named_certificate(text: &str) -> Option<NamedCertificate> {
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let (certificate, key) = files.split_once(',')?;
    Some(NamedCertificate {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        names: names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
    })
}
