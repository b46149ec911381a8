//! Printers of storage.k8s.io.

use super::cells::{Cells, NONE, UNSET, age, created_at, join, name, text_or};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{flag, get, list, object, text};
use serde_json::{Value, json};

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "CSIDriver" => csi_driver,
        "CSINode" => |o| vec![json!(name(o)), json!(list(o, "spec.drivers").len()), json!(age(o))],
        "CSIStorageCapacity" => created_at,
        "StorageClass" => storage_class,
        "VolumeAttachment" => volume_attachment,
        "VolumeAttributesClass" => {
            |o| vec![json!(name(o)), json!(text(o, "driverName")), json!(age(o))]
        }
        _ => return None,
    })
}

/// Upstream: `printCSIDriver`.
fn csi_driver(o: &PrintedObject<'_>) -> Cells {
    let tokens = get(o, "spec.tokenRequests").and_then(Value::as_array).map_or_else(
        || UNSET.to_owned(),
        |requests| {
            requests.iter().map(|request| text(request, "audience")).collect::<Vec<_>>().join(",")
        },
    );
    let modes = join(o, "spec.volumeLifecycleModes", ",");
    vec![
        json!(name(o)),
        json!(get(o, "spec.attachRequired").and_then(Value::as_bool).unwrap_or(true)),
        json!(flag(o, "spec.podInfoOnMount")),
        json!(flag(o, "spec.storageCapacity")),
        json!(tokens),
        json!(flag(o, "spec.requiresRepublish")),
        json!(if modes.is_empty() { NONE.to_owned() } else { modes }),
        json!(age(o)),
    ]
}

/// Upstream: `printStorageClass`.
fn storage_class(o: &PrintedObject<'_>) -> Cells {
    let mut shown = name(o).to_owned();
    let key = "storageclass.kubernetes.io/is-default-class";
    if object(o, "metadata.annotations")
        .and_then(|annotations| annotations.get(key))
        .is_some_and(|value| value == "true")
    {
        shown.push_str(" (default)");
    }
    vec![
        json!(shown),
        json!(text(o, "provisioner")),
        json!(text_or(o, "reclaimPolicy", "Delete")),
        json!(text_or(o, "volumeBindingMode", "Immediate")),
        json!(flag(o, "allowVolumeExpansion")),
        json!(age(o)),
    ]
}

/// Upstream: `printVolumeAttachment`.
fn volume_attachment(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(text(o, "spec.attacher")),
        json!(text(o, "spec.source.persistentVolumeName")),
        json!(text(o, "spec.nodeName")),
        json!(flag(o, "status.attached")),
        json!(age(o)),
    ]
}
