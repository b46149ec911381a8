//! Validation of resource.k8s.io.

use super::immutable;
use evenkeel_apimachinery::validation::Errors;
use serde_json::Value;

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    match kind {
        "ResourceClaim" | "ResourceClaimTemplate" => immutable(&["spec"], new, old, errors),
        "ResourceSlice" => {
            immutable(&["spec.pool.name", "spec.driver", "spec.nodeName"], new, old, errors);
        }
        _ => {}
    }
}
