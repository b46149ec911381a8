//! TLS versions, cipher suites and key exchange groups, and the server configuration with them.

use super::TlsError;
use rustls::{
    CipherSuite, DigitallySignedStruct, DistinguishedName, Error, NamedGroup, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
    client::danger::HandshakeSignatureValid,
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, UnixTime},
    server::{
        ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::{TLS12, TLS13},
};
use std::sync::Arc;

type Versions = &'static [&'static SupportedProtocolVersion];

static TLS12_AND_TLS13: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static ONLY_TLS13: [&SupportedProtocolVersion; 1] = [&TLS13];

/// TLS versions, cipher suites, key exchange groups and application protocols of a port.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    pub(super) provider: Arc<CryptoProvider>,
    versions: Versions,
    http2: bool,
    client_certificates: bool,
}

impl Default for TlsSettings {
    fn default() -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Self { provider, versions: &TLS12_AND_TLS13, http2: true, client_certificates: true }
    }
}

impl TlsSettings {
    /// Refuses TLS 1.2.
    #[must_use]
    pub fn only_tls13(mut self) -> Self {
        self.versions = &ONLY_TLS13;
        self
    }

    /// Offers only HTTP/1.1.
    #[must_use]
    pub fn without_http2(mut self) -> Self {
        self.http2 = false;
        self
    }

    /// Requests no certificate of clients, for a port for browsers: a browser with certificates
    /// would ask its user to choose one.
    #[must_use]
    pub fn without_client_certificates(mut self) -> Self {
        self.client_certificates = false;
        self
    }

    /// Limits TLS 1.2 to the cipher suites with these IANA names. An empty list allows all. As in upstream's
    /// programs, the suites of TLS 1.3 stay. Returns the names of unsupported suites.
    pub fn set_ciphers(&mut self, names: &[&'static str]) -> Vec<&'static str> {
        if names.is_empty() {
            return Vec::new();
        }
        let provider = Arc::make_mut(&mut self.provider);
        let has_name = |suite: CipherSuite, name: &str| {
            iana_name(suite).is_some_and(|iana_name| iana_name == to_iana_name(name))
        };
        let is_supported =
            |name: &str| provider.cipher_suites.iter().any(|suite| has_name(suite.suite(), name));
        let unsupported = names.iter().copied().filter(|name| !is_supported(name)).collect();
        provider.cipher_suites.retain(|suite| {
            suite.tls13().is_some() || names.iter().any(|name| has_name(suite.suite(), name))
        });
        let has_tls12 = provider.cipher_suites.iter().any(|suite| suite.tls13().is_none());
        if !has_tls12 {
            // TLS 1.2 has no cipher suite left.
            self.versions = &ONLY_TLS13;
        }
        unsupported
    }

    /// Limits key exchange to the groups with these IANA numbers. An empty list allows all. Returns the numbers
    /// of unsupported groups.
    ///
    /// # Errors
    /// Fails if no group is supported.
    pub fn set_groups(&mut self, numbers: &[u16]) -> Result<Vec<u16>, TlsError> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let provider = Arc::make_mut(&mut self.provider);
        let is_supported = |number: u16| {
            provider.kx_groups.iter().any(|group| group.name() == NamedGroup::from(number))
        };
        let unsupported = numbers.iter().copied().filter(|number| !is_supported(*number)).collect();
        provider.kx_groups.retain(|group| numbers.contains(&u16::from(group.name())));
        if provider.kx_groups.is_empty() {
            return Err(TlsError::Groups(numbers.to_vec()));
        }
        Ok(unsupported)
    }

    /// Returns the configuration of a server that sends `hints`, the names of the CAs of client certificates.
    pub(super) fn config(
        &self,
        certificates: Arc<dyn ResolvesServerCert>,
        hints: &[DistinguishedName],
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let verifier = Arc::new(AnyCertificate {
            hints: hints.to_vec(),
            algorithms: self.provider.signature_verification_algorithms,
        });
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(self.versions)
            .map_err(TlsError::Use)?;
        let builder = match self.client_certificates {
            true => builder.with_client_cert_verifier(verifier),
            false => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if self.http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        Ok(Arc::new(config))
    }
}

/// Returns the IANA name for Go's name of a cipher suite.
fn to_iana_name(name: &str) -> &str {
    match name {
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        name => name,
    }
}

/// Returns the IANA name of a cipher suite. rustls names the suites of TLS 1.3 differently.
fn iana_name(suite: CipherSuite) -> Option<String> {
    let name = suite.as_str()?;
    Some(name.strip_prefix("TLS13_").map_or_else(|| name.to_owned(), |rest| format!("TLS_{rest}")))
}

/// Accepts any client certificate, and verifies only that the client has its key. Trust is checked for each
/// request instead: it may change while the connection is open, and a client may have other credentials.
#[derive(Debug)]
struct AnyCertificate {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(settings: &TlsSettings) -> Vec<String> {
        settings
            .provider
            .cipher_suites
            .iter()
            .filter_map(|suite| iana_name(suite.suite()))
            .collect()
    }

    #[test]
    fn ciphers_are_chosen_by_name() {
        let mut settings = TlsSettings::default();
        let unknown = settings
            .set_ciphers(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_RSA_WITH_RC4_128_SHA"]);
        assert_eq!(unknown, ["TLS_RSA_WITH_RC4_128_SHA"]);
        let all = suites(&settings);
        let chosen = |name: &str| all.iter().any(|suite| suite == name);
        assert!(chosen("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"));
        assert!(chosen("TLS_AES_128_GCM_SHA256"), "TLS 1.3 keeps its own");
        assert!(!chosen("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"));
        assert_eq!(settings.versions.len(), 2);
        settings.set_ciphers(&["TLS_AES_128_GCM_SHA256"]);
        assert_eq!(settings.versions.len(), 1, "no cipher suite of TLS 1.2 is left");
    }

    #[test]
    fn groups_are_chosen_by_number() {
        let mut settings = TlsSettings::default();
        assert_eq!(settings.set_groups(&[29, 4588]).unwrap(), [4588]);
        let names: Vec<_> = settings.provider.kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(names, [NamedGroup::X25519]);
        assert!(settings.set_groups(&[4588]).is_err());
    }
}
