//! Metrics of one request.

use std::time::Duration;

use evenkeel_apimachinery::headers::text;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};

use crate::api::Api;
use crate::metrics::Labels;
use crate::request::query::{Query, dry_run_errors};
use crate::resource::{Target, is_long_running_subresource};

/// Counts a request by its response, and records the time until its response began.
///
/// Upstream: `MonitorRequest`.
pub(super) fn monitor(api: &Api, labels: Labels, took: Duration, code: StatusCode) {
    if labels.verb != "WATCH" {
        api.metrics.took(labels.verb, took.as_secs_f64());
    }
    api.metrics.count(labels, code.as_u16());
}

/// Counts a request that the server terminated: it took too long, or the server had too many requests.
///
/// Upstream: `RecordRequestTermination`.
pub(super) fn record_termination(api: &Api, labels: Labels, code: StatusCode) {
    api.metrics.record_termination(labels, code.as_u16());
}

/// Returns the metric labels of a request for a non-resource path: its method.
pub(super) fn labels_of_path(method: &Method) -> Labels {
    let verb = if method == Method::HEAD { "GET" } else { method_label(method) };
    Labels { verb, ..Labels::default() }
}

/// Returns the metric labels of a request for a resource.
pub(super) fn labels_of_resource(
    target: &Target<'_>,
    verb: &str,
    method: &Method,
    headers: &HeaderMap,
    query: &Query,
) -> Labels {
    let scope = scope(target, method);
    let is_apply = text(headers, CONTENT_TYPE) == APPLY_MEDIA_TYPE;
    let resource = &target.resource;
    Labels {
        verb: reported_verb(target.subresource, scope, verb, method, is_apply),
        group: resource.group().into(),
        version: resource.version().into(),
        resource: resource.plural().into(),
        subresource: target.subresource.into(),
        scope,
        dry_run: dry_run_label(query),
    }
}

/// Returns the scope of a request by its path. A POST creates one object.
///
/// Upstream: `registerResourceHandlers`, `CleanScope`.
fn scope(target: &Target<'_>, method: &Method) -> &'static str {
    match (target.name.is_empty(), target.namespace.is_empty()) {
        (false, _) => "resource",
        (true, _) if method == Method::POST => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    }
}

/// Returns the verb in metrics. This is the HTTP method, even for the deletion of a collection, except for connections,
/// watches, lists and server-side apply.
///
/// Upstream: `CanonicalVerb`, `CleanVerb`.
fn reported_verb(
    subresource: &str,
    scope: &str,
    verb: &str,
    method: &Method,
    is_apply: bool,
) -> &'static str {
    if is_long_running_subresource(subresource) {
        return "CONNECT";
    }
    if verb == "watch" {
        return "WATCH";
    }
    match *method {
        Method::PATCH if is_apply => "APPLY",
        Method::GET | Method::HEAD if scope != "resource" => "LIST",
        Method::HEAD => "GET",
        _ => method_label(method),
    }
}

/// Media type of a server-side apply.
const APPLY_MEDIA_TYPE: &str = "application/apply-patch+yaml";

/// Returns the label value of a method, `other` for methods that no request of the API uses.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "CONNECT" => "CONNECT",
        _ => "other",
    }
}

/// Returns the value of `dryRun`, or `invalid` for an unknown one.
///
/// Upstream: `cleanDryRun`.
fn dry_run_label(query: &Query) -> &'static str {
    if !dry_run_errors(query.all("dryRun")).is_empty() {
        "invalid"
    } else if query.has("dryRun") {
        "All"
    } else {
        ""
    }
}
