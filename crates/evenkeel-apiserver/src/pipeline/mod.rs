//! Request pipeline: the stages of every request in order. Each stage is a module with a function of the same name.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `WithPanicRecovery` | `recover::recover` |
//! | `WithAuditInit`, `WithAudit`, `WithFailedAuthenticationAudit` | `audit::audit_id`, `../audit/mod.rs` |
//! | `WithCacheControl` | `serve` |
//! | `WithRequestInfo` | `../request/info.rs` |
//! | `WithRequestDeadline`, `WithTimeoutForNonLongRunningRequests` | `deadline::of`, `handle` |
//! | `WithWarningRecorder` | `../response/headers.rs` |
//! | `WithAuthentication` | `authenticate::authenticate` |
//! | `WithImpersonation` | `impersonate::impersonate` |
//! | `WithPriorityAndFairness`, `WithMaxInFlightLimit` | `limit::limit`, `../flow/mod.rs` |
//! | `WithAuthorization` | `authorize::authorize` |
//! | The handlers of APIServices | `aggregate::remote`, `../aggregation/forward.rs` |
//! | The handlers of non-resource paths | `nonresource::serve` |
//! | The handlers of the verbs | `../verbs/mod.rs` |
//! | The stages of a write | `../verbs/stages/mod.rs` |
//! | `MonitorRequest`, `RecordDroppedRequest` | `instrument::monitor` |
//! | `RecordRequestTermination`, `RecordRequestAbort` | `instrument::record_termination`, `seats::hold_until_written` |
//! | A request holds its seats until its response is written | `seats::hold_until_written` |
//!
//! Upstream: `DefaultBuildHandlerChain`.

mod aggregate;
mod audit;
mod authenticate;
mod authorize;
mod deadline;
mod health;
mod impersonate;
mod instrument;
mod limit;
mod nonresource;
mod path;
mod recover;
mod seats;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, EXPECT, HeaderValue};
use http::{HeaderMap, Method, Request, Response, Uri, Version};

use crate::aggregation::forward::{self, Forwarded};
use crate::api::Api;
use crate::audit::RequestAudit;
use crate::auth::Authenticated;
use crate::flow::{self, Admission, Permit, RequestDigest};
use crate::metrics::Labels;
use crate::request::{
    self, LowerMethod, NoResourceInPath, Query, RemoteAddress, RequestBody, RequestContext,
    RequestInfo, Upgrade, Warnings,
};
use crate::resource::{Path, parse_path};
use crate::response::{Body, compress, refusal, warn};
use crate::verbs;
use audit::Audited;
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;
use evenkeel_tasks::panic_text;

pub(crate) use authenticate::Anonymous;

/// Maximum length of a body whose length the response to a HEAD has. Go's server has it of bodies in its buffer.
const MAX_COUNTED_LENGTH: u64 = 2048;

/// Request without its body: the parsed URL and headers, its audit event and its metric labels.
struct Incoming<'a> {
    api: &'a Arc<Api>,
    /// User of the connection, such as the user in its client certificate.
    peer: Option<&'a Arc<User>>,
    method: &'a Method,
    uri: &'a Uri,
    /// Path with its deprecated prefix `watch`, if any.
    full_path: &'a str,
    path: &'a str,
    query: &'a Query,
    /// Whether the path has the deprecated prefix `watch`.
    is_watch_path: bool,
    info: RequestInfo<'a>,
    headers: &'a HeaderMap,
    upgrade: Option<&'a Upgrade>,
    audited: Audited<'a>,
    /// Metric labels, which are set when the path is resolved. Requests for unknown paths are not counted: clients
    /// choose the path, so that the number of labels would have no limit.
    labels: OnceLock<Labels>,
}

impl Incoming<'_> {
    /// Returns the request as an extension API server gets it, with its user.
    fn forwarded<'a>(&'a self, user: &'a User) -> Forwarded<'a> {
        Forwarded {
            api: self.api,
            method: self.method,
            uri: self.uri,
            headers: self.headers,
            user,
            audit_id: self.audited.id,
            client: self.audited.remote,
            upgrade: self.upgrade,
            is_resource: self.info.is_resource,
        }
    }

    /// Returns whether the response lasts until the client disconnects.
    fn is_long_running(&self) -> bool {
        self.info.verb == "watch" || flow::is_long_running(&self.info, self.path)
    }

    /// Returns the metric labels of the request. They contain only the method until the path is resolved.
    fn labels(&self) -> Labels {
        self.labels.get().cloned().unwrap_or_else(|| instrument::labels_of_path(self.method))
    }
}

