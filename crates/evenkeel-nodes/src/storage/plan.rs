//! Decisions of the simulated storage about a claim, a volume or an attachment.

use super::DRIVER;
use evenkeel_api::{
    Kind, Meta, View,
    views::{PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment},
};
use evenkeel_component_helpers::storage::volume;
use evenkeel_runtime::plan::{EventRecord, Target};
use serde_json::{Value, json};

/// Finalizer of a volume; the provisioner removes it when it deletes the storage.
const PROVISIONER_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Finalizer of an attachment; the attacher removes it when it detaches the volume.
const ATTACHER_FINALIZER: &str = "external-attacher/csi-sim-evenkeel-dev";

/// One planned write.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    /// Creates a cluster-scoped object. The first event is recorded before the creation, the others after it.
    Create { kind: Kind, body: Value, events: Vec<EventRecord> },
    /// Sends a merge patch. An empty `subresource` patches the object itself.
    Patch { target: Target, subresource: &'static str, body: Value },
    /// Deletes a cluster-scoped object.
    Delete(Target),
}

/// Returns the CSIDriver object; `attach_required` is its field `attachRequired`.
pub(super) fn csi_driver(attach_required: bool) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": attach_required, "podInfoOnMount": false, "volumeLifecycleModes": ["Persistent", "Ephemeral"]},
    })
}

/// Returns the default StorageClass with this name.
pub(super) fn storage_class(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": DRIVER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    })
}

/// Returns the name of the claim's volume, or else of the volume to provision for it. The name depends on the claim's
/// uid, so that a claim never gets two volumes.
pub(super) fn volume_name(claim: &PersistentVolumeClaim) -> String {
    match &*claim.spec.volume_name {
        "" => format!("pvc-{}", claim.meta.uid),
        name => name.to_owned(),
    }
}

/// Provisions a volume for a claim that the binder delegated to this provisioner, or resizes the claim's volume.
pub(super) fn sync_claim(
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    volume: Option<&PersistentVolume>,
) -> Vec<Write> {
    match (class, volume) {
        (Some(class), None) if must_provision(claim, class) => vec![provision(claim, class)],
        (_, Some(volume)) if is_provisioned_here(volume) && volume::is_for_claim(volume, claim) => {
            expand(claim, volume)
        }
        _ => Vec::new(),
    }
}

/// Returns whether this provisioner must provision a volume for the claim now.
fn must_provision(claim: &PersistentVolumeClaim, class: &StorageClass) -> bool {
    let annotations = &claim.meta.annotations;
    let waits_for_scheduling =
        volume::waits_for_consumer(class) && !annotations.contains(volume::SELECTED_NODE);
    annotations.get(volume::STORAGE_PROVISIONER) == Some(DRIVER)
        && &*class.provisioner == DRIVER
        && claim.spec.volume_name.is_empty()
        && !claim.meta.deleting()
        && !waits_for_scheduling
}

/// Returns the creation of a volume for a claim, with the external provisioner's events.
fn provision(claim: &PersistentVolumeClaim, class: &StorageClass) -> Write {
    let meta = &claim.meta;
    let name = volume_name(claim);
    let policy = match &*class.reclaim_policy {
        "" => "Delete",
        policy => policy,
    };
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {volume::PROVISIONED_BY: DRIVER}},
        "spec": {
            "capacity": {"storage": volume::requested_storage(claim).to_string()},
            "accessModes": claim.spec.access_modes,
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": volume::class_of_claim(claim),
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            },
        },
    });
    if policy == "Delete" {
        body["metadata"]["finalizers"] = json!([PROVISIONER_FINALIZER]);
    }
    if !claim.spec.volume_mode.is_empty() {
        body["spec"]["volumeMode"] = json!(claim.spec.volume_mode);
    }
    if !claim.spec.volume_attributes_class_name.is_empty() {
        body["spec"]["volumeAttributesClassName"] = json!(claim.spec.volume_attributes_class_name);
    }
    let event = |reason, message| {
        EventRecord::normal(Target::of(PersistentVolumeClaim::kind(), meta), reason, message)
    };
    let (namespace, claim) = (&meta.namespace, &meta.name);
    let provisioning =
        format!("External provisioner is provisioning volume for claim \"{namespace}/{claim}\"");
    let succeeded = format!("Successfully provisioned volume {name}");
    Write::Create {
        kind: PersistentVolume::kind(),
        body,
        events: vec![
            event("Provisioning", provisioning),
            event("ProvisioningSucceeded", succeeded),
        ],
    }
}

