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
    let usages = list(o, "containers").iter();
    let usages = usages.filter_map(|container| text(container, &path).parse().ok());
    json!(usages.fold(Quantity::ZERO, Quantity::plus).to_string())
}
