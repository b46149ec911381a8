//! Public keys of an issuer, which verify the signatures of its tokens.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_tasks::watch;
use tokio::sync::Notify;

use super::super::jose::{Jws, PublicKey};

/// Maximum time that a request whose token has an unknown key waits for newer keys.
const KEYS_TIMEOUT: Duration = Duration::from_secs(10);

/// Last fetched keys of an issuer. A token that no key verifies triggers a fetch of newer keys.
///
/// Like go-oidc's `RemoteKeySet`, which kube-apiserver uses.
#[derive(Debug)]
pub(super) struct RemoteKeySet {
    fetched: watch::Sender<Fetched>,
    refresh_requested: Notify,
}

/// Fetched keys, with the number of fetches.
#[derive(Debug, Clone, Default)]
struct Fetched {
    /// `None` before the first successful fetch.
    keys: Option<Arc<[PublicKey]>>,
    /// Number of fetches, including failed ones.
    attempts: u64,
}

impl Default for RemoteKeySet {
    fn default() -> Self {
        Self { fetched: watch::Sender::new(Fetched::default()), refresh_requested: Notify::new() }
    }
}

impl RemoteKeySet {
    /// Verifies a token. Waits for newer keys if the current ones do not verify it.
    ///
    /// Like go-oidc's `RemoteKeySet.verify`.
    pub(super) async fn verify(&self, token: &Jws<'_>) -> Result<(), String> {
        let mut receiver = self.fetched.subscribe();
        let current = receiver.borrow_and_update().clone();
        let Some(keys) = &current.keys else {
            return Err("oidc: authenticator not initialized".to_owned());
        };
        if verifies(keys, token) {
            return Ok(());
        }
        self.refresh_requested.notify_one();
        let next_fetch = receiver.wait_for(|fetched| fetched.attempts > current.attempts);
        let newer_keys = match tokio::time::timeout(KEYS_TIMEOUT, next_fetch).await {
            Ok(Ok(fetched)) => fetched.keys.clone(),
            // The timeout has passed, or the sender is gone.
            Err(_) | Ok(Err(_)) => None,
        };
        match newer_keys {
            Some(keys) if verifies(&keys, token) => Ok(()),
            _ => Err("oidc: verify token: failed to verify signature: failed to verify id token signature".to_owned()),
        }
    }

    /// Replaces the keys. `None` counts a failed fetch and keeps the old keys.
    pub(super) fn publish(&self, keys: Option<Vec<PublicKey>>) {
        self.fetched.send_modify(|fetched| {
            fetched.attempts += 1;
            if let Some(keys) = keys {
                fetched.keys = Some(keys.into());
            }
        });
    }

    /// Returns whether the keys were fetched.
    pub(super) fn are_fetched(&self) -> bool {
        self.fetched.borrow().keys.is_some()
    }

    /// Waits until the keys were fetched.
    pub(super) async fn fetched(&self) {
        // The wait cannot fail, because this owns the sender.
        let _ = self.fetched.subscribe().wait_for(|fetched| fetched.keys.is_some()).await;
    }

    /// Waits until a token requests newer keys.
    pub(super) async fn refresh_requested(&self) {
        self.refresh_requested.notified().await;
    }
}

/// Returns whether one of the keys verifies the token. If the token names a key, only that key counts.
fn verifies(keys: &[PublicKey], token: &Jws<'_>) -> bool {
    let id = token.key_id();
    keys.iter().any(|key| (id.is_empty() || key.id() == id) && key.verifies(token))
}
