//! The pipeline: the stages that every request goes through, in order.
//!
//! | documented | where |
//! |---|---|
//! | `WithRequestInfo` | `../request/info.rs` |
//! | `WithRequestDeadline`, `WithTimeoutForNonLongRunningRequests` | `deadline::of` |
//! | `WithWarningRecorder` | `../response/headers.rs` |
//! | `WithAuthentication` | `authenticate` |
//! | `WithImpersonation` | `impersonate::impersonate` |
//! | `WithPriorityAndFairness`, `WithMaxInFlightLimit` | `limit`, `../flow/mod.rs` |
//! | `WithAuthorization` | `authorize` |
//! | The handlers of the verbs | `route`, `../verbs/mod.rs` |
//! | The stages of a write | `../verbs/stages.rs` |
//! | `WithPanicRecovery` | `recover` |
//! | `WithCacheControl`, the header of `WithAuditInit` | `serve` |
//!
//! There is no audit log. Upstream: `DefaultBuildHandlerChain`.

mod deadline;
mod health;
mod impersonate;
mod nonresource;

use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_tasks::panic_text;
use futures::FutureExt as _;
use http::header::{EXPECT, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;

use crate::api::Api;
use crate::auth::{Attributes, Authenticated, FieldRequirements, permit};
use crate::flow::{self, Admission, ObjectStats, Rejection, RequestDigest};
use crate::loopback;
use crate::metrics::Labels;
use crate::request::{self, Query, RequestContext, RequestInfo, Warnings};
use crate::resource::{Path, Target, parse_path};
use crate::response::{Body, answer, compress, refusal, warn};
use crate::verbs;
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// Marks the response to somebody who is unknown, or whose credentials are invalid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anonymous;

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
        check_path(head.uri.path())?;
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
            deadline,
            &routed_as,
        );
        match deadline {
            None => routed.await,
            Some(time) => tokio::time::timeout(time, routed)
                .await
                .unwrap_or_else(|_| Err(deadline::deadline_exceeded())),
        }
    };
    let answered = AssertUnwindSafe(answered).catch_unwind().await;
    // What a body is that panicked is not known.
    let is_body_whole = answered.is_ok();
    let answered = answered.unwrap_or_else(|panic| Err(recover(&*panic, &head.method, &path)));
    let mut response = answered.unwrap_or_else(|error| refusal(&error, &head.headers));
    if is_body_whole && !head.headers.contains_key(EXPECT) {
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
    deadline: Option<Duration>,
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
    let Some(user) = user else {
        let mut response = refusal(&StatusError::unauthorized(), headers);
        response.extensions_mut().insert(Anonymous);
        return Ok(response);
    };
    let anonymous = &*user.name == "system:anonymous";
    let attributes = attributes(info, path);
    let user = impersonate::impersonate(api, user, headers, &attributes)?;
    let rows = api.table.rows();
    let parsed = parse_path(path, &rows);
    let digest = RequestDigest { user: &user, info, path, query };
    let permit = match limit(api, &digest, &parsed, deadline).await {
        Admission::Unlimited => None,
        Admission::Execute(permit) => Some(permit),
        Admission::Reject(rejection) => {
            if let Path::Resource(target) = &parsed {
                let _ = routed_as.set(labels(target, verb(info.verb, method)));
            }
            let mut response = too_many_requests(&rejection);
            if anonymous {
                response.extensions_mut().insert(Anonymous);
            }
            return Ok(response);
        }
    };
    let watch = if info.verb == "watch" { api.flows.register_watch(info) } else { None };
    let warnings = Warnings::default();
    let answered = async {
        authorize(api, &user, &attributes)?;
        // Only what is served is counted, under names of the server's own: paths are the clients' to choose.
        let target = match parsed {
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
            warnings: &warnings,
        };
        warnings.add(request.resource().deprecation().map(Into::into));
        verbs::dispatch(request, body).await
    };
    let mut response = answered.await.unwrap_or_else(|error| refusal(&error, headers));
    warn(&mut response, &warnings.into_texts());
    if let Some(permit) = permit {
        permit.mark(response.headers_mut());
    }
    if let Some(watch) = watch {
        response.body_mut().hold(watch);
    }
    if anonymous {
        response.extensions_mut().insert(Anonymous);
    }
    if let Some(warning) = notes.warning {
        warn(&mut response, &[warning.to_owned()]);
    }
    Ok(response)
}

/// Answers a request whose handler panicked.
///
/// Upstream: `WithPanicRecovery`.
fn recover(panic: &(dyn Any + Send), method: &Method, path: &str) -> StatusError {
    tracing::error!(%method, path, panic = panic_text(panic), "apiserver panic'd");
    StatusError::plain_internal(
        "This request caused apiserver to panic. Look in the logs for details.",
    )
}

/// Returns the user of a request's credentials, or of its connection.
///
/// Upstream: `WithAuthentication`.
async fn authenticate(
    api: &Api,
    headers: &HeaderMap,
    path: &str,
    peer: Option<&Arc<User>>,
) -> Authenticated {
    api.authenticator.user(&api.store, api.clock.now(), headers, path, peer).await
}

/// Takes the seats of a request, or waits for them. They are given back when its answer begins; that of a list or watch is
/// encoded while it is sent, from objects that are in memory anyway.
///
/// Upstream: `WithPriorityAndFairness`.
async fn limit(
    api: &Api,
    request: &RequestDigest<'_>,
    parsed: &Path<'_>,
    deadline: Option<Duration>,
) -> Admission {
    let stats = || {
        let Path::Resource(target) = parsed else { return None };
        let (count, average_size) = api.store.size(&target.resource.resource_prefix);
        Some(ObjectStats { count: count as u64, average_size: average_size as u64 })
    };
    api.flows.start(request, stats, flow::wait_limit(deadline)).await
}

/// Upstream: `tooManyRequests`.
fn too_many_requests(rejection: &Rejection) -> Response<Body> {
    let text = "Too many requests, please try again later.\n";
    let mut response = answer(
        StatusCode::TOO_MANY_REQUESTS,
        HeaderValue::from_static("text/plain; charset=utf-8"),
        Body::whole(Bytes::from_static(text.as_bytes())),
    );
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(rejection.retry_after));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    rejection.mark(headers);
    response
}

/// Returns the attributes of a request that authorization depends on.
///
/// Upstream: `GetAuthorizerAttributes`.
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
/// Upstream: `WithAuthorization`.
fn authorize(api: &Api, user: &User, attributes: &Attributes<'_>) -> Result<(), StatusError> {
    if matches!(attributes.path, Some("/healthz" | "/livez" | "/readyz")) {
        return Ok(());
    }
    permit(&api.authorizer, &api.store, user, attributes)
}

/// Rejects a path with a `%` that begins no encoded byte: as Go, which rejects it before any handler.
fn check_path(path: &str) -> Result<(), StatusError> {
    let broken = path.match_indices('%').any(|(index, _)| {
        let digits = path.as_bytes().get(index + 1..index + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if broken {
        return Err(StatusError::bad_request(
            "the path cannot be read: a '%' in it is not followed by two hexadecimal digits",
        ));
    }
    Ok(())
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
    let Some((index, _)) = path.match_indices('/').nth(slashes) else { return (path, false) };
    match path[index..].strip_prefix("/watch/") {
        Some(rest) => {
            let rest = format!("{}/{rest}", &path[..index]);
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
