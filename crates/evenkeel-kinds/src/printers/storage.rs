//! Printers of storage.k8s.io.

use super::cells::{Cells, NONE, UNSET, age, created_at, join, name, text_or};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{flag, get, list, text};
use serde_json::{Value, json};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "CSIDriver" => csi_driver,
        "CSINode" => |printed| {
            vec![
                json!(name(printed)),
                json!(list(printed, "spec.drivers").len()),
                json!(age(printed)),
            ]
        },
        "CSIStorageCapacity" => created_at,
        "StorageClass" => storage_class,
        "VolumeAttachment" => volume_attachment,
        "VolumeAttributesClass" => |printed| {
            vec![json!(name(printed)), json!(text(printed, "driverName")), json!(age(printed))]
        },
        _ => return None,
    })
}

/// Returns the cells of a CSIDriver: its capabilities, token audiences and lifecycle modes.
///
/// Upstream: `printCSIDriver`.
fn csi_driver(printed: &PrintedObject<'_>) -> Cells {
    let tokens = get(printed, "spec.tokenRequests").and_then(Value::as_array).map_or_else(
        || UNSET.to_owned(),
        |requests| {
            requests.iter().map(|request| text(request, "audience")).collect::<Vec<_>>().join(",")
        },
    );
    let modes = join(printed, "spec.volumeLifecycleModes", ",");
    vec![
        json!(name(printed)),
        json!(get(printed, "spec.attachRequired").and_then(Value::as_bool).unwrap_or(true)),
        json!(flag(printed, "spec.podInfoOnMount")),
        json!(flag(printed, "spec.storageCapacity")),
        json!(tokens),
        json!(flag(printed, "spec.requiresRepublish")),
        json!(if modes.is_empty() { NONE.to_owned() } else { modes }),
        json!(age(printed)),
    ]
}

/// Returns the cells of a StorageClass. A list marks the default class.
///
/// Upstream: `printStorageClass`.
fn storage_class(printed: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(printed)),
        json!(text(printed, "provisioner")),
        json!(text_or(printed, "reclaimPolicy", "Delete")),
        json!(text_or(printed, "volumeBindingMode", "Immediate")),
        json!(flag(printed, "allowVolumeExpansion")),
        json!(age(printed)),
    ]
}

/// Returns the cells of a VolumeAttachment: attacher, volume, node, and whether the volume is attached.
///
/// Upstream: `printVolumeAttachment`.
fn volume_attachment(printed: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.attacher")),
        json!(text(printed, "spec.source.persistentVolumeName")),
        json!(text(printed, "spec.nodeName")),
        json!(flag(printed, "status.attached")),
        json!(age(printed)),
    ]
}
