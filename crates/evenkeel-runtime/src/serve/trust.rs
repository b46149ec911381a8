//! Whose certificates are believed: the CA of clients, and the CA of proxies with what they may say of their clients.
//! Both may come from files or from the cluster, and change while connections are open.

use super::TlsError;
use evenkeel_x509::{CertPool, PoolError};
use rustls::{
    DistinguishedName,
    pki_types::{CertificateDer, UnixTime},
    server::danger::ClientCertVerifier,
};
use std::sync::Arc;
use tokio::sync::watch;

/// A CA that signs certificates of clients.
#[derive(Debug, Clone)]
pub struct Authority {
    verifier: Arc<dyn ClientCertVerifier>,
    subjects: Vec<DistinguishedName>,
    pem: Vec<u8>,
}

impl Authority {
    /// The CAs in PEM text.
    ///
    /// # Errors
    /// When there is none, or one cannot be used.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let pool = CertPool::from_pem(pem).map_err(unusable)?;
        let subjects = pool.subjects();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = pool.client_verifier(true, provider).map_err(unusable)?;
        Ok(Self { verifier, subjects, pem: pem.to_vec() })
    }

    /// Whether this CA has signed the first certificate, by way of the others, for a client, and it holds at this time. A
    /// certificate that is itself one of the CAs' counts as well.
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

/// Headers in which a proxy says who its client is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// Common names of proxies that are believed; all when empty.
    pub allowed_names: Vec<String>,
    /// Headers with the name; the first that says something counts.
    pub username: Vec<String>,
    /// Headers with the uid; the first that says something counts.
    pub uid: Vec<String>,
    /// Headers with groups.
    pub group: Vec<String>,
    /// Beginnings of headers with more, which is under the rest of the header's name.
    pub extra_prefix: Vec<String>,
}

/// What is believed at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Anchors {
    /// Who signs certificates of clients.
    pub clients: Option<Authority>,
    /// Who signs certificates of proxies, and what those may say.
    pub proxies: Option<(Authority, ProxyHeaders)>,
}

impl Anchors {
    /// Names of the CAs, as a hint for clients which of their certificates to show.
    pub(super) fn hints(&self) -> Vec<DistinguishedName> {
        let clients = self.clients.iter().flat_map(|authority| &authority.subjects);
        let proxies = self.proxies.iter().flat_map(|(authority, _)| &authority.subjects);
        clients.chain(proxies).cloned().collect()
    }
}

/// What is believed now. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<watch::Sender<Arc<Anchors>>>);

impl Trust {
    /// What is believed at this moment.
    pub fn now(&self) -> Arc<Anchors> {
        self.0.borrow().clone()
    }

    /// Changes what is believed, and says whether that was a change.
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
