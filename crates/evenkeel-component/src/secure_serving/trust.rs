//! Trust anchors: the CA of clients, and the CA of front proxies with their header names. Both come from files or from the
//! ConfigMap, and may change while connections are open.

use super::TlsError;
use evenkeel_x509::{CertPool, PoolError};
use rustls::{
    DistinguishedName,
    pki_types::{CertificateDer, UnixTime},
    server::danger::ClientCertVerifier,
};
use std::sync::Arc;
use tokio::sync::watch;

/// A CA that signs client certificates.
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
    /// If there is no valid CA.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let pool = CertPool::from_pem(pem).map_err(unusable)?;
        let subjects = pool.subjects();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = pool.client_verifier(true, provider).map_err(unusable)?;
        Ok(Self { verifier, subjects, pem: pem.to_vec() })
    }

    /// Reports whether the chain is valid for client authentication at this time. A certificate that is itself one of the
    /// CAs is valid, too.
    pub(super) fn vouches(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), String> {
        let Some((first, others)) = chain.split_first() else {
            return Err("no certificate".into());
        };
        let verified = self.verifier.verify_client_cert(first, others, now);
        verified.map(drop).map_err(|error| error.to_string())
    }
}

fn unusable(error: PoolError) -> TlsError {
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

/// Headers in which a front proxy names the user.
///
/// Upstream: `RequestHeaderConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// Allowed common names of proxies; all if empty.
    pub allowed_names: Vec<String>,
    /// Headers of the name; the first with a value counts.
    pub username: Vec<String>,
    /// Headers of the uid; the first with a value counts.
    pub uid: Vec<String>,
    /// Headers of groups.
    pub group: Vec<String>,
    /// Prefixes of headers with extra values; the rest of a header's name is the key.
    pub extra_prefix: Vec<String>,
}

/// Trust anchors at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Anchors {
    /// CA of client certificates.
    pub clients: Option<Authority>,
    /// CA of front proxies, with their headers.
    pub proxies: Option<(Authority, ProxyHeaders)>,
}

impl Anchors {
    /// Returns the names of the CAs, which tell clients which certificate to send.
    pub(super) fn hints(&self) -> Vec<DistinguishedName> {
        let clients = self.clients.iter().flat_map(|authority| &authority.subjects);
        let proxies = self.proxies.iter().flat_map(|(authority, _)| &authority.subjects);
        clients.chain(proxies).cloned().collect()
    }
}

/// The current trust anchors. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<watch::Sender<Arc<Anchors>>>);

impl Trust {
    /// Returns the current trust anchors.
    pub fn now(&self) -> Arc<Anchors> {
        self.0.borrow().clone()
    }

    /// Replaces the trust anchors; returns whether they differ.
    pub fn change(&self, change: impl FnOnce(&mut Anchors)) -> bool {
        self.0.send_if_modified(|present| {
            let mut anchors = Anchors::clone(present);
            change(&mut anchors);
            let changed = anchors != **present;
            if changed {
                *present = Arc::new(anchors);
            }
            changed
        })
    }

    pub(super) fn watch(&self) -> watch::Receiver<Arc<Anchors>> {
        self.0.subscribe()
    }
}
