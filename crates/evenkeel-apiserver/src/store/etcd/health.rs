//! Health check of etcd, for `/livez` and `/readyz`.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::store::shared::Shared;

/// Interval of the checks.
const INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time until etcd's response. Upstream: `--etcd-healthcheck-timeout`.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Checks etcd until the server shuts down.
pub(super) async fn run(shared: Arc<Shared>) {
    let Some(etcd) = &shared.etcd else { return };
    loop {
        let health = match timeout(TIMEOUT, etcd.current_revision()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("etcd failed: {}", error.message())),
            Err(_) => Err("etcd failed: it does not answer in time".to_owned()),
        };
        *etcd.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
        sleep(INTERVAL).await;
    }
}
