//! Validation of scheduling.k8s.io.

use super::immutable;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{int, text};
use serde_json::Value;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "PriorityClass" {
        priority_class(new, errors);
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    create(kind, new, errors);
    if kind != "PriorityClass" {
        return;
    }
    if new.get("value") != old.get("value") {
        errors.forbidden(&Path::new("value"), "may not be changed in an update.");
    }
    immutable(&["preemptionPolicy"], new, old, errors);
}

/// Upstream: `ValidatePriorityClass`.
fn priority_class(new: &Value, errors: &mut Errors) {
    let name = text(new, "metadata.name");
    let value = int(new, "value").unwrap_or_default();
    if name.starts_with("system-") {
        let known = matches!(
            (name, value),
            ("system-cluster-critical", 2_000_000_000) | ("system-node-critical", 2_000_001_000)
        );
        if !known {
            let words = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
            );
            errors.forbidden(&Path::new("metadata").field("name"), &words);
        }
    } else if value > 1_000_000_000 {
        errors.forbidden(
            &Path::new("value"),
            "maximum allowed value of a user defined priority is 1000000000",
        );
    }
    let policy = text(new, "preemptionPolicy");
    if !policy.is_empty() {
        errors.one_of(&Path::new("preemptionPolicy"), policy, &["Never", "PreemptLowerPriority"]);
    }
}
