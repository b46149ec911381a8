//! Validation of the bindings of admission policies.

use super::{
    dns_subdomain, get, items, labels, match_resources, mutating_operations, path_segment, same,
    text,
};
use evenkeel_apimachinery::validation::{Errors, Path};
use serde_json::Value;
use std::collections::BTreeSet;

const VALIDATION_ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const NOT_FOUND_ACTIONS: [&str; 2] = ["Deny", "Allow"];

/// Validates the binding of a ValidatingAdmissionPolicy. An update may keep a missing name or missing actions.
///
/// Upstream: `validateValidatingAdmissionPolicyBindingSpec`, `Validate_ValidatingAdmissionPolicyBindingSpec`.
pub(super) fn validating(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    policy_name(new, errors);
    references(new, errors);
    validation_actions(&items(new, "spec.validationActions"), errors);
    for field in ["policyName", "validationActions"] {
        let field_path = format!("spec.{field}");
        let is_missing = evenkeel_apimachinery::value::is_empty(new, &field_path);
        if is_missing && !old.is_some_and(|old| same(get(new, &field_path), get(old, &field_path)))
        {
            errors.required(&path.field(field), "");
        }
    }
}

/// Validates the binding of a MutatingAdmissionPolicy.
///
/// Upstream: `validateMutatingAdmissionPolicyBindingSpec`.
pub(super) fn mutating(new: &Value, errors: &mut Errors) {
    if text(new, "spec.policyName").is_empty() {
        errors.required(&Path::new("spec.policyName"), "");
    }
    policy_name(new, errors);
    references(new, errors);
    if let Some(resources) = get(new, "spec.matchResources") {
        let path = Path::new("spec.matchResources.resourceRules.operations");
        mutating_operations(resources, &path, errors);
    }
}

fn policy_name(new: &Value, errors: &mut Errors) {
    let name = text(new, "spec.policyName");
    if !name.is_empty() {
        errors.invalid_for_each(&Path::new("spec.policyName"), name, &dns_subdomain(name));
    }
}

fn references(new: &Value, errors: &mut Errors) {
    if let Some(reference) = get(new, "spec.paramRef") {
        param_ref(reference, &Path::new("spec.paramRef"), errors);
    }
    if let Some(resources) = get(new, "spec.matchResources") {
        match_resources(resources, &Path::new("spec.matchResources"), errors);
    }
}

/// Validates a reference to parameters. Exactly one of name and selector must be set.
///
/// Upstream: `validateParamRef`.
fn param_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(reference, "name");
    let selector = get(reference, "selector");
    let exclusive = "name and selector are mutually exclusive";
    errors.invalid_for_each(&path.field("name"), name, &path_segment(name));
    if !name.is_empty() && selector.is_some() {
        errors.forbidden(&path.field("name"), exclusive);
    }
    if let Some(selector) = selector {
        labels::selector(selector, &path.field("selector"), errors);
        if !name.is_empty() {
            errors.forbidden(&path.field("selector"), exclusive);
        }
    } else if name.is_empty() {
        errors.required(path, "one of name or selector must be specified");
    }
    let field_path = path.field("parameterNotFoundAction");
    let action = text(reference, "parameterNotFoundAction");
    errors.required_one_of(&field_path, action, &NOT_FOUND_ACTIONS);
}

/// Rejects unknown and duplicate actions, and `Deny` together with `Warn`.
///
/// Upstream: `validateValidationActions`.
fn validation_actions(actions: &[String], errors: &mut Errors) {
    let path = Path::new("spec.validationActions");
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        errors.one_of(&path.index(index), action, &VALIDATION_ACTIONS);
        if !seen.insert(action.as_str()) {
            errors.duplicate(&path.index(index), action.as_str());
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") && !errors.is_full() {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.invalid(&path, actions.to_vec(), detail);
    }
}
