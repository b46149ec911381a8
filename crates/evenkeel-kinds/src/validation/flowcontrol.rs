//! Validation of flowcontrol.apiserver.k8s.io.

use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, text};
use serde_json::Value;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "FlowSchema" => flow_schema(new, errors),
        "PriorityLevelConfiguration" => priority_level_configuration(new, errors),
        _ => {}
    }
}

/// Upstream: `ValidateFlowSchema`.
fn flow_schema(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let level = path.field("priorityLevelConfiguration");
    if text(new, "spec.priorityLevelConfiguration.name").is_empty() {
        errors.required(&level.field("name"), "must reference a priority level");
    }
    errors.in_range(
        &path.field("matchingPrecedence"),
        int(new, "spec.matchingPrecedence"),
        1,
        10000,
    );
}

/// Upstream: `ValidatePriorityLevelConfiguration`.
fn priority_level_configuration(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    match text(new, "spec.type") {
        "Limited" => {
            if get(new, "spec.limited").is_none() {
                errors.required(&path.field("limited"), "");
            }
        }
        "Exempt" => {
            if get(new, "spec.limited").is_some() {
                errors.forbidden(&path.field("limited"), "must be nil if the type is not Limited");
            }
        }
        other => errors.not_supported(&path.field("type"), other, &["Exempt", "Limited"]),
    }
}
