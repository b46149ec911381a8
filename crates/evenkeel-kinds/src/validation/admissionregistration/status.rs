//! Validation of the status of a ValidatingAdmissionPolicy.

use super::super::conditions::conditions;
use super::{list, text};
use evenkeel_apimachinery::validation::{Errors, Path};
use serde_json::Value;

/// Validates type checking warnings and conditions.
///
/// Upstream: `validateValidatingAdmissionPolicyStatus`.
pub(super) fn validating_admission_policy(new: &Value, errors: &mut Errors) {
    let expression_warnings_path = Path::new("status.typeChecking.expressionWarnings");
    for (index, warning) in list(new, "status.typeChecking.expressionWarnings").iter().enumerate() {
        let path = expression_warnings_path.index(index);
        if text(warning, "warning").is_empty() {
            errors.required(&path.field("warning"), "");
        }
        field_ref(text(warning, "fieldRef").trim(), &path.field("fieldRef"), errors);
    }
    conditions(list(new, "status.conditions"), &Path::new("status.conditions"), errors);
}

/// Validates the first element of a JSONPath. Upstream's parser rejects few errors in later elements, which this
/// function ignores.
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
