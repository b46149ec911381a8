//! Validation of node.k8s.io.

use super::{declared_immutable, labels, names, pod, quantity};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, object, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "RuntimeClass" {
        overhead_and_scheduling(new, errors);
        handler(new, errors);
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if kind != "RuntimeClass" {
        return create(kind, new, errors);
    }
    overhead_and_scheduling(new, errors);
    declared_immutable("handler", new, old, errors);
    handler(new, errors);
}

/// Validates the name of the handler. As upstream's declarative rules, it runs after all other rules.
fn handler(new: &Value, errors: &mut Errors) {
    errors.required_valid(&Path::new("handler"), text(new, "handler"), names::dns_label);
}

/// Validates the pod overhead, the node selector and the tolerations of a RuntimeClass.
///
/// Upstream: `ValidateRuntimeClass`.
fn overhead_and_scheduling(new: &Value, errors: &mut Errors) {
    if let Some(overhead) = get(new, "overhead.podFixed") {
        let limits = json!({"limits": overhead});
        quantity::requirements(&limits, &Path::new("overhead"), errors);
    }
    if let Some(scheduling) = new.get("scheduling") {
        let path = Path::new("scheduling");
        labels::labels(object(scheduling, "nodeSelector"), &path.field("nodeSelector"), errors);
        tolerations(scheduling, &path.field("tolerations"), errors);
    }
}

/// Validates tolerations, and rejects duplicates.
///
/// Upstream: `validateTolerations`.
fn tolerations(scheduling: &Value, path: &Path<'_>, errors: &mut Errors) {
    pod::tolerations(scheduling, path, errors);
    let mut seen = BTreeSet::new();
    for (index, toleration) in list(scheduling, "tolerations").iter().enumerate() {
        let key = ["key", "operator", "value", "effect"].map(|field| text(toleration, field));
        if !seen.insert(key) {
            errors.duplicate(&path.index(index), quoted("core.Toleration", Some(toleration)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handler_overhead_and_scheduling_of_a_runtime_class_are_validated() {
        let exists = json!({"operator": "Exists"});
        let table: [(Value, &[&str]); 8] = [
            (json!({"handler": "runc"}), &[]),
            (json!({}), &["handler"]),
            (json!({"handler": "A"}), &["handler"]),
            (
                json!({"handler": "a", "overhead": {"podFixed": {"cpu": "-1"}}}),
                &["overhead.limits[cpu]"],
            ),
            (
                json!({"handler": "a", "overhead": {"podFixed": {"a": "1"}}}),
                &["overhead.limits[a]"; 2],
            ),
            (
                json!({"handler": "a", "scheduling": {"nodeSelector": {"a": "-"}}}),
                &["scheduling.nodeSelector"],
            ),
            (
                json!({"handler": "a", "scheduling": {"tolerations": [{"key": "a", "operator": "b"}]}}),
                &["scheduling.tolerations[0].operator"],
            ),
            (
                json!({"handler": "a", "scheduling": {"tolerations": [exists, exists]}}),
                &["scheduling.tolerations[1]"],
            ),
        ];
        for (class, expected) in table {
            let mut errors = Errors::default();
            create("RuntimeClass", &class, &mut errors);
            let found: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            assert_eq!(found, expected, "{class}");
        }
    }
}
