//! Verbs on resources, one module each.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | HTTP method to verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection` | `dispatch` |
//! | `get`: `resourceVersion` | `get::serve`, `get::wait_for_resource_version` |
//! | `list`: selectors, chunks, `resourceVersionMatch` | `list::serve` |
//! | `watch`: initial events, bookmarks | `watch::serve` |
//! | `create`: name or `generateName`, namespace of the request | `create::serve`, `create::set_namespace`, `meta::generate_name` |
//! | `update`: PUT of an object or of a subresource | `update::serve` |
//! | `patch`: JSON, merge and strategic merge patch, server-side apply | `patch::serve`, `patch::patch_type`, `patch::apply_new` |
//! | `delete`: grace period, finalizers, propagation | `delete::serve` |
//! | `deletecollection` | `delete::serve_collection` |
//! | subresource `scale` | `get::serve_subresource`, `scale::copy_managers_to_object` |
//! | subresources `binding`, `eviction`, `token` | `connect/mod.rs`, `connect/token.rs` |
//! | `CONNECT`: subresources `exec`, `attach`, `portforward` | `connect/exec.rs`, `connect/port_forward.rs`, `../streaming/mod.rs` |
//! | `CONNECT`: subresource `proxy`, by any method | `connect/proxy/mod.rs` |
//! | TokenReview, SelfSubjectReview, SubjectAccessReview and similar reviews | `connect/reviews.rs` |
//! | `dryRun`, `fieldManager`, `fieldValidation` | `../request/query.rs` |

mod attempt;
mod computed;
mod connect;
mod create;
pub(crate) mod delete;
pub(crate) mod delete_options;
mod get;
pub(crate) mod list;
mod list_pieces;
mod meta;
mod namespace;
mod patch;
mod precondition;
mod respond;
pub(crate) mod route;
mod scale;
mod stages;
mod update;
mod watch;
mod write;

use bytes::Bytes;
use http::{Method, Response};

use evenkeel_api::forms::path_segment;

use crate::components;
use crate::request::{self, RequestBody, RequestContext};
use crate::resource::{Source, Verb, is_connection};
use crate::response::Body;
use evenkeel_apimachinery::status::{StatusError, quote};

/// Serves a request for a resource. An error of a write may depend on other writes that are not committed yet, so that
/// the error response waits for their commits.
pub(crate) async fn dispatch(
    request: RequestContext<'_>,
    body: &mut RequestBody,
) -> Result<Response<Body>, StatusError> {
    let (api, is_read) = (request.api, matches!(request.method, &Method::GET | &Method::HEAD));
    // A read at a resource version may be served from memory. All other requests must observe the writes of other
    // servers.
    if !is_read || request.query.get("resourceVersion").is_empty() {
        api.store.catch_up().await?;
    }
    let response = dispatch_verb(request, body).await;
    if response.is_err() && !is_read {
        api.store.settle().await?;
    }
    response
}

