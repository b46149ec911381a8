//! Printers of flowcontrol.apiserver.k8s.io.

use super::cells::{Cells, NONE, age, condition, count, name, text_or};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{get, int, text};
use serde_json::{Value, json};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "FlowSchema" => flow_schema,
        "PriorityLevelConfiguration" => priority_level_configuration,
        _ => return None,
    })
}

/// Returns the key by which FlowSchemas are sorted: precedence, then name.
///
/// Upstream: `printFlowSchemaList`, `FlowSchemaSequence`.
pub(super) fn row_order(schema: &Value) -> (i64, String) {
    let precedence = int(schema, "spec.matchingPrecedence").unwrap_or_default();
    (precedence, text(schema, "metadata.name").to_owned())
}

/// Returns the cells of a FlowSchema, with the status of the condition `Dangling`, or `?` without it.
///
/// Upstream: `printFlowSchema`.
fn flow_schema(printed: &PrintedObject<'_>) -> Cells {
    let dangling =
        condition(printed, "Dangling").map_or("?", |condition| text(condition, "status"));
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.priorityLevelConfiguration.name")),
        json!(count(printed, "spec.matchingPrecedence")),
        json!(text_or(printed, "spec.distinguisherMethod.type", NONE)),
        json!(age(printed)),
        json!(dangling),
    ]
}

/// Returns the cells of a PriorityLevelConfiguration: type, shares, and parameters of its queues.
///
/// Upstream: `printPriorityLevelConfiguration`.
fn priority_level_configuration(printed: &PrintedObject<'_>) -> Cells {
    let number = |path: &str| get(printed, path).cloned().unwrap_or_else(|| json!(NONE));
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.type")),
        number("spec.limited.nominalConcurrencyShares"),
        number("spec.limited.limitResponse.queuing.queues"),
        number("spec.limited.limitResponse.queuing.handSize"),
        number("spec.limited.limitResponse.queuing.queueLengthLimit"),
        json!(age(printed)),
    ]
}
