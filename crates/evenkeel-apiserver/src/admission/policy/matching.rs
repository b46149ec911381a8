//! Matches requests with the rules and selectors of policies and webhooks (upstream:
//! `admission/plugin/policy/matching`).

use std::sync::Arc;

use serde_json::Value;

use crate::admission::attributes::{Attributes, Operation};
use crate::resource::ResourceType;
use evenkeel_apimachinery::validation::labels::selects;
use evenkeel_apimachinery::value::{get, list, object, text};

/// Resource that matched the rules: the request's own, or an equivalent one.
#[derive(Debug)]
pub(crate) enum Matched {
    /// Resource of the request itself.
    Requested,
    /// Resource that serves the same objects in another group or version.
    Equivalent(Arc<ResourceType>),
}

impl Matched {
    /// Returns the resource in the group and version that matched.
    pub(crate) fn version<'a>(&'a self, request: &Attributes<'a>) -> &'a ResourceType {
        match self {
            Self::Requested => request.cx.requested,
            Self::Equivalent(resource) => resource,
        }
    }
}

/// Matches a request with `constraints`: rules, excluded rules and selectors. Returns `None` if the request does not
/// match.
///
/// Upstream: `Matcher.Matches`.
pub(super) fn matches(request: &Attributes<'_>, constraints: &Value) -> Option<Matched> {
    if !matches_namespace(request, constraints) || !matches_object(request, constraints) {
        return None;
    }
    let match_equivalent = text(constraints, "matchPolicy") != "Exact";
    let excluded = list(constraints, "excludeResourceRules");
    if match_rules(request, excluded, match_equivalent).is_some() {
        return None;
    }
    match list(constraints, "resourceRules") {
        [] => Some(Matched::Requested),
        rules => match_rules(request, rules, match_equivalent),
    }
}

/// Returns whether the `matchResources` of a binding match a request.
pub(super) fn is_bound(request: &Attributes<'_>, binding: &Value) -> bool {
    let resources = get(binding, "spec.matchResources");
    resources.is_none_or(|resources| matches(request, resources).is_some())
}

/// Returns whether a list contains the value or `*`.
fn contains_or_any(patterns: &[Value], value: &str) -> bool {
    patterns.iter().any(|pattern| pattern == "*" || pattern == value)
}

/// Returns the first resource that a rule matches: the request's own resource, or with `match_equivalent` one that
/// serves the same objects in another version.
///
/// Upstream: `matchesResourceRules`.
fn match_rules(
    request: &Attributes<'_>,
    rules: &[Value],
    match_equivalent: bool,
) -> Option<Matched> {
    let requested = request.cx.requested;
    if rules.iter().any(|rule| matches_rule(request, rule, requested)) {
        return Some(Matched::Requested);
    }
    let rows = match_equivalent.then(|| request.cx.api.table.rows());
    let subresource = request.cx.subresource;
    let equivalents: Vec<&Arc<ResourceType>> = rows
        .iter()
        .flat_map(|rows| &rows.all)
        .filter(|row| {
            row.resource_prefix == requested.resource_prefix
                && row.api_version != requested.api_version
        })
        .filter(|row| subresource.is_empty() || row.subresource(subresource).is_some())
        .collect();
    for rule in rules {
        if let Some(row) = equivalents.iter().find(|row| matches_rule(request, rule, row)) {
            return Some(Matched::Equivalent(Arc::clone(row)));
        }
    }
    None
}

/// Returns whether a rule matches a request for `resource`.
///
/// Upstream: `Matcher.Matches` of `webhook/predicates/rules`.
fn matches_rule(request: &Attributes<'_>, rule: &Value, resource: &ResourceType) -> bool {
    let names = list(rule, "resourceNames");
    let is_in_scope = match text(rule, "scope") {
        "Cluster" => !resource.namespaced,
        "Namespaced" => resource.namespaced,
        _ => true,
    };
    let operations = list(rule, "operations");
    contains_or_any(list(rule, "apiGroups"), resource.group())
        && contains_or_any(list(rule, "apiVersions"), resource.version())
        && is_in_scope
        && contains_or_any(operations, request.operation.as_str())
        && (names.is_empty() || names.iter().any(|name| name == request.cx.name))
        && list(rule, "resources")
            .iter()
            .filter_map(Value::as_str)
            .any(|pattern| matches_resource(pattern, resource.plural(), request.cx.subresource))
}

/// Matches the resource pattern of a rule, such as `pods`, `pods/status`, `pods/*`, `*/scale`, `*` or `*/*`, with a
/// resource and its subresource.
fn matches_resource(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (plural_pattern, subresource_pattern) = pattern.split_once('/').unwrap_or((pattern, ""));
    (plural_pattern == "*" || plural_pattern == plural)
        && (subresource_pattern == "*" || subresource_pattern == subresource)
}

/// Returns whether the `namespaceSelector` matches. It does not apply to cluster-scoped resources other than
/// namespaces.
fn matches_namespace(request: &Attributes<'_>, constraints: &Value) -> bool {
    let Some(selector) = get(constraints, "namespaceSelector") else { return true };
    if is_empty_selector(selector) {
        return true;
    }
    let cx = request.cx;
    if &*cx.resource.resource_prefix == "/namespaces" {
        let is_deletion = request.operation == Operation::Delete;
        let namespace = if is_deletion { request.old } else { request.object };
        return selects(Some(selector), object(namespace, "metadata.labels"));
    }
    if !cx.resource.namespaced {
        return true;
    }
    let namespace = namespace_of(request);
    selects(Some(selector), object(&namespace, "metadata.labels"))
}

/// Returns the stored namespace of the request; null for a cluster-scoped resource.
pub(super) fn namespace_of(request: &Attributes<'_>) -> Value {
    let cx = request.cx;
    if !cx.resource.namespaced {
        return Value::Null;
    }
    cx.stored_namespace()
}

/// Returns whether the `objectSelector` matches the new or the old object.
fn matches_object(request: &Attributes<'_>, constraints: &Value) -> bool {
    let Some(selector) = get(constraints, "objectSelector") else { return true };
    let is_selected = |value: &Value| {
        value.is_object() && selects(Some(selector), object(value, "metadata.labels"))
    };
    is_empty_selector(selector) || is_selected(request.object) || is_selected(request.old)
}

/// Returns whether a label selector has no requirements, and therefore selects everything.
fn is_empty_selector(selector: &Value) -> bool {
    object(selector, "matchLabels").is_none_or(serde_json::Map::is_empty)
        && list(selector, "matchExpressions").is_empty()
}
