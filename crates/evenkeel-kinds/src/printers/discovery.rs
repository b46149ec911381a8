//! Printers of discovery.k8s.io.

use super::cells::{Cells, UNSET, age, name, text_or};
use super::core::first_three;
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{int, list, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "EndpointSlice" => endpoint_slice,
        _ => return None,
    })
}

/// Returns the cells of an EndpointSlice: name, address type, the first three ports and addresses, and age.
///
/// Upstream: `printEndpointSlice`.
fn endpoint_slice(printed: &PrintedObject<'_>) -> Cells {
    let ports: Vec<String> = list(printed, "ports")
        .iter()
        .map(|port| match int(port, "port") {
            Some(number) => number.to_string(),
            None => text_or(port, "name", "*").to_owned(),
        })
        .collect();
    let addresses: Vec<String> = list(printed, "endpoints")
        .iter()
        .flat_map(|endpoint| list(endpoint, "addresses"))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    let shown =
        |items: &[String]| if items.is_empty() { UNSET.to_owned() } else { first_three(items) };
    vec![
        json!(name(printed)),
        json!(text(printed, "addressType")),
        json!(shown(&ports)),
        json!(shown(&addresses)),
        json!(age(printed)),
    ]
}
