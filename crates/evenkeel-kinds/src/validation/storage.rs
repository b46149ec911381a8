//! Validation of storage.k8s.io.

use super::{immutable, names};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, same, text};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "StorageClass" => storage_class(new, errors),
        "CSINode" => csi_node(new, errors),
        _ => {}
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    create(kind, new, errors);
    match kind {
        "StorageClass" => storage_class_update(new, old, errors),
        "CSIDriver" => {
            let fields = ["spec.attachRequired", "spec.fsGroupPolicy", "spec.volumeLifecycleModes"];
            immutable(&fields, new, old, errors);
        }
        "VolumeAttachment" => immutable(&["spec"], new, old, errors),
        _ => {}
    }
}

/// Upstream: `ValidateStorageClassUpdate`.
fn storage_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    for field in ["provisioner", "parameters"] {
        if !same(get(new, field), get(old, field)) {
            errors.forbidden(&Path::new(field), &format!("updates to {field} are forbidden."));
        }
    }
    immutable(&["volumeBindingMode"], new, old, errors);
    if get(new, "reclaimPolicy") != get(old, "reclaimPolicy") {
        errors.forbidden(&Path::new("reclaimPolicy"), "updates to reclaimPolicy are forbidden.");
    }
}

/// Upstream: `ValidateStorageClass`.
fn storage_class(new: &Value, errors: &mut Errors) {
    let provisioner = text(new, "provisioner");
    if provisioner.is_empty() {
        errors.required(&Path::new("provisioner"), "");
    } else {
        errors.invalid_all(
            &Path::new("provisioner"),
            provisioner,
            &names::qualified_name(&provisioner.to_lowercase()),
        );
    }
    let policy = text(new, "reclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(&Path::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let mode = text(new, "volumeBindingMode");
    match mode {
        "" => errors.required(&Path::new("volumeBindingMode"), ""),
        _ => errors.one_of(
            &Path::new("volumeBindingMode"),
            mode,
            &["Immediate", "WaitForFirstConsumer"],
        ),
    }
}

/// Upstream: `ValidateCSINode`.
fn csi_node(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let all = path.field("drivers");
    let mut seen = BTreeSet::new();
    for (index, driver) in list(new, "spec.drivers").iter().enumerate() {
        let path = all.index(index);
        if text(driver, "nodeID").is_empty() {
            errors.required(&path.field("nodeID"), "");
        }
        let name = text(driver, "name");
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        }
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
    }
}
