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
use super::remotes::{Basis, Documents, Remote};
use super::schedule::{Intervals, Schedule, sleep_until};
use crate::api::Api;
use evenkeel_apimachinery::headers::text;

/// Maximum number of servers that are asked at once.
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
/// Media types of discovery, as upstream's client accepts them.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Documents of an API, with the reason why its server did not answer.
type Fetched = (Arc<str>, Documents, Result<(), String>);

/// Runs the controller until the server shuts down.
pub(crate) async fn run(api: Weak<Api>) {
    let Some(mut changes) = api.upgrade().map(|api| api.aggregation.changes()) else { return };
    let mut schedule: Schedule<Basis> = Schedule::new(INTERVALS);
    let mut fetches: FuturesUnordered<BoxFuture<'static, Fetched>> = FuturesUnordered::new();
    loop {
        changes.mark_unchanged();
        // The controller holds no strong reference while it waits.
        let Some(server) = api.upgrade() else { return };
        begin(&server, &mut schedule, &fetches);
        drop(server);
        let next = schedule.next(WORKERS);
        let fetched = tokio::select! {
            changed = changes.changed() => changed.map(|()| None),
            Some(fetched) = fetches.next() => Ok(Some(fetched)),
            () = sleep_until(next) => Ok(None),
        };
        let (Ok(fetched), Some(server)) = (fetched, api.upgrade()) else { return };
        if let Some((name, documents, result)) = fetched {
            server.aggregation.set_documents(&name, documents);
            if let Err(why) = &result {
                tracing::debug!(name = &*name, why, "an extension API server gave no document");
            }
            schedule.end(&name, result.is_ok(), server.clock.instant());
        }
    }
}

fn begin(
    api: &Api,
    schedule: &mut Schedule<Basis>,
    fetches: &FuturesUnordered<BoxFuture<'static, Fetched>>,
) {
    let (now, current) = (api.clock.instant(), api.aggregation.current());
    schedule.observe(current.all.values().map(|one| (one.name.clone(), one.basis())), now);
    for name in schedule.begin(now, WORKERS) {
        let Some(remote) = current.all.get(&name).cloned() else { continue };
        let server = Server::of(api, &remote);
        let before = current.documents(&name).cloned().unwrap_or_default();
        fetches.push(Box::pin(async move {
            let (documents, result) = fetch(server, &remote, before).await;
            (name, documents, result)
        }));
    }
}

/// Fetches the documents. What its server does not answer is stale, or stays as it was `before`.
async fn fetch(
    server: Result<Server, String>,
    remote: &Remote,
    before: Documents,
) -> (Documents, Result<(), String>) {
    let stale = || discovery::stale(&remote.version);
    let server = match server {
        Ok(server) => server,
        Err(why) => return (Documents { discovery: stale(), ..before }, Err(why)),
    };
    let (discovery, result) = match resources(&server, remote).await {
        Ok(version) => (discovery::current(version), Ok(())),
        Err(why) => (stale(), Err(why)),
    };
    let openapi = openapi(&server).await;
    let result = result.and(openapi.as_ref().map(|_| ()).map_err(Clone::clone));
    (Documents { discovery, openapi: openapi.unwrap_or(before.openapi) }, result)
}

/// Upstream: `fetchFreshDiscoveryForService`.
async fn resources(server: &Server, remote: &Remote) -> Result<Version, String> {
    let question = |path, accept| DocumentRequest {
        path,
        accept,
        user: aggregator(),
        timeout: DISCOVERY_TIMEOUT,
    };
    let answer = server.get(&question("/apis", ACCEPT)).await?;
    let content_type = text(answer.headers(), CONTENT_TYPE);
    let is_aggregated = content_type.contains("g=apidiscovery.k8s.io")
        && content_type.contains("v=v2")
        && content_type.contains("as=APIGroupDiscoveryList");
    match answer.status() {
        StatusCode::OK if is_aggregated => {
            discovery::aggregated(answer.body(), &remote.group, &remote.version)
        }
        StatusCode::SERVICE_UNAVAILABLE => Err("service unavailable".to_owned()),
        _ => {
            let path = remote.path();
            let answer = server.get(&question(path, "application/json")).await?;
            let code = answer.status();
            if code != StatusCode::OK {
                return Err(format!("failed to download legacy discovery for {path}: {code}"));
            }
            discovery::legacy(answer.body(), &remote.version)
        }
    }
}

/// Returns the paths of the server's OpenAPI v3 documents; none if it has no OpenAPI v3.
///
/// Upstream: `OpenAPIV3Root`.
async fn openapi(server: &Server) -> Result<BTreeMap<String, Value>, String> {
    let user = User { name: "system:aggregator".into(), ..User::default() };
    let (path, accept, timeout) = ("/openapi/v3", "application/json", OPENAPI_TIMEOUT);
    let question = DocumentRequest { path, accept, user, timeout };
    let answer = server.get(&question).await?;
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
