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

/// Upstream: `printPriorityClass`.
fn priority_class(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(count(o, "value")),
        json!(flag(o, "globalDefault")),
        json!(age(o)),
        json!(text(o, "preemptionPolicy")),
    ]
}