/// Response, and the seats that its request holds in priority and fairness.
struct Handled {
    response: Response<Body>,
    permit: Option<Permit>,
}

impl From<Response<Body>> for Handled {
    fn from(response: Response<Body>) -> Self {
        Self { response, permit: None }
    }
}

/// Serves one request.
pub(crate) async fn serve(
    api: &Arc<Api>,
    peer: Option<&Arc<User>>,
    request: Request<RequestBody>,
) -> Response<Body> {
    let (head, mut body) = request.into_parts();
    let (method, headers) = (&head.method, &head.headers);
    if head.version < Version::HTTP_2 && path::check(head.uri.path()).is_err() {
        return path::bad_request();
    }
    let normalized = path::normalize(head.uri.path(), head.uri.query());
    let (full_path, path, query) = (&*normalized.full_path, normalized.path(), &normalized.query);
    let lower_method = LowerMethod::of(method);
    let info = match RequestInfo::new(&lower_method, full_path, query) {
        Ok(info) => info,
        Err(NoResourceInPath) => {
            let mut response = path::no_resource(&head.uri);
            audit::set_audit_id(audit::audit_id(api, headers), response.headers_mut());
            return response;
        }
    };
    let labels = OnceLock::new();
    let upgrade = head.extensions.get::<Upgrade>();
    let audit_id = audit::audit_id(api, headers);
    let audited = Audited {
        audit: RequestAudit::new(api.auditor.as_ref()),
        id: &audit_id,
        uri: head.uri.path_and_query().map_or("", |uri| uri.as_str()),
        headers,
        remote: head.extensions.get::<RemoteAddress>().map(|remote| remote.0),
        at: api.clock.now(),
        info: info.clone(),
        path: full_path,
    };
    let incoming = Incoming {
        api,
        peer,
        method,
        uri: &head.uri,
        full_path,
        path,
        query,
        is_watch_path: normalized.is_watch_path(),
        info,
        headers,
        upgrade,
        audited,
        labels,
    };
    let abandoned_guard = incoming.audited.audit.guard();
    let started = api.clock.instant();
    let in_flight = api.metrics.in_flight(!matches!(*method, Method::GET | Method::HEAD));
    let handled = AssertUnwindSafe(handle(&incoming, &mut body));
    let handled = handled.catch_unwind().await;
    // After a panic, the state of the body is unknown.
    let is_body_usable = handled.is_ok();
    if let Err(panic) = &handled {
        incoming.audited.audit.panicked(panic_text(&**panic)).await;
    }
    let handled = handled.unwrap_or_else(|panic| Err(recover::recover(&*panic, method, path)));
    let Handled { mut response, permit } =
        handled.unwrap_or_else(|error| refusal(&error, headers, &query.0).into());
    // A client that expects `100 Continue` may not have sent the body.
    if is_body_usable && !headers.contains_key(EXPECT) {
        request::body::discard(&api.tasks, body);
    }
    let is_long_running = incoming.is_long_running();
    incoming
        .audited
        .audit
        .respond(&mut response, incoming.audited.has_object(), is_long_running)
        .await;
    abandoned_guard.answered();
    compress::compress(headers, &mut response);
    audit::set_audit_id(audit_id.clone(), response.headers_mut());
    // Discovery and OpenAPI responses, which clients may cache, already have this header.
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert_with(|| HeaderValue::from_static("no-cache, private"));
    if *method == Method::HEAD {
        let length = http_body::Body::size_hint(response.body()).exact();
        if let Some(length) = length.filter(|length| *length <= MAX_COUNTED_LENGTH) {
            response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        *response.body_mut() = Body::empty();
    }
    if !is_long_running && !response.body().is_short() {
        let labels = incoming.labels();
        seats::hold_until_written(api, (permit, in_flight), labels, &mut response);
    }
    if let Some(labels) = incoming.labels.into_inner() {
        instrument::monitor(api, labels, started.elapsed(), response.status());
    }
    response
}

/// Checks the headers and the path, and runs the stages within the request's deadline.
async fn handle(incoming: &Incoming<'_>, body: &mut RequestBody) -> Result<Handled, StatusError> {
    headers::check(incoming.headers)?;
    path::check(incoming.uri.path())?;
    let deadline =
        deadline::of(&incoming.info, incoming.query).inspect_err(|_| incoming.audited.refuse())?;
    let response = stages(incoming, deadline, body);
    match deadline {
        None => response.await,
        Some(limit) => tokio::time::timeout(limit, response).await.unwrap_or_else(|_| {
            let error = deadline::deadline_exceeded();
            instrument::record_termination(incoming.api, incoming.labels(), error.code());
            Err(error)
        }),
    }
}

/// Runs the stages from authentication to the verb's handler.
async fn stages(
    incoming: &Incoming<'_>,
    deadline: Option<Duration>,
    body: &mut RequestBody,
) -> Result<Handled, StatusError> {
    let Incoming { api, peer, method, path, query, ref info, headers, upgrade, ref labels, .. } =
        *incoming;
    let full_path = incoming.full_path;
    let Authenticated { user, notes } = authenticate::authenticate(api, headers, path, peer).await;
    let Some(user) = user else {
        incoming.audited.refuse();
        return Ok(authenticate::unauthorized(headers, query).into());
    };
    incoming.audited.receive(&user).await?;
    // Check the authenticated user, before impersonation.
    let is_anonymous = &*user.name == "system:anonymous";
    let attributes = authorize::attributes(info, full_path);
    let audit = &incoming.audited.audit;
    let user = match impersonate::impersonate(api, user, headers, &attributes, audit).await {
        Ok(user) => user,
        Err(error) => return Ok(authorize::refused(&error, headers, query).into()),
    };
    let rows = api.table.rows();
    let parsed = parse_path(path, &rows);
    let digest = RequestDigest { user: &user, info, path, query };
    let permit = match limit::limit(api, &digest, &parsed, deadline).await {
        Admission::Unlimited => None,
        Admission::Execute(permit) => Some(permit),
        Admission::Reject(rejection) => {
            if let Path::Resource(target) = &parsed {
                let _ = labels
                    .set(instrument::labels_of_resource(target, info.verb, method, headers, query));
            }
            let mut response = limit::too_many_requests(&rejection);
            instrument::record_termination(api, incoming.labels(), response.status());
            if is_anonymous {
                response.extensions_mut().insert(Anonymous);
            }
            return Ok(response.into());
        }
    };
    let watch_registration =
        if info.verb == "watch" { api.flows.register_watch(info) } else { None };
    let warnings = Warnings::default();
    let routed = async {
        let authorized = authorize::authorize(api, &user, &attributes, &incoming.audited.audit);
        if let Err(error) = authorized.await {
            return Ok(authorize::refused(&error, headers, query));
        }
        if let Some(remote) = aggregate::remote(api, path) {
            let _ = labels.set(instrument::labels_of_path(method));
            let forwarded = incoming.forwarded(&user);
            return forward::serve(&forwarded, &remote, body).await;
        }
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let target = match parsed {
            // Upstream's handler of custom resources leaves such a request to the next handler.
            Path::Resource(target) if !is_read && target.is_custom_in_all_namespaces() => {
                let _ = labels.set(instrument::labels_of_path(method));
                return nonresource::serve(api, method, path, headers, query);
            }
            Path::Resource(target) => target,
            Path::UnknownResource => return Err(StatusError::resource_not_found()),
            Path::UnknownSubresource(resource, name) => {
                warnings.add(resource.deprecation().map(Into::into));
                return Err(StatusError::not_found(&resource.name, name));
            }
            Path::Other => {
                let _ = labels.set(instrument::labels_of_path(method));
                return nonresource::serve(api, method, path, headers, query);
            }
        };
        let _ =
            labels.set(instrument::labels_of_resource(&target, info.verb, method, headers, query));
        incoming.audited.annotate_deprecation(&target.resource);
        let now = api.clock.now();
        let (user, warnings) = (&*user, &warnings);
        let is_watch_path = incoming.is_watch_path;
        let request = RequestContext {
            api,
            target,
            method,
            uri: incoming.uri,
            headers,
            query,
            is_watch_path,
            user,
            now,
            warnings,
            audit: &incoming.audited.audit,
            upgrade,
            format: OnceLock::new(),
        };
        verbs::dispatch(request, body).await
    };
    let mut response = routed.await.unwrap_or_else(|error| refusal(&error, headers, &query.0));
    warn(&mut response, &warnings.into_texts());
    if let Some(permit) = &permit {
        permit.set_uid_headers(response.headers_mut());
    }
    if let Some(registration) = watch_registration {
        response.body_mut().hold(registration);
    }
    if is_anonymous {
        response.extensions_mut().insert(Anonymous);
    }
    if let Some(warning) = notes.warning {
        warn(&mut response, &[warning.to_owned()]);
    }
    Ok(Handled { response, permit })
}
