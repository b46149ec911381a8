//! What the metrics of requests say of one.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::api::Api;
use crate::metrics::Labels;
use crate::resource::Target;

/// Counts an answered request, and how long it took until its answer began.
///
/// Upstream: `MonitorRequest`.
pub(super) fn monitor(api: &Api, labels: Labels, took: Duration, code: StatusCode) {
    if labels.verb != "WATCH" {
        api.metrics.took(labels.verb, took.as_secs_f64());
    }
    api.metrics.count(labels, code.as_u16());
}

/// Counts a request that the server ends in self-defense: it took too long, or there are too many.
///
/// Upstream: `RecordRequestTermination`.
pub(super) fn terminated(api: &Api, labels: Labels, code: StatusCode) {
    api.metrics.terminated(labels, code.as_u16());
}

/// Returns what metrics say of a request for a path that is no resource: its method.
pub(super) fn of_path(method: &Method) -> Labels {
    Labels { verb: reported_verb("", method), ..Labels::default() }
}

/// Returns what metrics say of a request for a resource.
pub(super) fn of_resource(target: &Target<'_>, verb: &str, method: &Method) -> Labels {
    let scope = match (target.name.is_empty(), target.namespace.is_empty()) {
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    };
    let resource = &target.resource;
    let connects = matches!(target.subresource, "attach" | "exec" | "portforward" | "proxy");
    Labels {
        verb: if connects { "CONNECT" } else { reported_verb(verb, method) },
        group: resource.group().into(),
        version: resource.version().into(),
        resource: resource.plural().into(),
        subresource: target.subresource.into(),
        scope,
    }
}

/// Returns the verb as metrics name it: that of a request for a resource, else (empty) its method.
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
