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

fn api_service(printed: &PrintedObject<'_>) -> Cells {
    let service = get(printed, "spec.service").map_or_else(
        || "Local".to_owned(),
        |service| format!("{}/{}", text(service, "namespace"), text(service, "name")),
    );
    let available = match condition(printed, "Available") {
        Some(found) if text(found, "status") == "True" => "True".to_owned(),
        Some(found) => format!("{} ({})", text(found, "status"), text(found, "reason")),
        None => "Unknown".to_owned(),
    };
    vec![json!(name(printed)), json!(service), json!(available), json!(age(printed))]
}
