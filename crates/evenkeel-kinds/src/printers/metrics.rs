//! Printers of NodeMetrics and PodMetrics, with the columns of metrics-server.

use super::cells::{Cells, name};
use super::{PrintedObject, Printer};
use evenkeel_api::quantity::Quantity;
use evenkeel_apimachinery::value::{list, text};
use serde_json::{Value, json};

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    match kind {
        "NodeMetrics" => Some(node),
        "PodMetrics" => Some(pod),
        _ => None,
    }
}

fn node(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(text(o, "usage.cpu")),
        json!(text(o, "usage.memory")),
        json!(text(o, "window")),
    ]
}

fn pod(o: &PrintedObject<'_>) -> Cells {
    vec![json!(name(o)), sum(o, "cpu"), sum(o, "memory"), json!(text(o, "window"))]
}

fn sum(o: &PrintedObject<'_>, resource: &str) -> Value {
    let path = format!("usage.{resource}");
    let each = list(o, "containers").iter().filter_map(|one| text(one, &path).parse().ok());
    json!(each.fold(Quantity::ZERO, Quantity::plus).to_string())
}
