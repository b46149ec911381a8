//! Trust anchors: the CA of clients, and the CA of front proxies with their header names. Both come from files or from the
//! ConfigMap, and may change while connections are open.

use super::TlsError;
use crate::tasks::watch;
use evenkeel_x509::{CertPool, PoolError};
use rustls::{
    DistinguishedName,
    pki_types::{CertificateDer, UnixTime},
    server::danger::ClientCertVerifier,
};
use std::sync::Arc;

/// CA that signs client certificates.
#[derive(Debug, Clone)]
pub struct Authority {
    verifier: Arc<dyn ClientCertVerifier>,
    subjects: Vec<DistinguishedName>,
    pem: Vec<u8>,
}

impl Authority {
    /// Parses CAs from PEM.
    ///
    /// # Errors
    /// Fails if the PEM has no valid CA.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let pool = CertPool::from_pem(pem).map_err(tls_error)?;
        let subjects = pool.subjects();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = pool.client_verifier(true, provider).map_err(tls_error)?;
        Ok(Self { verifier, subjects, pem: pem.to_vec() })
    }

    /// Verifies the chain for client authentication at this time. A certificate that is itself one of the CAs
    /// is also valid.
    pub(super) fn verify_chain(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), String> {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Err("no certificate".into());
        };
        let verified = self.verifier.verify_client_cert(leaf, intermediates, now);
        verified.map(drop).map_err(|error| error.to_string())
    }
}

fn tls_error(error: PoolError) -> TlsError {
    match error {
        PoolError::Pem(text) => TlsError::Pem(text),
        PoolError::Certificate(error) => TlsError::Use(error),
        PoolError::Verifier(error) => TlsError::ClientCa(error),
    }
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

/// Headers with which a front proxy identifies the user.
///
/// Upstream: `RequestHeaderConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// Allowed common names of proxies. Empty allows all.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name. The first one with a value applies.
    pub username: Vec<String>,
    /// Headers with the user's uid. The first one with a value applies.
    pub uid: Vec<String>,
    /// Headers with the user's groups.
    pub group: Vec<String>,
    /// Prefixes of headers with extra values. The rest of a header's name is the key.
    pub extra_prefix: Vec<String>,
}

/// Snapshot of the trust anchors.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Anchors {
    /// CA of client certificates.
    pub clients: Option<Authority>,
    /// CA of front proxies, with their headers.
    pub proxies: Option<(Authority, ProxyHeaders)>,
}

impl Anchors {
    /// Returns the names of the CAs. The server sends them in the handshake, and a client chooses its certificate by
    /// these hints.
    pub(super) fn ca_hints(&self) -> Vec<DistinguishedName> {
        let clients = self.clients.iter().flat_map(|authority| &authority.subjects);
        let proxies = self.proxies.iter().flat_map(|(authority, _)| &authority.subjects);
        clients.chain(proxies).cloned().collect()
    }
}

/// Current trust anchors. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<watch::Sender<Arc<Anchors>>>);

impl Trust {
    /// Returns the current trust anchors.
    pub fn current(&self) -> Arc<Anchors> {
        self.0.borrow().clone()
    }

    /// Changes the trust anchors, and returns whether the new ones differ from the previous ones.
    pub fn change(&self, change: impl FnOnce(&mut Anchors)) -> bool {
        self.0.send_if_modified(|current| {
            let mut anchors = Anchors::clone(current);
            change(&mut anchors);
            let changed = anchors != **current;
            if changed {
                *current = Arc::new(anchors);
            }
            changed
        })
    }

    /// Returns a receiver that is notified of changes.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<Anchors>> {
        self.0.subscribe()
    }
}
