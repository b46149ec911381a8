//! Pool of trusted root certificates.

use crate::{client::ClientVerifier, server::ServerVerifier};
use rustls::{
    DistinguishedName, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, pem::PemObject as _},
    server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use std::{collections::HashSet, sync::Arc};

/// Error from making a [`CertPool`] or a verifier.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The bytes are not valid PEM.
    #[error("{0}")]
    Pem(String),
    /// A certificate cannot be used as a root.
    #[error("{0}")]
    Certificate(rustls::Error),
    /// The pool is empty, so that it cannot verify clients.
    #[error("{0}")]
    Verifier(VerifierBuilderError),
}

/// Pool of trusted root certificates. A peer is trusted if its certificate is in the pool, or if a root of the
/// pool signed it.
#[doc(alias = "RootCertStore")]
#[derive(Debug, Clone)]
pub struct CertPool {
    roots: RootCertStore,
    /// The certificates in DER, to compare all bytes.
    ders: HashSet<Vec<u8>>,
}

impl CertPool {
    /// Creates an empty pool, which trusts no peer.
    pub fn empty() -> Self {
        Self { roots: RootCertStore::empty(), ders: HashSet::new() }
    }

    /// Parses the certificates of a PEM file and ignores sections of other types.
    ///
    /// # Errors
    /// Fails if the PEM is malformed, or a certificate cannot be used as a root.
    pub fn from_pem(pem: &[u8]) -> Result<Self, PoolError> {
        let mut pool = Self::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| PoolError::Pem(error.to_string()))?;
            pool.add(certificate).map_err(PoolError::Certificate)?;
        }
        Ok(pool)
    }

    /// Loads the system's certificates and skips unusable ones. Like Go, it reads `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR`.
    pub fn system() -> Self {
        let mut pool = Self::empty();
        for certificate in rustls_native_certs::load_native_certs().certs {
            let _ = pool.add(certificate);
        }
        pool
    }

    /// Adds a root certificate.
    ///
    /// # Errors
    /// Fails if the certificate cannot be used as a root.
    pub fn add(&mut self, certificate: CertificateDer<'_>) -> Result<(), rustls::Error> {
        let der = certificate.to_vec();
        self.roots.add(certificate)?;
        self.ders.insert(der);
        Ok(())
    }

    /// Returns whether the pool has no certificates.
    pub fn is_empty(&self) -> bool {
        self.ders.is_empty()
    }

    /// Returns the subjects of the certificates, which a server sends to clients as a hint.
    pub fn subjects(&self) -> Vec<DistinguishedName> {
        self.roots.subjects()
    }

    /// Returns whether the pool has this certificate.
    ///
    /// Upstream: `CertPool.contains` of Go's `crypto/x509`, which compares all bytes.
    pub(crate) fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.ders.contains(certificate.as_ref())
    }

    /// Returns a verifier of server certificates, for a client.
    #[must_use]
    pub fn server_verifier(self, provider: Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
        let algorithms = provider.signature_verification_algorithms;
        let roots = Arc::new(self.roots.clone());
        // The builder only fails without roots. Then no server is trusted.
        let chains = WebPkiServerVerifier::builder_with_provider(roots, provider).build().ok();
        Arc::new(ServerVerifier { pool: self, chains, algorithms })
    }

    /// Returns a verifier of client certificates, for a server. With `mandatory`, the server refuses clients
    /// without a certificate.
    ///
    /// # Errors
    /// Fails if the pool is empty.
    pub fn client_verifier(
        self,
        mandatory: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, PoolError> {
        let roots = Arc::new(self.roots.clone());
        let mut chains = WebPkiClientVerifier::builder_with_provider(roots, provider);
        if !mandatory {
            chains = chains.allow_unauthenticated();
        }
        let chains = chains.build().map_err(PoolError::Verifier)?;
        Ok(Arc::new(ClientVerifier { pool: self, chains }))
    }
}
