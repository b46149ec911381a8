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

fn node(printed: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(printed)),
        json!(text(printed, "usage.cpu")),
        json!(text(printed, "usage.memory")),
        json!(text(printed, "window")),
    ]
}

fn pod(printed: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(printed)),
        sum(printed, "cpu"),
        sum(printed, "memory"),
        json!(text(printed, "window")),
    ]
}

fn sum(printed: &PrintedObject<'_>, resource: &str) -> Value {
    let path = format!("usage.{resource}");
    let usages = list(printed, "containers").iter();
    let usages = usages.filter_map(|container| text(container, &path).parse().ok());
    json!(usages.fold(Quantity::ZERO, Quantity::plus).to_string())
}
