//! Validation of rbac.authorization.k8s.io.

use super::{labels, names};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "Role" | "ClusterRole" => role(kind, new, errors),
        "RoleBinding" | "ClusterRoleBinding" => {
            role_binding(kind, new, errors);
            required_names(new, errors);
        }
        _ => {}
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if !matches!(kind, "RoleBinding" | "ClusterRoleBinding") {
        return create(kind, new, errors);
    }
    role_binding(kind, new, errors);
    let (after, before) = (new.get("roleRef"), old.get("roleRef"));
    let quoted = |reference: Option<&Value>| quoted("rbac.RoleRef", reference);
    errors.immutable_as(&Path::new("roleRef"), after, before, quoted);
    required_names(new, errors);
}

/// Validates the rules of a role, and the selectors of a ClusterRole's aggregation rule.
///
/// Upstream: `ValidateRole`, `ValidateClusterRole`.
fn role(kind: &str, new: &Value, errors: &mut Errors) {
    let rules_path = Path::new("rules");
    for (index, rule) in list(new, "rules").iter().enumerate() {
        policy_rule(rule, kind == "Role", &rules_path.index(index), errors);
    }
    if kind == "ClusterRole" && get(new, "aggregationRule").is_some() {
        let path = Path::new("aggregationRule");
        let selectors = path.field("clusterRoleSelectors");
        if list(new, "aggregationRule.clusterRoleSelectors").is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.required(&selectors, detail);
        }
        for (index, selector) in
            list(new, "aggregationRule.clusterRoleSelectors").iter().enumerate()
        {
            let path = selectors.index(index);
            let mut invalid = Errors::default();
            labels::selector(selector, &path, &mut invalid);
            if !invalid.is_empty() {
                invalid.invalid(&path, Value::Null, "invalid label selector.");
            }
            errors.extend(invalid);
        }
    }
    for (index, rule) in list(new, "rules").iter().enumerate() {
        if list(rule, "verbs").is_empty() {
            errors.required(&rules_path.index(index).field("verbs"), "");
        }
    }
}

/// Validates a rule except its verbs. Upstream's declarative validation reports missing verbs after all other
/// errors.
///
/// Upstream: `ValidatePolicyRule`.
fn policy_rule(rule: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let urls = list(rule, "nonResourceURLs");
    if !urls.is_empty() {
        let path = path.field("nonResourceURLs");
        if namespaced {
            errors.invalid(
                &path,
                Value::from(urls),
                "namespaced rules cannot apply to non-resource URLs",
            );
        }
        if ["apiGroups", "resources", "resourceNames"]
            .iter()
            .any(|field| !list(rule, field).is_empty())
        {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(&path, Value::from(urls), detail);
        }
        return;
    }
    if list(rule, "apiGroups").is_empty() {
        errors.required(
            &path.field("apiGroups"),
            "resource rules must supply at least one api group",
        );
    }
    if list(rule, "resources").is_empty() {
        errors
            .required(&path.field("resources"), "resource rules must supply at least one resource");
    }
}

/// Validates the reference to the role, and each subject.
///
/// Upstream: `ValidateRoleBinding`, `ValidateClusterRoleBinding`.
fn role_binding(kind: &str, new: &Value, errors: &mut Errors) {
    let path = Path::new("roleRef");
    let group = "rbac.authorization.k8s.io";
    if text(new, "roleRef.apiGroup") != group {
        errors.not_supported(&path.field("apiGroup"), text(new, "roleRef.apiGroup"), &[group]);
    }
    let kinds: &[&str] =
        if kind == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    errors.one_of(&path.field("kind"), text(new, "roleRef.kind"), kinds);
    // Declarative validation requires the name, after all other errors.
    if !text(new, "roleRef.name").is_empty() {
        errors.required_valid(&path.field("name"), text(new, "roleRef.name"), names::path_segment);
    }
    let subjects_path = Path::new("subjects");
    for (index, subject) in list(new, "subjects").iter().enumerate() {
        role_subject(kind, subject, &subjects_path.index(index), errors);
    }
}

/// Requires names of subjects and of the role. Upstream's declarative validation reports missing names after all other errors.
fn required_names(new: &Value, errors: &mut Errors) {
    let subjects_path = Path::new("subjects");
    for (index, subject) in list(new, "subjects").iter().enumerate() {
        if text(subject, "name").is_empty() {
            errors.required(&subjects_path.index(index).field("name"), "");
        }
    }
    if text(new, "roleRef.name").is_empty() {
        errors.required(&Path::new("roleRef").field("name"), "");
    }
}

/// Validates a subject by its kind. A service account in a ClusterRoleBinding needs a namespace.
///
/// Upstream: `ValidateRoleBindingSubject`.
fn role_subject(kind: &str, subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(subject, "name");
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_for_each(&path.field("name"), name, &names::dns_subdomain(name));
            }
            if !group.is_empty() {
                errors.not_supported(&path.field("apiGroup"), group, &[""]);
            }
            if kind == "ClusterRoleBinding" && text(subject, "namespace").is_empty() {
                errors.required(&path.field("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != "rbac.authorization.k8s.io" {
                errors.not_supported(
                    &path.field("apiGroup"),
                    group,
                    &["rbac.authorization.k8s.io"],
                );
            }
        }
        other => {
            errors.not_supported(&path.field("kind"), other, &["ServiceAccount", "User", "Group"]);
        }
    }
}
