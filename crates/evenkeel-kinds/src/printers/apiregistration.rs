//! Printers of apiregistration.k8s.io.

use super::cells::{Cells, age, condition, name};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{get, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "APIService" => api_service,
        _ => return None,
    })
}

fn api_service(o: &PrintedObject<'_>) -> Cells {
    let service = get(o, "spec.service").map_or_else(
        || "Local".to_owned(),
        |service| format!("{}/{}", text(service, "namespace"), text(service, "name")),
    );
    let available = match condition(o, "Available") {
        Some(found) if text(found, "status") == "True" => "True".to_owned(),
        Some(found) => format!("{} ({})", text(found, "status"), text(found, "reason")),
        None => "Unknown".to_owned(),
    };
    vec![json!(name(o)), json!(service), json!(available), json!(age(o))]
}
