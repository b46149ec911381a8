//! Waits for the caches of a manager, with a timeout.

use crate::{
    cache::{Caches, Reader},
    introspect::CacheState,
};
use std::{sync::Arc, time::Duration};

/// Interval between logs of the caches that have not synced.
const SYNC_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Default of the maximum time for caches to fill.
///
/// Upstream: the default of `CacheSyncTimeout` in controller-runtime.
pub(super) const CACHE_SYNC_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Error of caches that did not fill in time.
#[derive(Debug, thiserror::Error)]
#[error("caches not filled within {timeout:?}: {}", .caches.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct CacheSyncError {
    /// Limit of the wait.
    pub timeout: Duration,
    /// Caches that did not fill.
    pub caches: Vec<UnsyncedCache>,
}

/// Cache that did not fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsyncedCache {
    /// Plural and group, such as `deployments.apps`.
    pub resource: String,
    /// Error of the last list or watch, or the information that the server did not respond.
    pub reason: String,
}

impl std::fmt::Display for UnsyncedCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { resource, reason } = self;
        write!(f, "{resource}: {reason}")
    }
}

/// Waits until all caches have synced, and logs those that have not. Without a limit, it waits forever.
///
/// # Errors
/// Fails if a cache has not synced within the limit.
///
/// Upstream: `WaitForCacheSync`.
pub(super) async fn wait_for_cache_sync(
    caches: &Caches,
    limit: Option<Duration>,
) -> Result<(), CacheSyncError> {
    let wait = async {
        while tokio::time::timeout(SYNC_LOG_INTERVAL, caches.synced()).await.is_err() {
            let missing = caches.unsynced();
            let names: Vec<&str> = missing.iter().map(|kind| &*kind.plural).collect();
            tracing::warn!(caches = ?names, "still waiting for caches");
        }
    };
    let Some(timeout) = limit else {
        wait.await;
        return Ok(());
    };
    if tokio::time::timeout(timeout, wait).await.is_ok() {
        return Ok(());
    }
    Err(CacheSyncError::new(timeout, caches.unsynced_states()))
}

/// Waits until the caches of one controller have synced. Without a limit, it waits forever.
///
/// # Errors
/// Fails if a cache has not synced within the limit.
pub(super) async fn wait_for_controller(
    caches: Vec<Arc<Reader>>,
    limit: Option<Duration>,
) -> Result<(), CacheSyncError> {
    let synced = async {
        for cache in &caches {
            cache.synced().wait().await;
        }
    };
    let Some(timeout) = limit else {
        synced.await;
        return Ok(());
    };
    let result = tokio::time::timeout(timeout, synced).await;
    result.map_err(|_| {
        let missing = caches.iter().filter(|cache| !cache.has_synced());
        CacheSyncError::new(timeout, missing.map(|cache| cache.state()).collect())
    })
}

impl CacheSyncError {
    fn new(timeout: Duration, states: Vec<CacheState>) -> Self {
        let unsynced = |CacheState { resource, trouble, .. }| UnsyncedCache {
            resource,
            reason: trouble.unwrap_or_else(|| "no answer from the server".to_owned()),
        };
        Self { timeout, caches: states.into_iter().map(unsynced).collect() }
    }
}
