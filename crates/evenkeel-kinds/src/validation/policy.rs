//! Validation of the API group policy.

use super::conditions::conditions;
use super::labels;
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list};
use serde_json::Value;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "PodDisruptionBudget" {
        pod_disruption_budget(new, errors);
    }
}

/// Validates an updated status of a PodDisruptionBudget: its conditions, and that no count is negative.
///
/// Upstream: `ValidatePodDisruptionBudgetStatusUpdate`.
pub(super) fn update_status(kind: &str, new: &Value, errors: &mut Errors) {
    if kind != "PodDisruptionBudget" {
        return;
    }
    let path = Path::new("status");
    conditions(list(new, "status.conditions"), &path.field("conditions"), errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        errors.non_negative(&path.field(field), int(new, &format!("status.{field}")));
    }
}

/// Validates a PodDisruptionBudget: at most one of `minAvailable` and `maxUnavailable`, the selector and the eviction
/// policy.
///
/// Upstream: `ValidatePodDisruptionBudgetSpec`.
fn pod_disruption_budget(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (available, unavailable) = (get(new, "spec.minAvailable"), get(new, "spec.maxUnavailable"));
    if available.is_some() && unavailable.is_some() {
        errors.invalid(
            &path,
            quoted("policy.PodDisruptionBudgetSpec", new.get("spec")),
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    for (value, field) in [(available, "minAvailable"), (unavailable, "maxUnavailable")] {
        let path = path.field(field);
        super::apps::count_or_percent(value, &path, errors);
        if super::apps::percent(value).is_some_and(|percent| percent > 100) {
            errors.invalid(
                &path,
                value.cloned().unwrap_or_default(),
                "must not be greater than 100%",
            );
        }
    }
    if let Some(selector) = get(new, "spec.selector") {
        labels::selector(selector, &path.field("selector"), errors);
    }
    errors.one_of_if_set(
        &path.field("unhealthyPodEvictionPolicy"),
        get(new, "spec.unhealthyPodEvictionPolicy"),
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}
