//! Printers of apiextensions.k8s.io.

use super::cells::{Cells, condition, join, name};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{list, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "CustomResourceDefinition" => custom_resource_definition,
        _ => return None,
    })
}

fn custom_resource_definition(o: &PrintedObject<'_>) -> Cells {
    let versions: Vec<&str> =
        list(o, "spec.versions").iter().map(|version| text(version, "name")).collect();
    let established = condition(o, "Established").map_or("", |condition| text(condition, "status"));
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
