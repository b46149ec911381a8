//! The pipeline: the stages that every request goes through, in order.
//!
//! | documented | where |
//! |---|---|
//! | `WithRequestInfo` | `../request/info.rs` |
//! | `WithRequestDeadline`, `WithTimeoutForNonLongRunningRequests` | `deadline::of` |
//! | `WithWarningRecorder` | `../response/headers.rs` |
//! | `WithAuthentication` | `authenticate` |
//! | `WithImpersonation` | `impersonate::impersonate` |
//! | `WithPriorityAndFairness`: the flow schema and priority level in the response's headers | `limit` |
//! | `WithAuthorization` | `authorize` |
//! | The handlers of the verbs | `route`, `../verbs/mod.rs` |
//! | The stages of a write | `../verbs/stages.rs` |
//! | `WithCacheControl`, the header of `WithAuditInit` | `serve` |
//!
//! There is no audit log. Upstream: `DefaultBuildHandlerChain`.

mod deadline;
mod health;
mod impersonate;
mod nonresource;

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{EXPECT, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use percent_encoding::percent_decode_str;

use crate::api::Api;
use crate::auth::{Attributes, Authenticated, FieldRequirements, permit};
use crate::flow::Class;
use crate::loopback;
use crate::metrics::Labels;
use crate::request::{self, Query, RequestContext, RequestInfo};
use crate::resource::{Path, Target, parse_path};
use crate::response::{Body, compress, refusal, warn};
use crate::verbs;
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// Serves one request.
pub(crate) async fn serve<B>(
    api: &Arc<Api>,
    peer: Option<&Arc<User>>,
    request: Request<B>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    let (head, body) = request.into_parts();
    let mut body = Box::pin(body);
    let path = percent_decode_str(head.uri.path()).decode_utf8_lossy();
    let query = Query::parse(head.uri.query());
    let path: Cow<'_, str> = match path.find("//") {
        None => path,
        Some(_) => Cow::Owned(squeeze(&path)),
    };
    let (path, old_watch) = without_watch(path);
    let query = if old_watch { with_watch(query) } else { query };
    let info = RequestInfo::new(&head.method, &path, &query);
    let routed_as = OnceLock::new();
    let started = api.clock.instant();
    let in_flight = api.metrics.in_flight(!matches!(head.method, Method::GET | Method::HEAD));
    let answered = async {
        headers::check(&head.headers)?;
        let deadline = deadline::of(&info, &query)?;
        let routed = route(
            api,
            peer,
            &head.method,
            &path,
            &query,
            &info,
            &head.headers,
            body.as_mut(),
            &routed_as,
        );
        match deadline {
            None => routed.await,
            Some(time) => {
                tokio::time::timeout(time, routed).await.unwrap_or_else(|_| Err(deadline::over()))
            }
        }
    };
    let mut response = answered.await.unwrap_or_else(|error| refusal(&error, &head.headers));
    if !head.headers.contains_key(EXPECT) {
        request::body::discard(&api.tasks, body);
    }
    compress::apply(&head.headers, &mut response);
    let headers = response.headers_mut();
    headers.insert(
        "audit-id",
        HeaderValue::try_from(api.uid()).unwrap_or_else(|_| HeaderValue::from_static("-")),
    );
    // What may be kept says so itself: discovery and OpenAPI.
    headers
        .entry(http::header::CACHE_CONTROL)
        .or_insert_with(|| HeaderValue::from_static("no-cache, private"));
    drop(in_flight);
    if let Some(labels) = routed_as.into_inner() {
        if labels.verb != "WATCH" {
            api.metrics.took(labels.verb, started.elapsed().as_secs_f64());
        }
        api.metrics.count(labels, response.status().as_u16());
    }
    if head.method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

#[expect(clippy::too_many_arguments, reason = "the parts of one request, borrowed one by one")]
async fn route<B>(
    api: &Arc<Api>,
    peer: Option<&Arc<User>>,
    method: &Method,
    path: &str,
    query: &Query,
    info: &RequestInfo<'_>,
    headers: &HeaderMap,
    body: Pin<&mut B>,
    routed_as: &OnceLock<Labels>,
) -> Result<Response<Body>, StatusError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let Authenticated { user, notes } = authenticate(api, headers, path, peer).await;
    if let Some(secret) = &notes.used_secret {
        loopback::note_use(api, secret).await;
    }
    let user = user.ok_or_else(StatusError::unauthorized)?;
    let attributes = attributes(info, path);
    let user = impersonate::impersonate(api, user, headers, &attributes)?;
    let class = limit(api, &user, info, path);
    let answered = async {
        authorize(api, &user, &attributes)?;
        let rows = api.table.rows();
        // Only what is served is counted, under names of the server's own: paths are the clients' to choose.
        let target = match parse_path(path, &rows) {
            Path::Resource(target) => target,
            Path::UnknownResource => return Err(StatusError::resource_not_found()),
            Path::Other => {
                let _ = routed_as.set(Labels { verb: verb("", method), ..Labels::default() });
                return nonresource::serve(api, method, path, headers, query);
            }
        };
        let _ = routed_as.set(labels(&target, verb(info.verb, method)));
        let request = RequestContext {
            api,
            target,
            method,
            headers,
            query,
            user: &user,
            now: api.clock.now(),
        };
        let deprecation = request.resource().deprecation();
        let answered = verbs::dispatch(request, body).await;
        let Some(words) = deprecation else { return answered };
        let mut response = answered.unwrap_or_else(|error| refusal(&error, headers));
        warn(&mut response, &[words.into()]);
        Ok(response)
    };
    let mut response = answered.await.unwrap_or_else(|error| refusal(&error, headers));
    if let Some(class) = class {
        class.mark(response.headers_mut());
    }
    if let Some(warning) = notes.warning {
        warn(&mut response, &[warning.to_owned()]);
    }
    Ok(response)
}

