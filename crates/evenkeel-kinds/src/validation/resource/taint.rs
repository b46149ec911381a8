//! Validation of device taints and tolerations, and of DeviceTaintRules.

use super::super::conditions::conditions;
use super::{ErrorLists, names};
use evenkeel_apimachinery::validation::Path;
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;

const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const OPERATORS: [&str; 2] = ["Equal", "Exists"];
/// Maximum number of conditions in a rule's status.
const MAX_CONDITIONS: usize = 8;

/// Validates the selector and the taint of a rule.
///
/// Upstream: `ValidateDeviceTaintRule`, `ValidateDeviceTaintRuleUpdate`.
pub(super) fn device_taint_rule(rule: &Value, lists: &mut ErrorLists) {
    let path = Path::new("spec");
    if let Some(selector) = get(rule, "spec.deviceSelector") {
        let path = path.field("deviceSelector");
        let errors = &mut lists.handwritten;
        let name = |field: &str| get(selector, field).and_then(Value::as_str);
        if let Some(driver) = name("driver") {
            names::driver(driver, &path.field("driver"), errors);
        }
        if let Some(pool) = name("pool") {
            names::pool(pool, &path.field("pool"), errors);
        }
        if let Some(device) = name("device") {
            names::label(device, &path.field("device"), errors);
        }
    }
    let taint = get(rule, "spec.taint").unwrap_or(&Value::Null);
    device_taint(taint, &path.field("taint"), lists);
}

/// Validates the conditions in a rule's status.
///
/// Upstream: `ValidateDeviceTaintRuleStatusUpdate`.
pub(super) fn device_taint_rule_status(rule: &Value, lists: &mut ErrorLists) {
    let path = Path::new("status.conditions");
    let found = list(rule, "status.conditions");
    conditions(found, &path, &mut lists.handwritten);
    if found.len() > MAX_CONDITIONS {
        lists.handwritten.too_many(&path, found.len(), MAX_CONDITIONS);
    }
}

/// Validates key, value and effect of a taint.
///
/// Upstream: `validateDeviceTaint`.
pub(super) fn device_taint(taint: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    names::label_key(text(taint, "key"), &path.field("key"), &mut lists.handwritten);
    names::label_value(text(taint, "value"), &path.field("value"), &mut lists.handwritten);
    match text(taint, "effect") {
        "" => lists.declarative.required(&path.field("effect"), ""),
        effect => lists.declarative.one_of(&path.field("effect"), effect, &EFFECTS),
    }
}

/// Validates key, operator, value and effect of a toleration.
///
/// Upstream: `validateDeviceToleration`.
pub(super) fn device_toleration(toleration: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    let key = text(toleration, "key");
    if !key.is_empty() {
        names::label_key(key, &path.field("key"), &mut lists.declarative);
    }
    let value = text(toleration, "value");
    match text(toleration, "operator") {
        "Exists" => {
            if !value.is_empty() {
                let detail = "must be empty for operator `Exists`";
                lists.handwritten.invalid(&path.field("value"), value, detail);
            }
        }
        "Equal" => names::label_value(value, &path.field("value"), &mut lists.handwritten),
        "" => lists.declarative.required(&path.field("operator"), ""),
        other => lists.declarative.not_supported(&path.field("operator"), other, &OPERATORS),
    }
    let effect = text(toleration, "effect");
    if !effect.is_empty() {
        lists.declarative.one_of(&path.field("effect"), effect, &EFFECTS);
    }
}
