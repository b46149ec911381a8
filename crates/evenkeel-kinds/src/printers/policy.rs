//! Printers of the API group policy.

use super::cells::{Cells, age, count, name, scalar_text};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::get;
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "PodDisruptionBudget" => pod_disruption_budget,
        _ => return None,
    })
}

/// Returns the cells of a PodDisruptionBudget. `N/A` stands for an unset bound.
///
/// Upstream: `printPodDisruptionBudget`.
fn pod_disruption_budget(printed: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(printed)),
        json!(scalar_text(get(printed, "spec.minAvailable"), "N/A")),
        json!(scalar_text(get(printed, "spec.maxUnavailable"), "N/A")),
        json!(count(printed, "status.disruptionsAllowed")),
        json!(age(printed)),
    ]
}
