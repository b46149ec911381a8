//! Validation of the status of a ValidatingAdmissionPolicy.

use super::{int, list, names, text};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::get;
use serde_json::Value;
use std::collections::BTreeSet;

/// In bytes.
const MAX_REASON: usize = 1024;
/// In bytes.
const MAX_MESSAGE: usize = 32 * 1024;

/// Validates type checking warnings and conditions.
///
/// Upstream: `validateValidatingAdmissionPolicyStatus`.
pub(super) fn validating_admission_policy(new: &Value, errors: &mut Errors) {
    let all = Path::new("status.typeChecking.expressionWarnings");
    for (index, warning) in list(new, "status.typeChecking.expressionWarnings").iter().enumerate() {
        let path = all.index(index);
        if text(warning, "warning").is_empty() {
            errors.required(&path.field("warning"), "");
        }
        field_ref(text(warning, "fieldRef").trim(), &path.field("fieldRef"), errors);
    }
    conditions(list(new, "status.conditions"), &Path::new("status.conditions"), errors);
}

/// Validates a JSONPath by its first step: upstream leaves most of it to readers, too.
///
/// Upstream: `validateFieldRef`.
fn field_ref(path_text: &str, path: &Path<'_>, errors: &mut Errors) {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-');
    let why = match path_text.chars().next() {
        None => return errors.required(path, ""),
        Some(first) if is_number(first) => {
            let rest = &path_text[1..];
            let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
            let number = &path_text[..=end];
            match number.parse::<f64>() {
                Ok(_) => return,
                Err(_) => format!("cannot parse number {number}"),
            }
        }
        Some(first) if first.is_alphanumeric() || "_.@$['\"".contains(first) => return,
        Some(first) => {
            format!("unrecognized character in action: U+{:04X} '{first}'", u32::from(first))
        }
    };
    errors.invalid(path, path_text, &format!("invalid JSONPath: {why}"));
}

/// Upstream: `ValidateConditions`.
fn conditions(conditions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut types = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let kind = text(condition, "type");
        if !types.insert(kind) {
            errors.duplicate(&path, kind);
        }
        self::condition(condition, &path, errors);
    }
}

/// Upstream: `ValidateCondition`.
fn condition(condition: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(condition, "type") {
        "" => errors.required(&path.field("type"), "is required"),
        kind => errors.invalid_all(&path.field("type"), kind, &names::qualified_name(kind)),
    }
    match text(condition, "status") {
        "" => errors.required(&path.field("status"), ""),
        status => errors.one_of(&path.field("status"), status, &["False", "True", "Unknown"]),
    }
    if let Some(generation) = int(condition, "observedGeneration").filter(|number| *number < 0) {
        let detail = "must be greater than or equal to zero";
        errors.invalid(&path.field("observedGeneration"), generation, detail);
    }
    if get(condition, "lastTransitionTime").is_none() {
        errors.required(&path.field("lastTransitionTime"), "");
    }
    let reason = text(condition, "reason");
    let place = path.field("reason");
    if reason.is_empty() {
        errors.required(&place, "");
    } else if !is_condition_reason(reason) {
        let detail = "a condition reason must start with alphabetic character, optionally followed by a string of \
                      alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                      'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used \
                      for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
        errors.invalid(&place, reason, detail);
    }
    if reason.len() > MAX_REASON {
        errors.too_long(&place, MAX_REASON);
    }
    if text(condition, "message").len() > MAX_MESSAGE {
        errors.too_long(&path.field("message"), MAX_MESSAGE);
    }
}

/// Upstream: `IsValidConditionReason`.
fn is_condition_reason(reason: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = reason.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|byte| is_word(*byte))
        && bytes.iter().all(|byte| is_word(*byte) || matches!(byte, b',' | b':'))
}
