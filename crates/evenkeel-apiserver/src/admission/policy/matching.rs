//! Matches requests with policies and webhooks (upstream: `admission/plugin/policy/matching`).

use std::sync::Arc;

use serde_json::Value;

use crate::admission::attributes::{Attributes, Operation};
use crate::resource::ResourceType;
use evenkeel_apimachinery::validation::labels::selects;
use evenkeel_apimachinery::value::{get, list, object, text};

/// Resource of a request that matched the constraints.
#[derive(Debug)]
pub(crate) enum Matched {
    /// Resource of the request itself.
    Requested,
    /// Resource with the same objects in another group or version.
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

/// Matches a request with `constraints`: rules, excluded rules and selectors.
///
/// Upstream: `Matcher.Matches`.
pub(super) fn matches(request: &Attributes<'_>, constraints: &Value) -> Option<Matched> {
    if !by_namespace(request, constraints) || !by_object(request, constraints) {
        return None;
    }
    let equivalent = text(constraints, "matchPolicy") != "Exact";
    if by_rules(request, list(constraints, "excludeResourceRules"), equivalent).is_some() {
        return None;
    }
    match list(constraints, "resourceRules") {
        [] => Some(Matched::Requested),
        rules => by_rules(request, rules, equivalent),
    }
}

/// Returns whether a binding's `matchResources` match a request.
pub(super) fn is_bound(request: &Attributes<'_>, binding: &Value) -> bool {
    let resources = get(binding, "spec.matchResources");
    resources.is_none_or(|resources| matches(request, resources).is_some())
}

fn among(all: &[Value], value: &str) -> bool {
    all.iter().any(|one| one == "*" || one == value)
}

/// Returns the first resource that a rule matches: the request's own, else one with the same objects.
///
/// Upstream: `matchesResourceRules`.
fn by_rules(request: &Attributes<'_>, rules: &[Value], equivalent: bool) -> Option<Matched> {
    let own = request.cx.requested;
    if rules.iter().any(|rule| by_rule(request, rule, own)) {
        return Some(Matched::Requested);
    }
    let rows = equivalent.then(|| request.cx.api.table.rows());
    let part = request.cx.subresource;
    let others: Vec<&Arc<ResourceType>> = rows
        .iter()
        .flat_map(|rows| &rows.all)
        .filter(|row| {
            row.resource_prefix == own.resource_prefix && row.api_version != own.api_version
        })
        .filter(|row| part.is_empty() || row.subresource(part).is_some())
        .collect();
    let pairs = rules.iter().flat_map(|rule| others.iter().map(move |row| (rule, *row)));
    let mut matched = pairs.filter(|(rule, row)| by_rule(request, rule, row));
    matched.next().map(|(_, row)| Matched::Equivalent(row.clone()))
}

/// Returns whether a rule matches a request for `resource`.
///
/// Upstream: `Matcher.Matches` of `webhook/predicates/rules`.
fn by_rule(request: &Attributes<'_>, rule: &Value, resource: &ResourceType) -> bool {
    let names = list(rule, "resourceNames");
    let scope = match text(rule, "scope") {
        "Cluster" => !resource.namespaced,
        "Namespaced" => resource.namespaced,
        _ => true,
    };
    let operations = list(rule, "operations");
    among(list(rule, "apiGroups"), resource.group())
        && among(list(rule, "apiVersions"), resource.version())
        && scope
        && among(operations, request.operation.as_str())
        && (names.is_empty() || names.iter().any(|name| name == request.cx.name))
        && list(rule, "resources")
            .iter()
            .filter_map(Value::as_str)
            .any(|wanted| by_resource(wanted, resource.plural(), request.cx.subresource))
}

/// Matches a rule's resource: `pods`, `pods/status`, `pods/*`, `*/scale`, `*` or `*/*`.
fn by_resource(wanted: &str, own: &str, own_part: &str) -> bool {
    let (plural, part) = wanted.split_once('/').unwrap_or((wanted, ""));
    (plural == "*" || plural == own) && (part == own_part || part == "*")
}

fn by_namespace(request: &Attributes<'_>, constraints: &Value) -> bool {
    let Some(selector) = get(constraints, "namespaceSelector") else { return true };
    if object(selector, "matchLabels").is_none_or(serde_json::Map::is_empty)
        && list(selector, "matchExpressions").is_empty()
    {
        return true;
    }
    let cx = request.cx;
    if &*cx.resource.resource_prefix == "/namespaces" {
        let own = if request.operation == Operation::Delete { request.old } else { request.object };
        return selects(Some(selector), object(own, "metadata.labels"));
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

fn by_object(request: &Attributes<'_>, constraints: &Value) -> bool {
    let Some(selector) = get(constraints, "objectSelector") else { return true };
    let one = |value: &Value| {
        value.is_object() && selects(Some(selector), object(value, "metadata.labels"))
    };
    let everything = object(selector, "matchLabels").is_none_or(serde_json::Map::is_empty)
        && list(selector, "matchExpressions").is_empty();
    everything || one(request.object) || one(request.old)
}
