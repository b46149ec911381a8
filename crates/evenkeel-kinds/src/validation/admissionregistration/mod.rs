//! Validation of admissionregistration.k8s.io. This file has the rules that webhooks and policies share. Each kind
//! has its own file. The API server compiles the expressions.

mod binding;
mod client;
mod policy;
mod status;
mod webhook;

use super::{dns_1035_label, dns_subdomain, labels, names, path_segment};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, same, text};
use serde_json::Value;
use std::collections::BTreeSet;

const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
/// Operations whose object a policy may mutate.
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
/// Suffix of the names of objects that are loaded from files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    validate(kind, new, None, errors);
    let name = text(new, "metadata.name");
    if name.ends_with(STATIC_SUFFIX) {
        let detail = format!(
            "names ending with {STATIC_SUFFIX:?} are reserved for static manifest-based configurations and cannot be \
             managed via the API"
        );
        errors.invalid(&Path::new("metadata.name"), name, &detail);
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    validate(kind, new, Some(old), errors);
}

pub(super) fn update_status(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "ValidatingAdmissionPolicy" {
        status::validating_admission_policy(new, errors);
    }
}

fn validate(kind: &str, new: &Value, old: Option<&Value>, errors: &mut Errors) {
    match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            webhook::configuration(new, old, errors);
        }
        "ValidatingAdmissionPolicy" => policy::validating(new, old, errors),
        "MutatingAdmissionPolicy" => policy::mutating(new, old, errors),
        "ValidatingAdmissionPolicyBinding" => binding::validating(new, old, errors),
        "MutatingAdmissionPolicyBinding" => binding::mutating(new, errors),
        _ => {}
    }
}

/// Returns the strings of the list in `field`.
fn items(value: &Value, field: &str) -> Vec<String> {
    list(value, field).iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

/// Validates an optional enumeration, which may be absent but not empty.
fn optional(value: &Value, field: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if get(value, field).is_some() {
        errors.one_of(&path.field(field), text(value, field), supported);
    }
}

/// Rejects a wildcard in a list with other items.
fn lone_wildcard(items: &[String], noun: &str, path: &Path<'_>, errors: &mut Errors) {
    if items.len() > 1 && items.iter().any(|item| item == "*") && !errors.is_full() {
        let detail = format!("if '*' is present, must not specify other {noun}");
        errors.invalid(path, items.to_vec(), &detail);
    }
}

/// Validates the operations of a rule, and its API groups, versions and resources.
///
/// Upstream: `validateRuleWithOperations`.
fn rule_with_operations(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let operations = items(rule, "operations");
    let field_path = path.field("operations");
    if operations.is_empty() {
        errors.required(&field_path, "");
    }
    lone_wildcard(&operations, "operations", &field_path, errors);
    for (index, operation) in operations.iter().enumerate() {
        errors.one_of(&field_path.index(index), operation, &OPERATIONS);
    }
    self::rule(rule, path, errors);
}

/// Validates API groups, versions, resources and scope of a rule. A wildcard must be the only entry.
///
/// Upstream: `validateRule`.
fn rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let groups = items(rule, "apiGroups");
    if groups.is_empty() {
        errors.required(&path.field("apiGroups"), "");
    }
    lone_wildcard(&groups, "API groups", &path.field("apiGroups"), errors);
    let versions = items(rule, "apiVersions");
    let field_path = path.field("apiVersions");
    if versions.is_empty() {
        errors.required(&field_path, "");
    }
    lone_wildcard(&versions, "API versions", &field_path, errors);
    for (index, _) in versions.iter().enumerate().filter(|(_, version)| version.is_empty()) {
        errors.required(&field_path.index(index), "");
    }
    resources(&items(rule, "resources"), &path.field("resources"), errors);
    optional(rule, "scope", &SCOPES, path, errors);
}

/// Rejects empty entries, and entries that a wildcard in the same list also covers.
///
/// Upstream: `validateResources`.
fn resources(resources: &[String], path: &Path<'_>, errors: &mut Errors) {
    if resources.is_empty() {
        errors.required(path, "");
    }
    // Resources with all their subresources, such as `pods` for `pods/*`.
    let mut with_all_subresources = BTreeSet::new();
    // Subresources of all resources, such as `status` for `*/status`.
    let mut of_all_resources = BTreeSet::new();
    // Whether the last entry without a subresource names a resource. As in upstream, earlier such entries do not count.
    let mut last_is_named = false;
    for (index, name) in resources.iter().enumerate() {
        let path = path.index(index);
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let Some((resource, subresource)) = name.split_once('/') else {
            last_is_named = name != "*";
            continue;
        };
        if with_all_subresources.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {name}");
            errors.invalid(&path, name.as_str(), &detail);
        }
        if of_all_resources.contains(subresource) {
            let detail = format!("if '*/{subresource}' is present, must not specify {name}");
            errors.invalid(&path, name.as_str(), &detail);
        }
        if subresource == "*" {
            with_all_subresources.insert(resource);
        }
        if resource == "*" {
            of_all_resources.insert(subresource);
        }
    }
    let has = |entry: &str| resources.iter().any(|name| name == entry);
    if resources.len() > 1 && has("*/*") && !errors.is_full() {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.invalid(path, resources.to_vec(), detail);
    }
    if has("*") && last_is_named && !errors.is_full() {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, resources.to_vec(), detail);
    }
}

/// Validates match conditions, except their expressions.
///
/// Upstream: `validateMatchConditions`.
fn match_conditions(conditions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        if text(condition, "expression").trim().is_empty() {
            errors.required(&path.field("expression"), "");
        }
        let name = text(condition, "name");
        errors.required_valid(&path.field("name"), name, names::qualified_name);
        if !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
    }
}

/// Validates the match policy, the selectors, and the included and excluded rules of a policy.
///
/// Upstream: `validateMatchResources`.
fn match_resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    match get(resources, "matchPolicy") {
        None => errors.required(&path.field("matchPolicy"), ""),
        Some(_) => optional(resources, "matchPolicy", &MATCH_POLICIES, path, errors),
    }
    for name in ["namespaceSelector", "objectSelector"] {
        match get(resources, name) {
            None => errors.required(&path.field(name), ""),
            Some(selector) => labels::selector(selector, &path.field(name), errors),
        }
    }
    for name in ["resourceRules", "excludeResourceRules"] {
        let list_path = path.field(name);
        for (index, rule) in list(resources, name).iter().enumerate() {
            named_rule_with_operations(rule, &list_path.index(index), errors);
        }
    }
}

/// Validates a rule, and its resource names, which must be unique.
///
/// Upstream: `validateNamedRuleWithOperations`.
fn named_rule_with_operations(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    let resource_names_path = path.field("resourceNames");
    for (index, name) in items(rule, "resourceNames").into_iter().enumerate() {
        errors.invalid_for_each(&resource_names_path.index(index), &name, &path_segment(&name));
        if seen.contains(&name) {
            errors.duplicate(&resource_names_path.index(index), name.as_str());
        }
        seen.insert(name);
    }
    rule_with_operations(rule, path, errors);
}

/// Rejects rules with operations whose object cannot be mutated. `path` is the path of the operations, without
/// indexes.
fn mutating_operations(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    for rule in list(resources, "resourceRules") {
        for operation in items(rule, "operations") {
            errors.one_of(path, &operation, &MUTATING_OPERATIONS);
        }
    }
}

/// Returns whether `field` differs from the old object. Without an old object, returns true.
fn is_changed(new: &Value, old: Option<&Value>, field: &str) -> bool {
    old.is_none_or(|old| !same(get(new, field), get(old, field)))
}

#[cfg(test)]
mod tests;
