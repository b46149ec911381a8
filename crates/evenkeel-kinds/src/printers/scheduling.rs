//! Printers of scheduling.k8s.io.

use super::cells::{Cells, age, count, name};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{flag, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "PriorityClass" => priority_class,
        _ => return None,
    })
}

/// Returns the cells of a PriorityClass: name, value, whether it is the default, age, and preemption policy.
///
/// Upstream: `printPriorityClass`.
fn priority_class(printed: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(printed)),
        json!(count(printed, "value")),
        json!(flag(printed, "globalDefault")),
        json!(age(printed)),
        json!(text(printed, "preemptionPolicy")),
    ]
}