/// Determines the verb of a request, checks whether the resource supports it, and calls its handler.
async fn dispatch_verb(
    request: RequestContext<'_>,
    body: &mut RequestBody,
) -> Result<Response<Body>, StatusError> {
    let target = &request.target;
    if connect::is_proxy(&request) {
        if !PROXIED_METHODS.contains(&request.method.as_str()) {
            return Err(StatusError::method_not_allowed());
        }
        refuse_dry_run(&request)?;
        check_name(target.name, &target.resource.resource_prefix, target.subresource)?;
        let body = request::body::read(body).await?;
        let response = connect::serve(&request, &body).await?;
        return response.ok_or_else(StatusError::method_not_allowed);
    }
    let has_name = !target.name.is_empty();
    let resource = request.resource();
    let is_custom = resource.custom.is_some();
    // A collection of all namespaces can only be read.
    let in_all_namespaces = resource.namespaced && target.namespace.is_empty();
    if in_all_namespaces && !resource.verbs.has(Verb::List) {
        return Err(StatusError::resource_not_found());
    }
    if is_custom {
        request.warnings.add(resource.deprecation().map(Into::into));
    }
    let verb = match (request.method, has_name) {
        (&Method::HEAD, _) if !is_custom => return Err(StatusError::method_not_allowed()),
        (&Method::GET, true) if request.is_watch_path => Verb::Watch,
        (&Method::PUT | &Method::PATCH, false) if is_custom => {
            if request.method == Method::PATCH {
                patch::patch_type(&request)?;
            }
            return Err(StatusError::bad_request("name must be provided"));
        }
        (&Method::GET | &Method::HEAD, true) => Verb::Get,
        (&Method::GET | &Method::HEAD, false) if request.query.flag("watch") => Verb::Watch,
        (&Method::GET | &Method::HEAD, false) => Verb::List,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, true) => Verb::Update,
        (&Method::PATCH, true) => Verb::Patch,
        (&Method::DELETE, true) => Verb::Delete,
        (&Method::DELETE, false) => Verb::DeleteCollection,
        _ if is_custom => {
            return Err(StatusError::method_not_supported(&resource.name, ""));
        }
        _ => return Err(StatusError::method_not_allowed()),
    };
    // Reviews, for example, have no route for one object.
    let has_route_of_object =
        [Verb::Get, Verb::Update, Verb::Patch, Verb::Delete].map(|verb| resource.verbs.has(verb));
    if !is_custom
        && has_name
        && target.subresource.is_empty()
        && !has_route_of_object.contains(&true)
    {
        return Err(StatusError::resource_not_found());
    }
    let verbs = match target.resource.subresource(target.subresource) {
        Some(subresource) => subresource.verbs,
        None => target.resource.verbs,
    };
    // A POST is for a collection, or for a subresource of an object.
    // The handler of custom resources ignores the name in the path of a POST.
    let has_valid_post_target = verb != Verb::Create
        || has_name != target.subresource.is_empty()
        || is_custom && target.subresource.is_empty();
    // Objects of a namespaced resource are created and deleted in one namespace.
    let has_valid_namespace = !matches!(verb, Verb::Create | Verb::DeleteCollection)
        || target.resource.namespaced != target.namespace.is_empty();
    if is_custom && !verbs.has(verb) {
        return Err(StatusError::method_not_supported(&resource.name, verb.as_str()));
    }
    if !verbs.has(verb) || !has_valid_post_target || !has_valid_namespace {
        return Err(StatusError::method_not_allowed());
    }
    if !is_custom {
        route::check(request.method, verb, target.subresource, request.headers)?;
        request.warnings.add(resource.deprecation().map(Into::into));
    }
    if matches!(verb, Verb::Get) && target.subresource.is_empty() {
        request.format()?;
    }
    if is_connection(target.subresource) {
        refuse_dry_run(&request)?;
    }
    check_name(target.name, &target.resource.resource_prefix, target.subresource)?;
    let source = if components::is_componentstatuses(&target.resource) {
        Some(&request.api.components as &dyn Source)
    } else {
        target.resource.source.as_deref()
    };
    if let Some(source) = source {
        return match verb {
            Verb::List => computed::list(&request, source),
            _ => computed::get(&request, source),
        };
    }
    match verb {
        Verb::Get if target.subresource.is_empty() => get::serve(&request).await,
        Verb::List => list::serve(&request).await,
        Verb::Watch => watch::serve(&request).await,
        _ => {
            let reads_body = connect::takes_body(request.method);
            let body = if reads_body { request::body::read(body).await? } else { Bytes::new() };
            if let Some(response) = connect::serve(&request, &body).await? {
                return Ok(response);
            }
            match verb {
                Verb::Get => get::serve_subresource(&request).await,
                Verb::Create => create::serve(&request, &body).await,
                Verb::Update => update::serve(&request, &body).await,
                Verb::Patch => patch::serve(&request, &body).await,
                Verb::Delete => delete::serve(&request, &body).await,
                Verb::DeleteCollection => delete::serve_collection(&request, &body).await,
                Verb::List | Verb::Watch => Err(StatusError::method_not_allowed()),
            }
        }
    }
}

/// Methods of the routes of proxies.
const PROXIED_METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Refuses a connection with the parameter `dryRun`.
///
/// Upstream: `ConnectResource`.
fn refuse_dry_run(request: &RequestContext<'_>) -> Result<(), StatusError> {
    if request.query.has("dryRun") {
        return Err(StatusError::bad_request("dryRun is not supported"));
    }
    Ok(())
}

/// Refuses a name that no object can have, because it would change the path.
///
/// Upstream: `NamespaceKeyFunc`.
fn check_name(name: &str, resource_prefix: &str, subresource: &str) -> Result<(), StatusError> {
    // In a Service's proxy path, the name may have a scheme and a port.
    if resource_prefix == "/services" && subresource == "proxy" {
        return Ok(());
    }
    match path_segment(name).as_slice() {
        [] => Ok(()),
        reasons => {
            let (name, reasons) = (quote(name), reasons.join(";"));
            Err(StatusError::bad_request(format!("Name parameter invalid: {name}: {reasons}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_must_be_a_valid_path_segment() {
        for name in ["", "a", "a.b", "a:b", "...", "system:node:x"] {
            assert_eq!(check_name(name, "/pods", ""), Ok(()), "{name}");
        }
        for (name, why) in [
            ("..", r#"Name parameter invalid: "..": may not be '..'"#),
            ("a%2fb", r#"Name parameter invalid: "a%2fb": may not contain '%'"#),
            ("a/%", r#"Name parameter invalid: "a/%": may not contain '/';may not contain '%'"#),
        ] {
            assert_eq!(check_name(name, "/pods", ""), Err(StatusError::bad_request(why)));
            assert_eq!(check_name(name, "/services", "proxy"), Ok(()));
        }
    }
}
