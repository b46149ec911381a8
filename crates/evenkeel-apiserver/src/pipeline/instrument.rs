//! Metrics of one request.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::api::Api;
use crate::metrics::Labels;
use crate::resource::Target;

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
pub(super) fn terminated(api: &Api, labels: Labels, code: StatusCode) {
    api.metrics.terminated(labels, code.as_u16());
}

/// Returns the metric labels of a request for a non-resource path: its method.
pub(super) fn of_path(method: &Method) -> Labels {
    Labels { verb: reported_verb("", method), ..Labels::default() }
}

/// Returns the metric labels of a request for a resource.
pub(super) fn of_resource(target: &Target<'_>, verb: &str, method: &Method) -> Labels {
    let scope = match (target.name.is_empty(), target.namespace.is_empty()) {
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    };
    let resource = &target.resource;
    Labels {
        verb: reported_verb(verb, method),
        group: resource.group().into(),
        version: resource.version().into(),
        resource: resource.plural().into(),
        subresource: target.subresource.into(),
        scope,
    }
}

/// Returns the verb in metrics: a resource request's own, or else the HTTP method.
///
/// Upstream: `cleanVerb`.
fn reported_verb(of_resource: &str, method: &Method) -> &'static str {
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
