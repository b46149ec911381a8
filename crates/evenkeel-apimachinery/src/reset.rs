//! Functions that reset fields of an object to their stored values, for updates that may not change them. Each name
//! states the fields that the function resets.
//!
//! `prepare_status_update` in `evenkeel-kinds` calls these functions for `/status`.
//!
//! Upstream: `PrepareForUpdate` of the strategies, `rest.ResetFieldsStrategy`.

use serde_json::Value;

/// Removes a top-level field.
pub fn drop_field(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}

/// Resets a top-level field of `new` to its value in `old`.
pub fn reset_field(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) if map.get(field) == Some(value) => {}
        Some(value) => {
            map.insert(field.to_owned(), value.clone());
        }
        None => {
            map.remove(field);
        }
    }
}

/// Kinds whose metadata a status update may not change, by group.
const METADATA_RESET_FOR_STATUS: [(&str, &str); 17] = [
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "PodCertificateRequest"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("internal.apiserver.k8s.io", "StorageVersion"),
    ("lifecycle.k8s.io", "Eviction"),
    ("lifecycle.k8s.io", "EvictionRequest"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("resource.k8s.io", "DeviceTaintRule"),
    ("resource.k8s.io", "ResourceClaim"),
    ("resource.k8s.io", "ResourcePoolStatusRequest"),
    ("scheduling.k8s.io", "CompositePodGroup"),
    ("scheduling.k8s.io", "PodGroup"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storagemigration.k8s.io", "StorageVersionMigration"),
];

/// Returns whether a status update of a built-in kind may not change labels, annotations, finalizers and owner
/// references.
///
/// Upstream: `GetResetFields` of the status strategies that have `metadata` in it.
pub fn status_update_resets_metadata(group: &str, kind: &str) -> bool {
    METADATA_RESET_FOR_STATUS.contains(&(group, kind))
}

/// Resets the metadata that a status update may not change to its value in `old`.
///
/// Upstream: `ResetObjectMetaForStatus`.
pub fn reset_metadata_for_status(new: &mut Value, old: &Value) {
    let fields = [
        "annotations",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "labels",
        "ownerReferences",
        "selfLink",
    ];
    reset_metadata_fields(new, old, &fields);
}

/// Resets fields of `metadata` to their values in `old`.
pub fn reset_metadata_fields(new: &mut Value, old: &Value, fields: &[&str]) {
    let none = Value::Null;
    let old = old.get("metadata").unwrap_or(&none);
    if let Some(metadata) = new.get_mut("metadata") {
        fields.iter().for_each(|field| reset_field(metadata, old, field));
    }
}

/// Resets every top-level field of `new` except `metadata` and `status` to its value in `old`: `spec`, `data`, `rules`
/// and all others. Fields that `old` lacks are removed.
pub fn reset_all_but_metadata_and_status(new: &mut Value, old: &Value) {
    let is_reset = |name: &str| !matches!(name, "metadata" | "status" | "apiVersion" | "kind");
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|name, _| !is_reset(name) || old.get(name).is_some());
    }
    for (name, _) in old.as_object().into_iter().flatten().filter(|(name, _)| is_reset(name)) {
        reset_field(new, old, name);
    }
}

/// Resets every field of `new` except `status` and `metadata.managedFields` to its value in `old`. These two remain
/// absent if `new` lacks them. The rest of the metadata, such as labels and annotations, is reset.
pub fn reset_all_but_status_and_managed_fields(new: &mut Value, old: &Value) {
    let status = new.as_object_mut().and_then(|map| map.remove("status"));
    let managed = new
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .and_then(|m| m.remove("managedFields"));
    let mut kept = old.clone();
    if let Some(map) = kept.as_object_mut() {
        match status {
            Some(status) => {
                map.insert("status".to_owned(), status);
            }
            None => {
                map.remove("status");
            }
        }
        if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            match managed {
                Some(managed) => {
                    metadata.insert("managedFields".to_owned(), managed);
                }
                None => {
                    metadata.remove("managedFields");
                }
            }
        }
    }
    *new = kept;
}

/// Returns whether a field other than `metadata`, `status`, `apiVersion` and `kind` differs.
pub fn spec_differs(new: &Value, old: &Value) -> bool {
    spec_fields(new).ne(spec_fields(old))
}

fn spec_fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(k, _)| !matches!(k.as_str(), "metadata" | "status" | "apiVersion" | "kind"))
}
