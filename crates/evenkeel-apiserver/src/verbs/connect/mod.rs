//! Requests that do more than read or write a stored object: bindings, evictions, token requests, reviews, logs, and
//! connections to pods, nodes and Services.

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Method, Response, StatusCode};
use serde_json::Value;

mod binding;
mod conditions;
mod eviction;
mod exec;
mod location;
mod log;
mod options;
mod port_forward;
mod proxy;
mod reviews;
mod selectors;
mod token;

use super::attempt::{MAX_WRITE_ATTEMPTS, Write};
use super::{create, meta, namespace, respond, stages};
use crate::admission::attributes::{Attributes, Operation};
use crate::admission::{Mutating, policy, webhook};
use crate::api::{Answer, Call};
use crate::auth::settled;
use crate::request::{Query, RequestContext, WriteOptions};
use crate::resource::{ResourceType, is_connection};
use crate::response::{self, Body};
use evenkeel_apimachinery::status::StatusError;

/// Returns whether the server reads the body of a request with this method.
pub(super) fn takes_body(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Returns whether a request is for the subresource `proxy`, which accepts any method.
pub(super) fn is_proxy(request: &RequestContext<'_>) -> bool {
    let target = &request.target;
    !target.name.is_empty()
        && target.subresource == "proxy"
        && is_served_here(&target.resource, "proxy")
}

/// Returns whether this module serves a subresource of pods, nodes or Services.
fn is_served_here(resource: &ResourceType, subresource: &str) -> bool {
    match &*resource.resource_prefix {
        "/pods" => matches!(
            subresource,
            "binding" | "eviction" | "log" | "exec" | "attach" | "portforward" | "proxy"
        ),
        "/nodes" | "/services" => subresource == "proxy",
        _ => false,
    }
}

/// Serves a subresource of pods whose handler needs only the [`Call`]. Returns `None` for other subresources.
///
/// Upstream: `Connecter` of `registry/rest`.
async fn serve_call(call: &Call<'_>) -> Option<Result<Answer, StatusError>> {
    Some(match (&*call.cx.resource.resource_prefix, call.cx.subresource) {
        ("/pods", "binding") => binding::bind(call).await,
        ("/pods", "eviction") => eviction::evict(call).await,
        ("/pods", "log") => log::serve(call).await,
        _ => return None,
    })
}

/// Runs mutating and then validating admission on an object that is not stored: a posted object, or the options of a
/// connection. The client gets the warnings even if admission refuses the request.
///
/// Upstream: `createHandler`, for a `NamedCreater` too, and `ConnectResource`.
async fn admit(
    write: &Write<'_>,
    name: &str,
    operation: Operation,
    object: &mut Value,
) -> Result<(), StatusError> {
    let cx = write.context(name);
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let (mut admitted, mut warnings) = (object.clone(), Vec::new());
        let admission = async {
            Mutating::new(&cx, operation).admit(&mut admitted, None, &mut warnings).await?;
            let attributes = Attributes::new(&cx, operation, &admitted, &Value::Null);
            policy::validate(&attributes, &mut warnings).await?;
            webhook::validate(&attributes, &mut warnings).await
        };
        let result = admission.await;
        if write.answers.settle().await {
            continue;
        }
        write.request.warnings.add(warnings);
        *object = admitted;
        return result;
    }
    Err(StatusError::internal("authorization webhooks were asked too often"))
}

/// Serves a request of one of the kinds in the module's description. Returns `None` for all other requests. `raw` is
/// the body of the request.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    raw: &Bytes,
) -> Result<Option<Response<Body>>, StatusError> {
    let resource = request.resource();
    let (plural, subresource) = (resource.plural(), request.target.subresource);
    let is_post = *request.method == Method::POST;
    let is_review = subresource.is_empty() && reviews::is_review(plural);
    // The legacy resource `bindings`, with the pod's name in the object.
    let is_binding = plural == "bindings" && resource.group().is_empty();
    let is_token_request = is_post && subresource == "token" && plural == "serviceaccounts";
    if !is_review && !is_binding && !is_token_request && !is_served_here(resource, subresource) {
        return Ok(None);
    }
    // A connection has no `CreateOptions`: its query parameters are options of the connection, or belong to the proxied
    // service.
    let no_query = Query::parse(None);
    let query = if is_connection(subresource) { &no_query } else { request.query };
    let options = WriteOptions::parse(query, request.user_agent(), "CreateOptions", false)?;
    let write = Write::new(request, options);
    let mut body = Value::Null;
    if is_connection(subresource) {
        body = options::of(request);
        admit(&write, request.target.name, Operation::Connect, &mut body).await?;
    } else if is_post {
        body = stages::decode(request, raw, &write.options)?;
        if is_token_request {
            token::log(request, &body);
        } else {
            request.audit.request_object(&body);
        }
        // The UID and resource version in a binding or a token request are preconditions.
        if !matches!(subresource, "binding" | "token") {
            meta::wipe_system_fields(&mut body);
        }
        create::set_namespace(request, &mut body)?;
        request.warnings.add(meta::dedup_owner_references(&mut body, ""));
        let name_in_body = meta::text(&body, "name").to_owned();
        let name = if is_binding { &name_in_body } else { request.target.name };
        if !is_review {
            namespace::admit_create(request, name)?;
        }
        admit(&write, name, Operation::Create, &mut body).await?;
    }
    let cx = write.context(request.target.name);
    let answer = if is_token_request {
        token::serve(request, &body, &write)?
    } else if is_review {
        reviews::serve(request, body, &write).await?
    } else if matches!((&*resource.resource_prefix, subresource), ("/pods", "exec" | "attach")) {
        settled(&write.answers, || location::ensure_authorized_to_create(request.method, &cx))
            .await?;
        exec::serve(request, &cx, &body)?
    } else if matches!((&*resource.resource_prefix, subresource), ("/pods", "portforward")) {
        settled(&write.answers, || location::ensure_authorized_to_create(request.method, &cx))
            .await?;
        port_forward::serve(request, &cx)?
    } else if subresource == "proxy" {
        proxy::serve(request, &cx, &body, raw).await?
    } else {
        // Serve a legacy binding like a `binding` of the pod.
        let pods = if is_binding { request.api.table.get("v1", "pods") } else { None };
        let name_in_body = meta::text(&body, "name").to_owned();
        let mut cx = write.context(if is_binding { &name_in_body } else { request.target.name });
        if let Some(pods) = &pods {
            (cx.resource, cx.subresource) = (pods, "binding");
        }
        let call = Call { cx, query: &request.query.0, body };
        match serve_call(&call).await {
            Some(answer) => answer?,
            None => return Ok(None),
        }
    };
    let response = match answer {
        Answer::Object(code, object) => respond::with_value(request, code, &object)?,
        Answer::Nothing => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Answer::Raw { content_type, body } => {
            response::answer(StatusCode::OK, HeaderValue::from_static(content_type), body)
        }
        Answer::Response(response) => response,
    };
    Ok(Some(response))
}
