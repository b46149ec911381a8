//! Subresource `proxy` of pods, Services and nodes: forwards requests to one of their ports.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `[SCHEME:]NAME[:PORT]` | `location::pod`, `location::service`, `location::node` |
//! | The service gets the path after `proxy`, with the trailing slash of the client's path | `path::behind_proxy` |
//! | Clients are redirected from a path that ends with `proxy` to the path with a trailing slash | `redirect` |
//! | Headers with credentials and of the connection are not forwarded; `X-Forwarded-Uri` is added | `../../../proxy/headers.rs` |
//! | `Location` and links in HTML are rewritten to lead through the proxy | `links::Links`, `html::rewrite` |
//! | Upgrades to other protocols | `switch` |
//! | The server connects only to global unicast addresses, not to its own machine | `location::is_global_unicast`, `dial::dial` |
//!
//! Upstream: `ProxyREST`, `UpgradeAwareHandler` and `Transport` of `util/proxy`.

mod answer;
mod dial;
mod exchange;
mod html;
mod links;
mod location;
mod path;

use bytes::Bytes;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::text;
use http::header::LOCATION;
use http::{HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::Full;
use serde_json::Value;

use crate::api::{Answer, Context};
use crate::proxy::upgrade::{self, Refused};
use crate::proxy::{round_trip, send};
use crate::request::RequestContext;
use crate::response::Body;
use answer::respond;
use exchange::Exchange;
use location::unreachable_service;

pub(super) use path::behind_proxy;

/// Serves a request for a proxy. `options` are the connection options after admission.
///
/// Upstream: `ProxyREST.Connect`, `UpgradeAwareHandler.ServeHTTP`.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    cx: &Context<'_>,
    options: &Value,
    body: &Bytes,
) -> Result<Answer, StatusError> {
    let location = match &*cx.resource.resource_prefix {
        "/nodes" => location::node(cx)?,
        "/services" => location::service(cx)?,
        _ => location::pod(cx)?,
    };
    let path = text(options, "path");
    let exchange = Exchange::new(request, location, path)?;
    if upgrade::is_wanted(request.headers) {
        return switch(request, cx, exchange).await.map(Answer::Response);
    }
    let is_read = matches!(*request.method, Method::GET | Method::HEAD);
    if path.is_empty() && is_read {
        return redirect(request.uri).map(Answer::Response);
    }
    // Count the connection before it is open.
    let slot = cx.api.connections.take(&cx.user.name)?;
    let link = dial::dial(cx.api, &exchange.location).await?;
    let outgoing = exchange.request(request, false, Full::new(body.clone()))?;
    let response = round_trip(&cx.api.tasks, link, outgoing, slot).await;
    let response = response.map_err(|why| unreachable_service(&why))?;
    respond(response, &exchange.links).await.map(Answer::Response)
}

/// Requests the switch to another protocol from the service, and then forwards bytes between the service and the
/// client.
///
/// Upstream: `UpgradeAwareHandler.tryUpgrade`.
async fn switch(
    request: &RequestContext<'_>,
    cx: &Context<'_>,
    exchange: Exchange,
) -> Result<Response<Body>, StatusError> {
    let Some(upgrade) = request.upgrade.cloned() else {
        return Err(StatusError::internal("request connection cannot be hijacked"));
    };
    let held = (cx.api.streams.take(&cx.user.name)?, cx.api.metrics.long_running());
    let link = dial::dial(cx.api, &exchange.location).await?;
    let outgoing = exchange.request(request, true, Full::new(Bytes::new()))?;
    let sent = send(link, outgoing).await;
    let (response, driver) = sent.map_err(|error| unreachable_service(&error.to_string()))?;
    match upgrade::switch(&cx.api.tasks, upgrade, response, driver, held) {
        Ok(response) => Ok(response),
        Err(Refused::Answer(response)) => respond(*response, &exchange.links).await,
        Err(Refused::Invalid(why)) => Err(StatusError::internal(why)),
    }
}

/// Redirects a client to the path with a trailing slash, so that relative links lead below the proxy's path.
///
/// Upstream: `proxyRedirectsforRootPath`.
fn redirect(uri: &Uri) -> Result<Response<Body>, StatusError> {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = format!("{}/{query}", uri.path());
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = HeaderValue::try_from(location).map_err(StatusError::internal)?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}
