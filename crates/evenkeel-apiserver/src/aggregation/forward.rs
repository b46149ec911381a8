//! Proxies clients' requests to extension API servers.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | 503 `service unavailable` while the APIService is not available, or no endpoint is ready | `serve` |
//! | `X-Remote-User`, `X-Remote-Uid`, `X-Remote-Group`, `X-Remote-Extra-` name the user | `user::put` |
//! | The proxy's client certificate, `caBundle`, `insecureSkipTLSVerify` | `remotes::tls` |
//! | The client's credentials are not forwarded | `../proxy/headers.rs` |
//! | Redirects are refused (`--aggregator-reject-forwarding-redirect`) | `respond` |
//! | Upgrades to other protocols | `switch` |
//! | A request for a discovery document takes five seconds at most | `time_limit` |
//!
//! Upstream: `proxyHandler.ServeHTTP`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_apimachinery::headers::text;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use http::header::LOCATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;

use super::client::Server;
use super::remotes::Remote;
use super::user;
use crate::api::Api;
use crate::https;
use crate::proxy::upgrade::{self, Refused};
use crate::proxy::{self, Link, escaped, headers, pieces, within_dial_timeout};
use crate::request::{self, RequestBody, Upgrade};
use crate::response::{Body, BodyError, answer};

/// Maximum duration of a request for a discovery document.
///
/// Upstream: `aggregatedDiscoveryTimeout`.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const DEADLINE_EXCEEDED: &str = "context deadline exceeded";
const UNREACHABLE: &str = "error trying to reach service";

/// Client's request to an extension API server, after authentication and authorization.
pub(crate) struct Forwarded<'a> {
    pub(crate) api: &'a Arc<Api>,
    pub(crate) method: &'a Method,
    /// Path and query as the client sent them.
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// User of the request, after impersonation.
    pub(crate) user: &'a User,
    pub(crate) audit_id: &'a HeaderValue,
    /// Remote address of the client's connection.
    pub(crate) client: Option<IpAddr>,
    /// Handle to switch protocols on the client's connection; `None` if the connection does not support it.
    pub(crate) upgrade: Option<&'a Upgrade>,
    /// Whether the request is for a resource.
    pub(crate) is_resource: bool,
}

/// Sends a request to the extension API server, and returns the response. Failures of that server are responses too: an
/// error means that the client's body cannot be read, or that the user has too many requests in flight.
pub(crate) async fn serve(
    forwarded: &Forwarded<'_>,
    remote: &Remote,
    body: &mut RequestBody,
) -> Result<Response<Body>, StatusError> {
    if !remote.is_available {
        return Ok(unavailable("service unavailable"));
    }
    if let Err(why) = &remote.tls {
        return Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, why));
    }
    let server = match Server::of(forwarded.api, remote) {
        Ok(server) => server,
        Err(why) => {
            tracing::error!(name = &*remote.name, why, "error resolving a Service");
            return Ok(unavailable("service unavailable"));
        }
    };
    if upgrade::is_wanted(forwarded.headers) {
        return switch(forwarded, &server).await;
    }
    let body = request::body::read(body).await?;
    let outgoing = match forwarded.outgoing(&server, false, body) {
        Ok(outgoing) => outgoing,
        Err(why) => return Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, &why)),
    };
    // Take the slot before dialing, so that connections that are still being opened count as well.
    let slot = forwarded.api.aggregation.connections.take(&forwarded.user.name)?;
    let exchange = async {
        let link = connect(&server).await?;
        proxy::round_trip(&forwarded.api.tasks, link, outgoing, slot).await
    };
    let mut deadline = deadline(time_limit(forwarded));
    let result = tokio::select! {
        biased;
        result = exchange => result,
        () = &mut deadline => Err(DEADLINE_EXCEEDED.to_owned()),
    };
    let response = match result {
        Ok(response) => response,
        Err(why) => return Ok(unavailable(&format!("{UNREACHABLE}: {why}"))),
    };
    Ok(respond(response, deadline, &server, forwarded.api.aggregation.rejects_redirects))
}

/// Requests a switch of protocols from the server, and then copies bytes between the server and the client in both directions.
///
/// Upstream: `UpgradeAwareHandler.tryUpgrade`.
async fn switch(forwarded: &Forwarded<'_>, server: &Server) -> Result<Response<Body>, StatusError> {
    let Some(upgrade) = forwarded.upgrade.cloned() else {
        return Ok(unavailable("request connection cannot be hijacked"));
    };
    let api = forwarded.api;
    // Held until the copying ends: the user's stream slot, and the gauge of long-running requests.
    let held = (api.streams.take(&forwarded.user.name)?, api.metrics.long_running());
    let outgoing = match forwarded.outgoing(server, true, Bytes::new()) {
        Ok(outgoing) => outgoing,
        Err(why) => return Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, &why)),
    };
    let link = match connect(server).await {
        Ok(link) => link,
        Err(why) => return Ok(unavailable(&format!("error dialing backend: {why}"))),
    };
    let (response, driver) = match proxy::send(link, outgoing).await {
        Ok(response_and_driver) => response_and_driver,
        Err(error) => return Ok(unavailable(&format!("error sending request: {error}"))),
    };
    Ok(match upgrade::switch(&api.tasks, upgrade, response, driver, held) {
        Ok(response) => response,
        Err(Refused::Answer(response)) => respond(*response, deadline(None), server, true),
        Err(Refused::Invalid(why)) => unavailable(&why),
    })
}

