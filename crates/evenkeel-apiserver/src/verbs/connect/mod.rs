//! What is no plain verb on a stored object: bindings, evictions, tokens, reviews, and sub-resources that are no views.

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

use super::attempt::Write;
use super::{create, meta, namespace, respond, stages};
use crate::admission::attributes::{Attributes, Operation};
use crate::admission::{Mutating, policy, webhook};
use crate::api::{Answer, Call};
use crate::request::{Query, RequestContext, WriteOptions};
use crate::resource::{ResourceType, is_connection};
use crate::response::Body;
use crate::response::answer;
use evenkeel_apimachinery::status::StatusError;

/// Whether requests of a method have a body that is read.
pub(super) fn takes_body(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Returns whether a request is for a proxy, which takes any method.
pub(super) fn is_proxy(request: &RequestContext<'_>) -> bool {
    let target = &request.target;
    !target.name.is_empty() && target.subresource == "proxy" && connects(&target.resource, "proxy")
}

/// Returns whether a sub-resource is served by [`connect`].
fn connects(resource: &ResourceType, subresource: &str) -> bool {
    match &*resource.resource_prefix {
        "/pods" => matches!(
            subresource,
            "binding" | "eviction" | "log" | "exec" | "attach" | "portforward" | "proxy"
        ),
        "/nodes" | "/services" => subresource == "proxy",
        _ => false,
    }
}

/// Serves a sub-resource that is no view of a stored object; `None` where there is none of that name.
///
/// Upstream: `Connecter` of `registry/rest`.
async fn connect(call: &Call<'_>) -> Option<Result<Answer, StatusError>> {
    Some(match (&*call.cx.resource.resource_prefix, call.cx.subresource) {
        ("/pods", "binding") => binding::bind(call).await,
        ("/pods", "eviction") => eviction::evict(call).await,
        ("/pods", "log") => log::pod(call).await,
        _ => return None,
    })
}

/// Runs mutating, then validating admission on an object that is not stored: one that a client posted, or the options of
/// a connection. Warnings reach the client even if admission refuses.
///
/// Upstream: `createHandler`, for a `NamedCreater` too, and `ConnectResource`.
async fn admit(
    write: &Write<'_>,
    name: &str,
    operation: Operation,
    object: &mut Value,
) -> Result<(), StatusError> {
    let (cx, mut warnings) = (write.context(name), Vec::new());
    let admitted = async {
        Mutating::new(&cx, operation).admit(object, None, &mut warnings).await?;
        let attributes = Attributes::new(&cx, operation, object, &Value::Null);
        policy::validate(&attributes, &mut warnings)?;
        webhook::validate(&attributes, &mut warnings).await
    };
    let admitted = admitted.await;
    write.request.warnings.add(warnings);
    admitted
}

/// Serves it, unless it is a plain verb after all.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    raw: &Bytes,
) -> Result<Option<Response<Body>>, StatusError> {
    let resource = request.resource();
    let (plural, part) = (resource.plural(), request.target.subresource);
    let posted = *request.method == Method::POST;
    let review = part.is_empty() && reviews::is_review(plural);
    let binding = plural == "bindings" && resource.group().is_empty();
    let token = posted && part == "token" && plural == "serviceaccounts";
    if !review && !binding && !token && !connects(resource, part) {
        return Ok(None);
    }
    // The parameters of a connection are not the server's: a proxied service has its own.
    let none = Query::parse(None);
    let query = if is_connection(part) { &none } else { request.query };
    let options = WriteOptions::parse(query, request.user_agent(), "CreateOptions", false)?;
    let write = Write::new(request, options);
    let mut body = Value::Null;
    if is_connection(part) {
        body = options::of(request);
        admit(&write, request.target.name, Operation::Connect, &mut body).await?;
    } else if posted {
        body = stages::decode(request, raw, &write.options)?;
        if token {
            token::log(request, &body);
        } else {
            request.audit.request_object(&body);
        }
        // The identity in a binding and in a token request is a precondition.
        if !matches!(part, "binding" | "token") {
            meta::wipe_system_fields(&mut body);
        }
        create::place(request, &mut body)?;
        let own_name = meta::text(&body, "name").to_owned();
        let name = if binding { &own_name } else { request.target.name };
        if !review {
            namespace::admit_create(request, name)?;
        }
        admit(&write, name, Operation::Create, &mut body).await?;
    }
    let answered = if token {
        token::serve(request, &body, &write)?
    } else if review {
        reviews::serve(request, body, &write).await?
    } else if matches!((&*resource.resource_prefix, part), ("/pods", "exec" | "attach")) {
        exec::serve(request, &write.context(request.target.name), &body)?
    } else if matches!((&*resource.resource_prefix, part), ("/pods", "portforward")) {
        port_forward::serve(request, &write.context(request.target.name))?
    } else if part == "proxy" {
        proxy::serve(request, &write.context(request.target.name), &body, raw).await?
    } else {
        let pods = if binding { request.api.table.get("v1", "pods") } else { None };
        let name = meta::text(&body, "name").to_owned();
        let mut cx = write.context(if binding { &name } else { request.target.name });
        if let Some(pods) = &pods {
            (cx.resource, cx.subresource) = (pods, "binding");
        }
        let call = Call { cx, query: &request.query.0, body };
        match connect(&call).await {
            Some(answered) => answered?,
            None => return Ok(None),
        }
    };
    let response = match answered {
        Answer::Object(code, object) => respond::with_value(request, code, &object)?,
        Answer::Nothing => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Answer::Stream(content_type, body) => {
            answer(StatusCode::OK, HeaderValue::from_static(content_type), body)
        }
        Answer::Response(response) => response,
    };
    Ok(Some(response))
}
