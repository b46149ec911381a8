//! The certificate that the server presents now.

use crate::latch::Latch;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::sync::{Arc, PoisonError, RwLock};

/// Certificate of new connections, which may change at any time.
#[derive(Default)]
pub(in crate::webhook) struct Served {
    current: RwLock<Option<Arc<CertifiedKey>>>,
    filled: Latch,
}

impl Served {
    /// Replaces the certificate. Returns whether it differs from the previous one.
    pub(super) fn set(&self, key: Arc<CertifiedKey>) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let changed = current.as_ref().is_none_or(|current| current.cert != key.cert);
        *current = Some(key);
        drop(current);
        self.filled.set();
        changed
    }

    /// Returns whether there is no certificate yet.
    pub(in crate::webhook) fn is_empty(&self) -> bool {
        !self.filled.is_set()
    }

    /// Waits for the first certificate.
    pub(in crate::webhook) async fn filled(&self) {
        self.filled.wait().await;
    }

    /// Returns the certificate.
    pub(super) fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("is_empty", &self.is_empty()).finish()
    }
}
