//! Verification of client certificates.

use crate::{
    CertPool,
    leaf::{self, Usage},
};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use std::sync::Arc;

/// Verifies a client's certificate as Go's servers do.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    pub(crate) pool: CertPool,
    /// Verifies chains that end in the pool.
    pub(crate) chains: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.chains.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chains.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.pool.contains(certificate) {
            let verified = leaf::verify_root(certificate, Usage::ClientAuth, now);
            return verified.map(|_| ClientCertVerified::assertion());
        }
        self.chains.verify_client_cert(certificate, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