/// Returns the user of a request's credentials, or of its connection.
///
/// Upstream: `WithAuthentication`
async fn authenticate(
    api: &Api,
    headers: &HeaderMap,
    path: &str,
    peer: Option<&Arc<User>>,
) -> Authenticated {
    api.authenticator.user(&api.store, api.clock.now(), headers, path, peer).await
}

/// Returns the flow schema and the priority level of a request. No request is queued or refused.
///
/// Upstream: `WithPriorityAndFairness`
fn limit(api: &Api, user: &User, info: &RequestInfo<'_>, path: &str) -> Option<Class> {
    api.flows.classify(&api.store, user, info, path)
}

/// Returns the attributes of a request that authorization depends on.
///
/// Upstream: `GetAuthorizerAttributes`
fn attributes<'a>(info: &RequestInfo<'a>, path: &'a str) -> Attributes<'a> {
    if !info.is_resource {
        return Attributes { verb: info.verb, path: Some(path), ..Attributes::default() };
    }
    Attributes {
        verb: info.verb,
        group: info.group,
        resource: info.resource,
        subresource: info.subresource,
        namespace: info.namespace,
        name: info.name,
        path: None,
        field_selector: FieldRequirements::Raw(info.field_selector),
    }
}

/// Refuses what the user may not do. Everybody may ask for the server's health.
///
/// Upstream: `WithAuthorization`
fn authorize(api: &Api, user: &User, attributes: &Attributes<'_>) -> Result<(), StatusError> {
    if matches!(attributes.path, Some("/healthz" | "/livez" | "/readyz")) {
        return Ok(());
    }
    permit(&api.authorizer, &api.store, user, attributes)
}

fn squeeze(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !out.ends_with('/') {
            out.push(c);
        }
    }
    out
}

/// `/api/v1/watch/pods` is the old way to watch `/api/v1/pods`.
fn without_watch(path: Cow<'_, str>) -> (Cow<'_, str>, bool) {
    let slashes = if path.starts_with("/api/") {
        2
    } else if path.starts_with("/apis/") {
        3
    } else {
        return (path, false);
    };
    let Some((at, _)) = path.match_indices('/').nth(slashes) else { return (path, false) };
    match path[at..].strip_prefix("/watch/") {
        Some(rest) => {
            let rest = format!("{}/{rest}", &path[..at]);
            (Cow::Owned(rest), true)
        }
        None => (path, false),
    }
}

fn with_watch(mut query: Query) -> Query {
    query.0.push(("watch".to_owned(), "1".to_owned()));
    query
}

/// A verb as metrics name it: that of a request for a resource, else (empty) its method.
fn verb(of_resource: &str, method: &Method) -> &'static str {
    match (of_resource, method.as_str()) {
        ("watch", _) => "WATCH",
        ("list", _) => "LIST",
        (_, "GET") => "GET",
        (_, "POST") => "POST",
        (_, "PUT") => "PUT",
        (_, "PATCH") => "PATCH",
        ("deletecollection", _) => "DELETECOLLECTION",
        (_, "DELETE") => "DELETE",
        _ => "other",
    }
}

/// What metrics say of a request for a resource.
fn labels(target: &Target<'_>, verb: &'static str) -> Labels {
    let scope = match (target.name.is_empty(), target.namespace.is_empty()) {
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    };
    let resource = &target.resource;
    Labels {
        verb,
        group: resource.group().into(),
        version: resource.version().into(),
        resource: resource.plural().into(),
        subresource: target.subresource.into(),
        scope,
    }
}
