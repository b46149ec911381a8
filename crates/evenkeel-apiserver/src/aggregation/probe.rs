//! Checks whether an extension API server answers for its API.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::client::{DocumentRequest, Server, aggregator};

/// Number of requests at once, each to a random address. One of them must succeed.
pub(super) const ATTEMPTS: usize = 5;
/// Maximum duration of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the servers for the discovery document at `path`. The error is that of the last failure.
pub(super) async fn run(
    servers: [Result<Server, String>; ATTEMPTS],
    path: &str,
) -> Result<(), String> {
    let mut attempts: FuturesUnordered<_> =
        servers.into_iter().map(|server| attempt(server, path)).collect();
    let mut last = Ok(());
    while let Some(result) = attempts.next().await {
        if result.is_ok() {
            return result;
        }
        last = result;
    }
    last
}

async fn attempt(server: Result<Server, String>, path: &str) -> Result<(), String> {
    let server = server?;
    let user = aggregator();
    let question = DocumentRequest { path, accept: "", user, timeout: TIMEOUT };
    let url = server.url(path);
    let failed = |why: String| format!("failing or missing response from {url}: {why}");
    let answer = server.get(&question).await;
    let code = answer.map_err(|why| failed(format!("Get \"{url}\": {why}")))?.status();
    if code.is_success() {
        return Ok(());
    }
    Err(failed(format!("bad status from {url}: {}", code.as_u16())))
}
