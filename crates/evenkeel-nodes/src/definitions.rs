//! Custom resources whose definitions may be installed later, or never.

use evenkeel_api::Kind;
use evenkeel_runtime::client::{Client, ListOptions};
use std::time::Duration;

/// Interval at which the server is asked for objects while the cache has not synced.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until a cache has synced, or the server says that it does not serve the kind, or forbids the list.
pub(crate) async fn synced_or_undefined(
    client: &Client,
    kind: &Kind,
    synced: impl Future<Output = ()>,
) {
    let undefined = async {
        loop {
            let one = ListOptions { limit: 1, ..ListOptions::default() };
            match client.list_metadata(kind, "", &one).await {
                Err(error) if error.is_not_found() || error.is_forbidden() => break,
                Ok(_) | Err(_) => client.clock().sleep(RETRY_INTERVAL).await,
            }
        }
    };
    tokio::select! {
        biased;
        () = synced => {}
        () = undefined => {}
    }
}
