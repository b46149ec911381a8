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

/// Upstream: `printDeviceTaint`.
fn device_taint_rule(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(text(o, "spec.taint.key")),
        json!(text(o, "spec.taint.value")),
        json!(text(o, "spec.taint.effect")),
        json!(since(o, "spec.taint.timeAdded")),
        json!(age(o)),
    ]
}

/// Upstream: `printResourceClaim`.
fn resource_claim(o: &PrintedObject<'_>) -> Cells {
    let mut states = Vec::new();
    let deleted = get(o, "metadata.deletionTimestamp").is_some();
    if deleted {
        states.push("deleted");
    }
    if get(o, "status.allocation").is_some() {
        states.push("allocated");
        if !list(o, "status.reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !deleted {
        states.push("pending");
    }
    vec![json!(name(o)), json!(states.join(",")), json!(age(o))]
}

/// Upstream: `printResourceSlice`.
fn resource_slice(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(text(o, "spec.nodeName")),
        json!(text(o, "spec.driver")),
        json!(text(o, "spec.pool.name")),
        json!(age(o)),
    ]
}
