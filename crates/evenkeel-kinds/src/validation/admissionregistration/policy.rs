//! Validation of admission policies.

use super::{
    FAILURE_POLICIES, REINVOCATION_POLICIES, dns_1035_label, dns_subdomain, get, is_changed, list,
    match_conditions, match_resources, mutating_operations, names, optional, text,
};
use evenkeel_apimachinery::validation::{Errors, Path};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of audit annotations of a policy.
const MAX_AUDIT_ANNOTATIONS: usize = 20;
/// Maximum length in bytes of an audit annotation's value expression.
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;
/// Valid reasons of a validation.
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// Words that CEL reserves, so that they cannot be identifiers.
const CEL_RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Validates a ValidatingAdmissionPolicy, except its expressions.
///
/// Upstream: `validateValidatingAdmissionPolicySpec`.
pub(super) fn validating(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let may_mutate = false;
    common(new, old, may_mutate, errors);
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.required(&path.field(field), detail);
        }
        return;
    }
    let validations_path = path.field("validations");
    for (index, validation) in validations.iter().enumerate() {
        self::validation(validation, &validations_path.index(index), errors);
    }
    let audit_annotations_path = path.field("auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS && !errors.is_full() {
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.invalid(&audit_annotations_path, annotations.to_vec(), &detail);
    }
    let mut keys = BTreeSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let path = audit_annotations_path.index(index);
        audit_annotation(text(new, "metadata.name"), annotation, &path, errors);
        let key = text(annotation, "key");
        if !keys.insert(key) {
            errors.duplicate(&path.field("key"), key);
        }
    }
}

/// Validates a MutatingAdmissionPolicy, except its expressions.
///
/// Upstream: `validateMutatingAdmissionPolicySpec`.
pub(super) fn mutating(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let may_mutate = true;
    common(new, old, may_mutate, errors);
    let mutations = list(spec, "mutations");
    let mutations_path = path.field("mutations");
    if mutations.is_empty() {
        errors.required(&mutations_path, "mutations must contain at least one item");
    }
    for (index, mutation) in mutations.iter().enumerate() {
        self::mutation(mutation, &mutations_path.index(index), errors);
    }
    let policy = text(spec, "reinvocationPolicy");
    errors.required_one_of(&path.field("reinvocationPolicy"), policy, &REINVOCATION_POLICIES);
}

/// Validates the fields that both kinds of policies share.
fn common(new: &Value, old: Option<&Value>, may_mutate: bool, errors: &mut Errors) {
    let path = Path::new("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    match get(spec, "failurePolicy") {
        None => errors.required(&path.field("failurePolicy"), ""),
        Some(_) => optional(spec, "failurePolicy", &FAILURE_POLICIES, &path, errors),
    }
    if let Some(kind) = get(spec, "paramKind") {
        param_kind(kind, &path.field("paramKind"), errors);
    }
    let constraints = path.field("matchConstraints");
    match get(spec, "matchConstraints") {
        None => errors.required(&constraints, ""),
        Some(resources) => {
            match_resources(resources, &constraints, errors);
            let rules = constraints.field("resourceRules");
            if list(resources, "resourceRules").is_empty() {
                errors.required(&rules, "");
            }
            if may_mutate {
                mutating_operations(resources, &rules.field("operations"), errors);
            }
        }
    }
    if is_changed(new, old, "spec.paramKind") || is_changed(new, old, "spec.matchConditions") {
        let field_path = path.field("matchConditions");
        match_conditions(list(spec, "matchConditions"), &field_path, errors);
    }
    let variables_path = path.field("variables");
    for (index, variable) in list(spec, "variables").iter().enumerate() {
        self::variable(variable, &variables_path.index(index), errors);
    }
}