/// Resizes the volume of a bound claim that requests more than it has, then updates the claim's capacity.
fn expand(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Vec<Write> {
    let requested = volume::requested_storage(claim);
    let current = claim.status.capacity.get("storage").copied();
    if &*claim.status.phase != "Bound" || current.is_none_or(|current| current >= requested) {
        return Vec::new();
    }
    let capacity = json!({"storage": requested.to_string()});
    let mut writes = Vec::new();
    if volume::capacity(volume) < requested {
        writes.push(patch(
            PersistentVolume::kind(),
            &volume.meta,
            "",
            json!({"spec": {"capacity": capacity}}),
        ));
    }
    let status = json!({"status": {"capacity": capacity}});
    writes.push(patch(PersistentVolumeClaim::kind(), &claim.meta, "status", status));
    writes
}

/// Returns a patch of an object, with its uid as precondition.
fn patch(kind: Kind, meta: &Meta, subresource: &'static str, mut body: Value) -> Write {
    body["metadata"]["uid"] = json!(meta.uid);
    Write::Patch { target: Target::of(kind, meta), subresource, body }
}

/// Returns whether this provisioner created the volume.
fn is_provisioned_here(volume: &PersistentVolume) -> bool {
    volume.meta.annotations.get(volume::PROVISIONED_BY) == Some(DRIVER)
}

/// Deletes a released volume with reclaim policy `Delete`. The removal of the finalizer simulates the deletion of its
/// storage.
pub(super) fn sync_volume(volume: &PersistentVolume) -> Vec<Write> {
    if !is_provisioned_here(volume) {
        return Vec::new();
    }
    let meta = &volume.meta;
    let is_delete_policy = &*volume.spec.persistent_volume_reclaim_policy == "Delete";
    let must_delete = &*volume.status.phase == "Released" && is_delete_policy;
    // A retained volume keeps its finalizer until the object is deleted.
    let remove_finalizer = must_delete || (meta.deleting() && !is_delete_policy);
    let mut writes = Vec::new();
    // Patch before the deletion. After the deletion, other controllers remove their finalizers, and the list in this
    // patch would restore them.
    if remove_finalizer && has_finalizer(meta, PROVISIONER_FINALIZER) {
        writes.push(without_finalizer(PersistentVolume::kind(), meta, PROVISIONER_FINALIZER));
    }
    if must_delete && !meta.deleting() {
        writes.push(Write::Delete(Target::of(PersistentVolume::kind(), meta)));
    }
    writes
}

/// Attaches a volume, or detaches it if the attachment is being deleted.
pub(super) fn sync_attachment(attachment: &VolumeAttachment) -> Vec<Write> {
    let (meta, kind) = (&attachment.meta, VolumeAttachment::kind);
    if &*attachment.spec.attacher != DRIVER {
        return Vec::new();
    }
    if meta.deleting() {
        let is_attached = has_finalizer(meta, ATTACHER_FINALIZER);
        return if is_attached {
            vec![without_finalizer(kind(), meta, ATTACHER_FINALIZER)]
        } else {
            Vec::new()
        };
    }
    let mut writes = Vec::new();
    if !has_finalizer(meta, ATTACHER_FINALIZER) {
        let finalizers: Vec<&str> =
            meta.finalizers.iter().map(|present| &**present).chain([ATTACHER_FINALIZER]).collect();
        writes.push(patch(kind(), meta, "", json!({"metadata": {"finalizers": finalizers}})));
    }
    if !attachment.status.attached {
        writes.push(patch(kind(), meta, "status", json!({"status": {"attached": true}})));
    }
    writes
}

/// Returns whether an object has a finalizer.
fn has_finalizer(meta: &Meta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|present| **present == *finalizer)
}

/// Returns the patch that removes a finalizer.
fn without_finalizer(kind: Kind, meta: &Meta, finalizer: &str) -> Write {
    let remaining: Vec<&str> = meta
        .finalizers
        .iter()
        .map(|present| &**present)
        .filter(|present| *present != finalizer)
        .collect();
    patch(kind, meta, "", json!({"metadata": {"finalizers": remaining}}))
}
