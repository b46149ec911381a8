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

fn custom_resource_definition(printed: &PrintedObject<'_>) -> Cells {
    let versions: Vec<String> = list(printed, "spec.versions")
        .iter()
        .filter(|version| flag(version, "served"))
        .map(|version| match flag(version, "storage") {
            true => format!("{}(storage)", text(version, "name")),
            false => text(version, "name").to_owned(),
        })
        .collect();
    let established = condition(printed, "Established")
        .is_some_and(|condition| text(condition, "status") == "True");
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.scope")),
        json!(versions.join(",")),
        json!(text(printed, "metadata.creationTimestamp")),
        json!(text(printed, "spec.group")),
        json!(text(printed, "spec.names.kind")),
        json!(join(printed, "spec.names.shortNames", ",")),
        json!(established),
    ]
}
