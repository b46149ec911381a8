//! Printers of resource.k8s.io.

use super::cells::{Cells, age, name, name_age, since};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "DeviceClass" | "ResourceClaimTemplate" => name_age,
        "DeviceTaintRule" => device_taint_rule,
        "ResourceClaim" => resource_claim,
        "ResourceSlice" => resource_slice,
        _ => return None,
    })
}

/// Returns the cells of a DeviceTaintRule: key, value, effect and age of its taint.
///
/// Upstream: `printDeviceTaint`.
fn device_taint_rule(printed: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.taint.key")),
        json!(text(printed, "spec.taint.value")),
        json!(text(printed, "spec.taint.effect")),
        json!(since(printed, "spec.taint.timeAdded")),
        json!(age(printed)),
    ]
}

/// Returns the cells of a ResourceClaim. The state lists deletion, allocation and reservation, or is `pending`.
///
/// Upstream: `printResourceClaim`.
fn resource_claim(printed: &PrintedObject<'_>) -> Cells {
    let mut states = Vec::new();
    let deleted = get(printed, "metadata.deletionTimestamp").is_some();
    if deleted {
        states.push("deleted");
    }
    if get(printed, "status.allocation").is_some() {
        states.push("allocated");
        if !list(printed, "status.reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !deleted {
        states.push("pending");
    }
    vec![json!(name(printed)), json!(states.join(",")), json!(age(printed))]
}

/// Returns the cells of a ResourceSlice: name, node, driver, pool, and age.
///
/// Upstream: `printResourceSlice`.
fn resource_slice(printed: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.nodeName")),
        json!(text(printed, "spec.driver")),
        json!(text(printed, "spec.pool.name")),
        json!(age(printed)),
    ]
}
