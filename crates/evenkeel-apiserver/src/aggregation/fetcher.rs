//! Controller that fetches the documents of extension API servers: discovery and the index of OpenAPI v3.
//!
//! Upstream: `discoveryManager`, `AggregationController` of `openapiv3`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_api::json;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::client::{DocumentRequest, Server, aggregator};
use super::discovery::{self, Version};
use super::remotes::{Documents, Remote, RemoteInputs};
use super::schedule::{Intervals, Schedule, sleep_until};
use crate::api::Api;
use evenkeel_apimachinery::headers::text;

/// Maximum number of servers whose documents are fetched concurrently.
const WORKERS: usize = 2;
const INTERVALS: Intervals = Intervals {
    period: Duration::from_secs(60),
    first_backoff: Duration::from_millis(500),
    max_backoff: Duration::from_secs(60),
};
/// Maximum duration of a request for discovery.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum duration of a request for OpenAPI.
const OPENAPI_TIMEOUT: Duration = Duration::from_secs(60);
/// Media type of aggregated discovery, as upstream's client requests it.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Documents of an API after a fetch.
struct Fetched {
    /// Name of the APIService.
    name: Arc<str>,
    documents: Documents,
    /// Error with the reason if the server did not return all documents.
    result: Result<(), String>,
}

/// Runs the controller until the server shuts down.
pub(crate) async fn run(api: Weak<Api>) {
    let Some(mut changes) = api.upgrade().map(|api| api.aggregation.changes()) else { return };
    let mut schedule: Schedule<RemoteInputs> = Schedule::new(INTERVALS);
    let mut fetches: FuturesUnordered<BoxFuture<'static, Fetched>> = FuturesUnordered::new();
    loop {
        changes.mark_unchanged();
        let Some(server) = api.upgrade() else { return };
        begin_due_fetches(&server, &mut schedule, &fetches);
        // The API server can only be dropped while the controller holds no strong reference to it.
        drop(server);
        let next = schedule.next(WORKERS);
        let event = tokio::select! {
            changed = changes.changed() => changed.map(|()| None),
            Some(fetched) = fetches.next() => Ok(Some(fetched)),
            () = sleep_until(next) => Ok(None),
        };
        let (Ok(finished), Some(server)) = (event, api.upgrade()) else { return };
        if let Some(Fetched { name, documents, result }) = finished {
            server.aggregation.set_documents(&name, documents);
            if let Err(why) = &result {
                tracing::debug!(name = &*name, why, "an extension API server gave no document");
            }
            schedule.end(&name, result.is_ok(), server.clock.instant());
        }
    }
}

/// Starts the fetches that are due.
fn begin_due_fetches(
    api: &Api,
    schedule: &mut Schedule<RemoteInputs>,
    fetches: &FuturesUnordered<BoxFuture<'static, Fetched>>,
) {
    let (now, current) = (api.clock.instant(), api.aggregation.current());
    let inputs_by_name =
        current.by_name.values().map(|remote| (remote.name.clone(), remote.inputs()));
    schedule.observe(inputs_by_name, now);
    for name in schedule.begin(now, WORKERS) {
        let Some(remote) = current.by_name.get(&name).cloned() else { continue };
        let server = Server::of(api, &remote);
        let previous = current.documents(&name).cloned().unwrap_or_default();
        fetches.push(Box::pin(async move {
            let (documents, result) = fetch(server, &remote, previous).await;
            Fetched { name, documents, result }
        }));
    }
}

/// Fetches the documents. If the server does not respond, its discovery becomes stale, and the OpenAPI index of
/// `previous` is used.
async fn fetch(
    server: Result<Server, String>,
    remote: &Remote,
    previous: Documents,
) -> (Documents, Result<(), String>) {
    let stale = || discovery::stale(&remote.version);
    let server = match server {
        Ok(server) => server,
        Err(why) => return (Documents { discovery: stale(), ..previous }, Err(why)),
    };
    let (discovery, result) = match fetch_discovery(&server, remote).await {
        Ok(version) => (discovery::current(version), Ok(())),
        Err(why) => (stale(), Err(why)),
    };
    match fetch_openapi_index(&server).await {
        Ok(openapi) => (Documents { discovery, openapi }, result),
        Err(why) => (Documents { discovery, openapi: previous.openapi }, result.and(Err(why))),
    }
}

/// Fetches aggregated discovery, or the `APIResourceList` from a server that has no aggregated discovery.
///
/// Upstream: `fetchFreshDiscoveryForService`.
async fn fetch_discovery(server: &Server, remote: &Remote) -> Result<Version, String> {
    let document = |path, accept| DocumentRequest {
        path,
        accept,
        user: aggregator(),
        timeout: DISCOVERY_TIMEOUT,
    };
    let answer = server.get(&document("/apis", ACCEPT)).await?;
    let content_type = text(answer.headers(), CONTENT_TYPE);
    let is_aggregated = content_type.contains("g=apidiscovery.k8s.io")
        && content_type.contains("v=v2")
        && content_type.contains("as=APIGroupDiscoveryList");
    match answer.status() {
        StatusCode::OK if is_aggregated => {
            discovery::aggregated(answer.body(), &remote.group, &remote.version)
        }
        StatusCode::SERVICE_UNAVAILABLE => Err("service unavailable".to_owned()),
        // The server does not support aggregated discovery.
        _ => {
            let path = remote.path();
            let answer = server.get(&document(path, "application/json")).await?;
            let code = answer.status();
            if code != StatusCode::OK {
                return Err(format!("failed to download legacy discovery for {path}: {code}"));
            }
            discovery::legacy(answer.body(), &remote.version)
        }
    }
}

/// Fetches the index of the server's OpenAPI v3 documents; it is empty if the server has no OpenAPI v3.
///
/// Upstream: `OpenAPIV3Root`.
async fn fetch_openapi_index(server: &Server) -> Result<BTreeMap<String, Value>, String> {
    let user = User { name: "system:aggregator".into(), ..User::default() };
    let (path, accept, timeout) = ("/openapi/v3", "application/json", OPENAPI_TIMEOUT);
    let document = DocumentRequest { path, accept, user, timeout };
    let answer = server.get(&document).await?;
    match answer.status() {
        StatusCode::OK => {
            let index: Value =
                json::from_slice(answer.body()).map_err(|error| error.to_string())?;
            let paths = value::object(&index, "paths").into_iter().flatten();
            Ok(paths.map(|(name, item)| (name.clone(), item.clone())).collect())
        }
        StatusCode::NOT_FOUND => Ok(BTreeMap::new()),
        code => Err(format!("the index of OpenAPI v3 has the status {code}")),
    }
}