/// Connects to a server.
async fn connect(server: &Server) -> Result<Link, String> {
    let connected = https::connect(&server.address, server.tls());
    let stream = within_dial_timeout(server.authority(), connected).await?;
    Ok(Link::over_network(Box::new(stream)))
}

impl Forwarded<'_> {
    /// Returns the request that the extension API server receives.
    ///
    /// Upstream: `NewRequestForProxy`, `Transport.RoundTrip` of `util/proxy`.
    fn outgoing(
        &self,
        server: &Server,
        is_upgrade: bool,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, String> {
        let path = percent_decode_str(self.uri.path()).decode_utf8_lossy();
        let path = escaped(&path);
        let target = match self.uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.clone(),
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = target.parse().map_err(|_| "invalid path".to_owned())?;
        headers::of_request(self.headers, server.authority(), &path, is_upgrade, &mut request);
        let headers = request.headers_mut();
        headers.insert("audit-id", self.audit_id.clone());
        headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
        let mut put = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        put("x-forwarded-host", server.authority());
        if let Some(client) = self.client {
            let proxies = text(self.headers, "x-forwarded-for");
            let separator = if proxies.is_empty() { "" } else { ", " };
            put("x-forwarded-for", &format!("{proxies}{separator}{client}"));
        }
        user::put(request.headers_mut(), self.user)?;
        Ok(request)
    }
}

/// Returns the maximum duration of a request for a discovery document, its response's body included: a path of three
/// segments such as `/apis/GROUP/VERSION`. Returns `None` for other requests, which the server's own request timeout limits.
fn time_limit(forwarded: &Forwarded<'_>) -> Option<Duration> {
    let segments = forwarded.uri.path().trim_matches('/').split('/').count();
    (!forwarded.is_resource && segments == 3).then_some(DISCOVERY_TIMEOUT)
}

/// Returns a future that is ready after the limit, or never if there is no limit.
fn deadline(limit: Option<Duration>) -> BoxFuture<'static, ()> {
    match limit {
        None => Box::pin(std::future::pending()),
        Some(limit) => {
            let never = tokio::time::timeout(limit, std::future::pending::<()>());
            Box::pin(never.map(|_| ()))
        }
    }
}

/// Returns the chunks of a response body, and an error if the body does not end before the deadline.
fn pieces_until(
    deadline: BoxFuture<'static, ()>,
    body: Incoming,
) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
    let pieces = Box::pin(pieces(body));
    stream::unfold((pieces, deadline), async |(mut pieces, mut deadline)| {
        let piece = tokio::select! {
            biased;
            piece = pieces.next() => piece?,
            () = &mut deadline => Err(BodyError::Broken(DEADLINE_EXCEEDED.to_owned())),
        };
        Some((piece, (pieces, deadline)))
    })
}

/// Converts the server's response to the one for the client: refuses redirects, and makes a `Location` that is a path
/// absolute.
///
/// Upstream: `UpgradeAwareHandler.ServeHTTP`, `Transport.rewriteURL`.
fn respond(
    response: Response<Incoming>,
    deadline: BoxFuture<'static, ()>,
    server: &Server,
    rejects_redirects: bool,
) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let location = text(&head.headers, LOCATION);
    if rejects_redirects && head.status.is_redirection() && !location.is_empty() {
        let why = "the backend attempted to redirect this request, which is not permitted";
        let body = Body::whole(Bytes::from_static(why.as_bytes()));
        let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
        return answer(StatusCode::BAD_GATEWAY, content_type, body);
    }
    if location.starts_with('/')
        && !location.starts_with("//")
        && let Ok(location) = HeaderValue::try_from(server.url(location))
    {
        head.headers.insert(LOCATION, location);
    }
    headers::of_answer(&mut head.headers);
    Response::from_parts(head, Body::relay(pieces_until(deadline, body)))
}

/// Returns a 503 with this reason.
fn unavailable(why: &str) -> Response<Body> {
    plain(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Returns an error as plain text, which ends with a newline as upstream's does.
///
/// Upstream: `http.Error`.
fn plain(code: StatusCode, why: &str) -> Response<Body> {
    let body = Body::whole(format!("{why}\n").into());
    let mut response = answer(code, HeaderValue::from_static("text/plain; charset=utf-8"), body);
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
