//! Printers of storagemigration.k8s.io.

use super::cells::{Cells, condition, name};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::text;
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "StorageVersionMigration" => storage_version_migration,
        _ => return None,
    })
}

/// Returns the cells of a StorageVersionMigration: name, resource, and the first true condition of its progress.
///
/// Upstream: `printStorageVersionMigration`.
fn storage_version_migration(printed: &PrintedObject<'_>) -> Cells {
    let group = text(printed, "spec.resource.group");
    let resource = text(printed, "spec.resource.resource");
    let shown = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let status = ["Failed", "Succeeded", "Running"].into_iter().find(|kind| {
        condition(printed, kind).is_some_and(|condition| text(condition, "status") == "True")
    });
    vec![json!(name(printed)), json!(shown), json!(status.unwrap_or_default())]
}
