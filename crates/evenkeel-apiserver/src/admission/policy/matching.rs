//! Which requests a policy (or a webhook) is for (upstream: `admission/plugin/policy/matching`).

use serde_json::Value;

use crate::admission::attributes::{Attributes, Operation};
use evenkeel_apimachinery::validation::labels::selects;
use evenkeel_apimachinery::value::{get, list, object, text};

/// Whether a request is within `constraints`: rules, exclusions and selectors.
pub(super) fn matches(request: &Attributes<'_>, constraints: &Value) -> bool {
    let rules = list(constraints, "resourceRules");
    let equivalent = text(constraints, "matchPolicy") != "Exact";
    (rules.is_empty() || rules.iter().any(|rule| by_rule(request, rule, equivalent)))
        && !list(constraints, "excludeResourceRules")
            .iter()
            .any(|rule| by_rule(request, rule, equivalent))
        && by_namespace(request, constraints)
        && by_object(request, constraints)
}

/// Whether a binding is for a request.
pub(super) fn is_bound(request: &Attributes<'_>, binding: &Value) -> bool {
    get(binding, "spec.matchResources").is_none_or(|resources| matches(request, resources))
}

fn among(all: &[Value], value: &str) -> bool {
    all.iter().any(|one| one == "*" || one == value)
}

fn by_rule(request: &Attributes<'_>, rule: &Value, equivalent: bool) -> bool {
    let cx = request.cx;
    let rows = cx.api.table.rows();
    let versions = list(rule, "apiVersions");
    let version = among(versions, cx.resource.version())
        || equivalent
            && rows.all.iter().any(|r| {
                r.resource_prefix == cx.resource.resource_prefix && among(versions, r.version())
            });
    let names = list(rule, "resourceNames");
    let scope = match text(rule, "scope") {
        "Cluster" => !cx.resource.namespaced,
        "Namespaced" => cx.resource.namespaced,
        _ => true,
    };
    let operations = list(rule, "operations");
    among(list(rule, "apiGroups"), cx.resource.group())
        && version
        && scope
        && among(operations, request.operation.as_str())
        && (names.is_empty() || names.iter().any(|name| name == cx.name))
        && list(rule, "resources").iter().filter_map(Value::as_str).any(|r| by_resource(request, r))
}

/// `pods`, `pods/status`, `pods/*`, `*/scale`, `*`, `*/*`.
fn by_resource(request: &Attributes<'_>, wanted: &str) -> bool {
    let (plural, part) = wanted.split_once('/').unwrap_or((wanted, ""));
    let (own, own_part) = (request.cx.resource.plural(), request.cx.subresource);
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

/// The namespace that the request is in; null outside of namespaces.
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
