//! Printers of storage.k8s.io.

use super::cells::{Cells, NONE, UNSET, age, created_at, join, name, text_or};
use super::{ListPrinter, PrintedObject, Printer, RowPrinter};
use evenkeel_apimachinery::value::{flag, get, list, text};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::cmp::Reverse;

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

pub(super) fn list_printer(kind: &str) -> Option<ListPrinter> {
    match kind {
        "StorageClass" => Some(storage_classes),
        _ => None,
    }
}

/// Returns the printer of a list of StorageClasses, which marks the default class.
///
/// Upstream: `printStorageClassList`.
fn storage_classes(classes: &mut dyn Iterator<Item = Value>) -> RowPrinter {
    let default = default_class(classes);
    Box::new(move |printed| {
        let mut cells = storage_class(printed);
        let name = name(printed);
        if default.as_deref() == Some(name)
            && let Some(cell) = cells.first_mut()
        {
            *cell = json!(format!("{name} (default)"));
        }
        cells
    })
}

/// Returns the name of the default StorageClass: the newest with the annotation, and of several that are equally old the
/// first by name.
///
/// Upstream: `getEffectiveDefaultStorageClass`.
fn default_class(classes: &mut dyn Iterator<Item = Value>) -> Option<String> {
    const KEYS: [&str; 2] = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    let is_default = |class: &Value| {
        let annotations = class.pointer("/metadata/annotations");
        KEYS.iter().any(|key| annotations.and_then(|all| all.get(key)).is_some_and(|v| v == "true"))
    };
    let rank = |class: Value| {
        let created = text(&class, "metadata.creationTimestamp").parse::<Timestamp>().ok();
        (created, Reverse(text(&class, "metadata.name").to_owned()))
    };
    classes.filter(is_default).map(rank).max().map(|(_, Reverse(name))| name)
}

/// Returns the cells of a StorageClass. Only a list marks the default class.
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
