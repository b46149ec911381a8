//! The certificates that a peer's chain may end at.

use crate::{client::ClientVerifier, server::ServerVerifier};
use rustls::{
    DistinguishedName, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, pem::PemObject as _},
    server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use std::{collections::HashSet, sync::Arc};

/// Why certificates do not make a [`CertPool`].
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The text is no PEM.
    #[error("{0}")]
    Pem(String),
    /// A certificate cannot be a root.
    #[error("{0}")]
    Certificate(rustls::Error),
    /// A verifier of clients needs a root.
    #[error("{0}")]
    Verifier(VerifierBuilderError),
}

/// Pool of trusted root certificates. A peer is trusted with a certificate that they signed, or with one of them.
#[doc(alias = "RootCertStore")]
#[derive(Debug, Clone)]
pub struct CertPool {
    roots: RootCertStore,
    ders: HashSet<Vec<u8>>,
}

impl CertPool {
    /// A pool without a certificate; nobody is believed by it.
    pub fn empty() -> Self {
        Self { roots: RootCertStore::empty(), ders: HashSet::new() }
    }

    /// The certificates in PEM text; sections of other kinds are left out.
    ///
    /// # Errors
    /// When the text is broken, or a certificate cannot be used.
    pub fn from_pem(pem: &[u8]) -> Result<Self, PoolError> {
        let mut pool = Self::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| PoolError::Pem(error.to_string()))?;
            pool.add(certificate).map_err(PoolError::Certificate)?;
        }
        Ok(pool)
    }

    /// The system's certificates, those that cannot be used left out. `SSL_CERT_FILE` and `SSL_CERT_DIR` count, as in Go.
    pub fn system() -> Self {
        let mut pool = Self::empty();
        for certificate in rustls_native_certs::load_native_certs().certs {
            let _ = pool.add(certificate);
        }
        pool
    }

    /// Adds a certificate.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn add(&mut self, certificate: CertificateDer<'_>) -> Result<(), rustls::Error> {
        let der = certificate.to_vec();
        self.roots.add(certificate)?;
        self.ders.insert(der);
        Ok(())
    }

    /// Whether the pool is empty.
    pub fn is_empty(&self) -> bool {
        self.ders.is_empty()
    }

    /// The subjects of the certificates, which servers send to clients as a hint.
    pub fn subjects(&self) -> Vec<DistinguishedName> {
        self.roots.subjects()
    }

    /// Upstream: `CertPool.contains` of Go's `crypto/x509`: byte for byte.
    pub(crate) fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.ders.contains(certificate.as_ref())
    }

    /// A verifier of servers for a client.
    #[must_use]
    pub fn server_verifier(self, provider: Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
        let algorithms = provider.signature_verification_algorithms;
        let roots = Arc::new(self.roots.clone());
        // The builder's only error is that there are no roots: then nobody is believed.
        let chains = WebPkiServerVerifier::builder_with_provider(roots, provider).build().ok();
        Arc::new(ServerVerifier { pool: self, chains, algorithms })
    }

    /// A verifier of clients for a server; with `mandatory`, it refuses clients that show no certificate.
    ///
    /// # Errors
    /// When the pool is empty.
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
