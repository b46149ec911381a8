//! Printers of apiextensions.k8s.io.

use super::cells::{Cells, condition, join, name};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{flag, list, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "CustomResourceDefinition" => custom_resource_definition,
        _ => return None,
    })
}

fn custom_resource_definition(o: &PrintedObject<'_>) -> Cells {
    let versions: Vec<String> = list(o, "spec.versions")
        .iter()
        .filter(|version| flag(version, "served"))
        .map(|version| match flag(version, "storage") {
            true => format!("{}(storage)", text(version, "name")),
            false => text(version, "name").to_owned(),
        })
        .collect();
    let established =
        condition(o, "Established").is_some_and(|condition| text(condition, "status") == "True");
    vec![
        json!(name(o)),
        json!(text(o, "spec.scope")),
        json!(versions.join(",")),
        json!(text(o, "metadata.creationTimestamp")),
        json!(text(o, "spec.group")),
        json!(text(o, "spec.names.kind")),
        json!(join(o, "spec.names.shortNames", ",")),
        json!(established),
    ]
}
