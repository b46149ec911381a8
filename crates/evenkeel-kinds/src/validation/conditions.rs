//! Validation of conditions in the status of objects.

use super::names;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum length of a condition's reason in bytes.
const MAX_REASON: usize = 1024;
/// Maximum length of a condition's message in bytes.
const MAX_MESSAGE: usize = 32 * 1024;

/// Validates conditions: at most one per type, each with a status, a reason and a time.
///
/// Upstream: `ValidateConditions`.
pub(super) fn conditions(conditions: &[Value], path: &Path<'_>, errors: &mut Errors) {
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

/// Validates the fields of one condition.
///
/// Upstream: `ValidateCondition`.
fn condition(condition: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(condition, "type") {
        "" => errors.required(&path.field("type"), "is required"),
        kind => errors.invalid_for_each(&path.field("type"), kind, &names::qualified_name(kind)),
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
    let reason_path = path.field("reason");
    if reason.is_empty() {
        errors.required(&reason_path, "");
    } else if !is_condition_reason(reason) {
        let detail = "a condition reason must start with alphabetic character, optionally followed by a string of \
                      alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                      'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used \
                      for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
        errors.invalid(&reason_path, reason, detail);
    }
    if reason.len() > MAX_REASON {
        errors.too_long(&reason_path, MAX_REASON);
    }
    if text(condition, "message").len() > MAX_MESSAGE {
        errors.too_long(&path.field("message"), MAX_MESSAGE);
    }
}

/// Returns whether a string is a reason in upstream's form: a letter, then letters, digits, `_`, `,` and `:`. It must
/// not end with `,` or `:`.
///
/// Upstream: `IsValidConditionReason`.
fn is_condition_reason(reason: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = reason.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|byte| is_word(*byte))
        && bytes.iter().all(|byte| is_word(*byte) || matches!(byte, b',' | b':'))
}
