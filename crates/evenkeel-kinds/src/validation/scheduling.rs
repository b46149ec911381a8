//! Validation of scheduling.k8s.io.

use super::immutable;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, text};
use serde_json::Value;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "PriorityClass" {
        priority_class(new, errors);
    }
}

/// Validates an update of a class. Its value and its preemption policy are immutable. Upstream validates nothing
/// else.
///
/// Upstream: `ValidatePriorityClassUpdate`.
pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if kind != "PriorityClass" {
        return create(kind, new, errors);
    }
    if new.get("value") != old.get("value") {
        errors.forbidden(&Path::new("value"), "may not be changed in an update.");
    }
    immutable(&["preemptionPolicy"], new, old, errors);
}

/// Validates a PriorityClass: the value, the preemption policy, and the reserved prefix `system-`.
///
/// Upstream: `ValidatePriorityClass`.
fn priority_class(new: &Value, errors: &mut Errors) {
    let name = text(new, "metadata.name");
    let value = int(new, "value").unwrap_or_default();
    if name.starts_with("system-") {
        if let Some(error) = unknown_system_class(name, value, flag(new, "globalDefault")) {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {error}"
            );
            errors.forbidden(&Path::new("metadata").field("name"), &detail);
        }
    } else if value > 1_000_000_000 {
        errors.forbidden(
            &Path::new("value"),
            "maximum allowed value of a user defined priority is 1000000000",
        );
    }
    let path = Path::new("preemptionPolicy");
    match get(new, "preemptionPolicy").and_then(Value::as_str) {
        None => {}
        Some("") => errors.required(&path, ""),
        Some(policy) => errors.one_of(&path, policy, &["PreemptLowerPriority", "Never"]),
    }
}

/// Returns the reason why a class is neither of Kubernetes' two system classes, or `None` if it is one of them.
///
/// Upstream: `IsKnownSystemPriorityClass`.
fn unknown_system_class(name: &str, value: i64, is_global_default: bool) -> Option<String> {
    let known = match name {
        "system-cluster-critical" => 2_000_000_000,
        "system-node-critical" => 2_000_001_000,
        _ => return Some(format!("{name} is not a known system priority class")),
    };
    if value != known {
        Some(format!("value of {name} PriorityClass must be {known}"))
    } else {
        is_global_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(errors: Errors) -> Vec<String> {
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn system_classes_have_fixed_values_and_updates_keep_value_and_policy() {
        for (name, class, expected) in [
            ("a", json!({"value": 1_000_000_000}), &[][..]),
            ("a", json!({"value": 1_000_000_001}), &["value"]),
            ("a", json!({"value": 1, "preemptionPolicy": "a"}), &["preemptionPolicy"]),
            ("system-node-critical", json!({"value": 2_000_001_000}), &[]),
            ("system-node-critical", json!({"value": 1}), &["metadata.name"]),
            ("system-a", json!({"value": 1}), &["metadata.name"]),
        ] {
            let mut class = class;
            class["metadata"] = json!({"name": name});
            let mut errors = Errors::default();
            create("PriorityClass", &class, &mut errors);
            assert_eq!(fields(errors), expected, "{class}");
        }
        let old = json!({"value": 1, "preemptionPolicy": "Never"});
        let mut errors = Errors::default();
        let new = json!({"value": 2, "preemptionPolicy": "a"});
        update("PriorityClass", &new, &old, &mut errors);
        assert_eq!(fields(errors), ["value", "preemptionPolicy"]);
    }
}
