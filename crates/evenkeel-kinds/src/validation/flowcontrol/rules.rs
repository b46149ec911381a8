//! Validation of the rules of a FlowSchema: their subjects and the requests that they match.

use super::{flag, list, text};
use crate::validation::{dns_label, dns_subdomain};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::get;
use serde_json::Value;

const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// Validates one rule of a FlowSchema: its subjects and the requests that it matches.
///
/// Upstream: `ValidateFlowSchemaPolicyRulesWithSubjects`.
pub(super) fn policy_rules_with_subjects(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let subjects = list(rule, "subjects");
    let subjects_path = path.field("subjects");
    if subjects.is_empty() {
        errors.required(&subjects_path, "subjects must contain at least one value");
    }
    for (index, subject) in subjects.iter().enumerate() {
        self::subject(subject, &subjects_path.index(index), errors);
    }
    let resource_rules = list(rule, "resourceRules");
    let non_resource_rules = list(rule, "nonResourceRules");
    if resource_rules.is_empty() && non_resource_rules.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.required(path, detail);
    }
    let resource_rules_path = path.field("resourceRules");
    for (index, rule) in resource_rules.iter().enumerate() {
        resource_policy_rule(rule, &resource_rules_path.index(index), errors);
    }
    let non_resource_rules_path = path.field("nonResourceRules");
    for (index, rule) in non_resource_rules.iter().enumerate() {
        non_resource_policy_rule(rule, &non_resource_rules_path.index(index), errors);
    }
}

/// Requires exactly the field that belongs to the kind of the subject.
///
/// Upstream: `ValidateFlowSchemaSubject`.
fn subject(subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kinds = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let subject_kind = text(subject, "kind");
    let Some((_, field)) = kinds.iter().find(|(kind, _)| *kind == subject_kind) else {
        errors.not_supported(
            &path.field("kind"),
            subject_kind,
            &["Group", "ServiceAccount", "User"],
        );
        return;
    };
    let field_path = path.field(field);
    match get(subject, field) {
        None => {
            let detail = format!("{field} is required when subject kind is '{subject_kind}'");
            errors.required(&field_path, &detail);
        }
        Some(account) if subject_kind == "ServiceAccount" => {
            service_account(account, &field_path, errors);
        }
        Some(named) if text(named, "name").is_empty() => {
            errors.required(&field_path.field("name"), "");
        }
        Some(_) => {}
    }
    for (kind, field) in kinds.iter().filter(|(kind, _)| *kind != subject_kind) {
        if get(subject, field).is_some() {
            let detail = format!("{field} is forbidden when subject kind is not '{kind}'");
            errors.forbidden(&path.field(field), &detail);
        }
    }
}

/// Validates name and namespace of a service account; `*` stands for all names.
///
/// Upstream: `ValidateServiceAccountSubject`.
fn service_account(account: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(account, "name") {
        "" => errors.required(&path.field("name"), ""),
        "*" => {}
        name => errors.invalid_for_each(&path.field("name"), name, &dns_subdomain(name)),
    }
    match text(account, "namespace") {
        "" => {
            let detail = "must specify namespace for service account";
            errors.required(&path.field("namespace"), detail);
        }
        name => errors.invalid_for_each(&path.field("namespace"), name, &dns_label(name)),
    }
}

fn has_wildcard(items: &[Value]) -> bool {
    items.iter().any(|item| item == "*")
}

/// Rejects a wildcard in a list with other items.
fn lone_wildcard(items: &[Value], noun: &str, path: &Path<'_>, errors: &mut Errors) {
    if items.len() > 1 && has_wildcard(items) && !errors.is_full() {
        let detail = format!("if '*' is present, must not specify other {noun}");
        errors.invalid(path, items.to_vec(), &detail);
    }
}

fn verbs(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let verbs = list(rule, "verbs");
    let path = path.field("verbs");
    if verbs.is_empty() {
        errors.required(&path, "verbs must contain at least one value");
    } else if has_wildcard(verbs) {
        lone_wildcard(verbs, "verbs", &path, errors);
    } else if !verbs.iter().all(|verb| VERBS.contains(&verb.as_str().unwrap_or_default()))
        && !errors.is_full()
    {
        errors.not_supported(&path, verbs.to_vec(), &VERBS);
    }
}

/// Validates verbs and URLs of a rule for non-resource requests.
///
/// Upstream: `ValidateFlowSchemaNonResourcePolicyRule`.
fn non_resource_policy_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    verbs(rule, path, errors);
    let urls = list(rule, "nonResourceURLs");
    let path = path.field("nonResourceURLs");
    if urls.is_empty() {
        errors.required(&path, "nonResourceURLs must contain at least one value");
    } else if has_wildcard(urls) {
        lone_wildcard(urls, "non-resource URLs", &path, errors);
    } else {
        for (index, url) in urls.iter().enumerate() {
            let url = url.as_str().unwrap_or_default();
            if let Some(detail) = non_resource_url(url) {
                errors.invalid(&path.index(index), url, detail);
            }
        }
    }
}

/// Returns the error of a path, or `None` if it is valid. A path must begin with a slash and may end in `/*`.
///
/// Upstream: `ValidateNonResourceURLPath`.
fn non_resource_url(url: &str) -> Option<&'static str> {
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ => match url.matches('*').count() {
            0 => None,
            1 if url.ends_with("/*") => None,
            _ => Some("wildcard can only do suffix matching"),
        },
    }
}

/// Validates verbs, API groups, resources and namespaces of a rule. Without `clusterScope`, it needs a namespace.
///
/// Upstream: `ValidateFlowSchemaResourcePolicyRule`.
fn resource_policy_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    verbs(rule, path, errors);
    let (groups, resources) = (list(rule, "apiGroups"), list(rule, "resources"));
    if groups.is_empty() {
        let detail = "resource rules must supply at least one api group";
        errors.required(&path.field("apiGroups"), detail);
    }
    lone_wildcard(groups, "api groups", &path.field("apiGroups"), errors);
    if resources.is_empty() {
        let detail = "resource rules must supply at least one resource";
        errors.required(&path.field("resources"), detail);
    }
    lone_wildcard(resources, "resources", &path.field("resources"), errors);
    let namespaces = list(rule, "namespaces");
    let path = path.field("namespaces");
    if namespaces.is_empty() && !flag(rule, "clusterScope") {
        let detail =
            "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&path, detail);
    } else if has_wildcard(namespaces) {
        lone_wildcard(namespaces, "namespaces", &path, errors);
    } else {
        for (index, name) in namespaces.iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            for message in dns_label(name) {
                let detail =
                    format!("each member of this list must be '*' or a DNS-1123 label; {message}");
                errors.invalid(&path.index(index), name, &detail);
            }
        }
    }
}
