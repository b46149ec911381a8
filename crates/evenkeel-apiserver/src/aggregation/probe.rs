//! Probes an extension API server: requests the discovery document of its API.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::client::{DocumentRequest, Server, aggregator};

/// Number of parallel requests, each to a random address of the Service. One of them must succeed.
pub(super) const ATTEMPTS: usize = 5;
/// Maximum duration of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Requests the discovery document at `path` from all `servers`, and returns the first success or the last failure.
pub(super) async fn run(
    servers: [Result<Server, String>; ATTEMPTS],
    path: &str,
) -> Result<(), String> {
    let mut attempts: FuturesUnordered<_> =
        servers.into_iter().map(|server| attempt(server, path)).collect();
    let mut last_result = Ok(());
    while let Some(result) = attempts.next().await {
        if result.is_ok() {
            return result;
        }
        last_result = result;
    }
    last_result
}

async fn attempt(server: Result<Server, String>, path: &str) -> Result<(), String> {
    let server = server?;
    let user = aggregator();
    let document = DocumentRequest { path, accept: "", user, timeout: TIMEOUT };
    let url = server.url(path);
    let failed = |why: String| format!("failing or missing response from {url}: {why}");
    let response = server.get(&document).await;
    let response = response.map_err(|why| failed(format!("Get \"{url}\": {why}")))?;
    let code = response.status();
    if code.is_success() {
        return Ok(());
    }
    Err(failed(format!("bad status from {url}: {}", code.as_u16())))
}