/// Validates API version and kind of a policy's parameters.
///
/// Upstream: `validateParamKind`.
fn param_kind(param: &Value, path: &Path<'_>, errors: &mut Errors) {
    let field_path = path.field("apiVersion");
    let api_version = text(param, "apiVersion");
    let (group, version) = match api_version.matches('/').count() {
        0 => ("", api_version),
        _ => api_version.split_once('/').unwrap_or_default(),
    };
    if api_version.is_empty() {
        errors.required(&field_path, "");
    } else if version.contains('/') {
        let detail = format!("unexpected GroupVersion string: {api_version}");
        errors.invalid(&field_path, api_version, &detail);
    } else {
        let messages = dns_subdomain(group);
        if !group.is_empty() && !messages.is_empty() {
            errors.invalid(&field_path, group, &messages.join(","));
        }
        let messages = dns_1035_label(version);
        if version.is_empty() {
            errors.invalid(&field_path, api_version, "version must be specified");
        } else if !messages.is_empty() {
            errors.invalid(&field_path, version, &messages.join(","));
        }
    }
    let kind = text(param, "kind");
    let messages = dns_1035_label(&kind.to_lowercase());
    if kind.is_empty() {
        errors.required(&path.field("kind"), "");
    } else if !messages.is_empty() {
        let detail =
            format!("may have mixed case, but should otherwise match: {}", messages.join(","));
        errors.invalid(&path.field("kind"), kind, &detail);
    }
}

/// Requires a CEL identifier as the name, and an expression.
///
/// Upstream: `validateVariable`.
fn variable(variable: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(variable, "name");
    if name.trim().is_empty() {
        errors.required(&path.field("name"), "name is not specified");
    } else if !is_cel_identifier(name) {
        errors.invalid(&path.field("name"), name, "must be a valid CEL identifier");
    }
    if text(variable, "expression").trim().is_empty() {
        errors.required(&path.field("expression"), "expression is not specified");
    }
}

/// Returns whether a name is a CEL identifier that is not reserved.
///
/// Upstream: `isCELIdentifier`.
fn is_cel_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !CEL_RESERVED.contains(&name)
}

/// Validates a validation: expression, messages and reason. A message must be one line.
///
/// Upstream: `validateValidation`.
fn validation(validation: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(validation, "expression").trim().is_empty() {
        errors.required(&path.field("expression"), "expression is not specified");
    }
    let value = |field: &str| text(validation, field);
    let is_blank = |field: &str| !value(field).is_empty() && value(field).trim().is_empty();
    if is_blank("messageExpression") {
        let field_path = path.field("messageExpression");
        errors.invalid(&field_path, value("messageExpression"), "must be non-empty if specified");
    }
    if is_blank("message") {
        errors.invalid(&path.field("message"), value("message"), "must be non-empty if specified");
    } else if value("message").trim().contains(['\n', '\r']) {
        errors.invalid(&path.field("message"), value("message"), "must not contain line breaks");
    }
    optional(validation, "reason", &REASONS, path, errors);
}

/// Validates the key and the length of the value expression of an audit annotation.
///
/// Upstream: `validateAuditAnnotation`.
fn audit_annotation(policy: &str, annotation: &Value, path: &Path<'_>, errors: &mut Errors) {
    let key = text(annotation, "key");
    if policy.is_empty() {
        errors.invalid(&path.field("key"), key, "requires metadata.name be non-empty");
    } else {
        let name = format!("{policy}/{key}");
        errors.invalid_for_each(&path.field("key"), &name, &names::qualified_name(&name));
    }
    let field_path = path.field("valueExpression");
    match text(annotation, "valueExpression").trim().len() {
        0 => errors.required(&field_path, "valueExpression is not specified"),
        1..=MAX_VALUE_EXPRESSION => {}
        _ => {
            let detail = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
            errors.required(&field_path, &detail);
        }
    }
}

/// Validates a mutation. Exactly the field of its patch type must be set.
///
/// Upstream: `validateMutation`.
fn mutation(mutation: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(mutation, "patchType");
    let (required_field, other_field) = match kind {
        "" => return errors.required(&path.field("patchType"), ""),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        _ => {
            let supported = ["ApplyConfiguration", "JSONPatch"];
            return errors.not_supported(&path.field("patchType"), kind, &supported);
        }
    };
    let field_path = path.field(required_field);
    match get(mutation, required_field) {
        None => {
            errors.required(&field_path, &format!("must be specified when patchType is {kind}"));
        }
        Some(patch) if text(patch, "expression").trim().is_empty() => {
            errors.required(&field_path.field("expression"), "");
        }
        Some(_) => {}
    }
    if get(mutation, other_field).is_some() {
        let detail = format!("must not be specified when patchType is {kind}");
        errors.invalid(&path.field(other_field), format!("{{{other_field}}}"), &detail);
    }
}
