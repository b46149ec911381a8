//! Decisions about claims and volumes.
//!
//! A binding consists of two references, written in this order: the volume's `claimRef`, then the claim's `volumeName`.
//! After an interruption, the next reconciliation of either object completes it.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | order of the steps of a claim (`syncClaim`, `syncUnboundClaim`) | `claim::choose_step` |
//! | a claim's `accessModes`, `volumeMode`, `storage` requested, `selector`, `storageClassName`, `volumeAttributesClassName` | `claim::find_best_match_for_claim`, `../../../../../evenkeel-component-helpers/src/storage/volume.rs` |
//! | reserving by a claim's `volumeName` | `claim::bind_requested_volume`, `claim::mismatch` |
//! | reserving by a volume's `claimRef` | `claim::find_best_match_for_claim`, `claim_ref_update` |
//! | the default class (`storageclass.kubernetes.io/is-default-class`), also for existing claims | `claim::default_class` |
//! | `volumeBindingMode`: `WaitForFirstConsumer`; `volume.kubernetes.io/selected-node`, which the scheduler sets | `claim::choose_step`, `claim::waiting_event` |
//! | dynamic provisioning: `provisioner`, `kubernetes.io/no-provisioner` | `claim::find_provisioner` |
//! | `volume.kubernetes.io/storage-provisioner` | `claim::set_provisioner` |
//! | phases of claims: `Pending`, `Bound`, `Lost` | `claim::set_pending`, `bind`, `claim::set_lost` |
//! | phases of volumes: `Available`, `Bound`, `Released`, `Failed` | `volume::decide`, `reclaim::fail` |
//! | a volume whose claim is bound elsewhere | `volume::claim_bound_elsewhere` |
//! | `persistentVolumeReclaimPolicy`: `Retain`, `Delete` | `reclaim::decide` |
//! | `persistentVolumeReclaimPolicy`: `Recycle`, the recycler's pod template | `reclaim::recycle`, `reclaim::create_recycler_pod` |
//! | finalizer `kubernetes.io/pv-controller` | `reclaim::finalizers` |
//! | CSI migration: `pv.kubernetes.io/migrated-to` | `migration::migrated_to_change` |
//! | finalizers `kubernetes.io/pvc-protection`, `kubernetes.io/pv-protection` | `../../persistentvolumeclaimprotection/plan.rs`, `../../persistentvolumeprotection/plan.rs` |
//! | `allowVolumeExpansion` | `../../expander/plan.rs` |

pub(super) mod claim;
pub(super) mod migration;
pub(super) mod reclaim;
#[cfg(test)]
mod tests;
pub(super) mod volume;

use crate::wire;
use evenkeel_api::{
    Map,
    quantity::Quantity,
    views::{PersistentVolume, PersistentVolumeClaim},
};
use evenkeel_component_helpers::storage;
use evenkeel_runtime::plan::{Action, OnError, PatchType, Rewrite};
use serde_json::{Map as Object, Value, json};
use std::sync::Arc;

/// Consecutive writes of one object. Each write requires the resource version that the previous write returned.
struct ConsecutiveWrites {
    actions: Vec<Action>,
    /// Resource version that the next write requires. Empty if the write requires the version that the previous write returns.
    next_version: Arc<str>,
}

impl ConsecutiveWrites {
    /// Returns an empty sequence. Its first write requires this resource version.
    fn from_version(version: &str) -> Self {
        Self { actions: Vec::new(), next_version: Arc::from(version) }
    }

    /// Adds a write. If an earlier write fails, it is skipped.
    fn push(&mut self, change: Rewrite) {
        let resource_version = std::mem::replace(&mut self.next_version, Arc::from(""));
        self.actions
            .push(Rewrite { resource_version, on_error: OnError::SkipRest, ..change }.into());
    }
}

/// Returns a merge patch of a volume, for now without a required resource version.
fn change_volume(volume: &PersistentVolume, body: &Value) -> Rewrite {
    Rewrite::new(wire::target(volume), "", PatchType::Merge, body.to_string())
}

/// Returns a merge patch of a claim, for now without a required resource version.
fn change_claim(claim: &PersistentVolumeClaim, body: &Value) -> Rewrite {
    Rewrite::new(wire::target(claim), "", PatchType::Merge, body.to_string())
}

/// Returns the writes that are missing for the binding: first `claimRef` and phase of the volume, then `volumeName` and
/// status of the claim.
fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Vec<Action> {
    let mut volume_writes = ConsecutiveWrites::from_version(&volume.meta.resource_version);
    if let Some(body) = claim_ref_update(volume, claim) {
        volume_writes.push(change_volume(volume, &body));
    }
    if let Some(change) = phase_update(volume, "Bound", "") {
        volume_writes.push(change);
    }
    let mut claim_writes = ConsecutiveWrites::from_version(&claim.meta.resource_version);
    if let Some(body) = volume_name_update(claim, volume) {
        claim_writes.push(change_claim(claim, &body));
    }
    if let Some(change) = claim_status_update(claim, "Bound", Some(volume)) {
        claim_writes.push(change);
    }
    volume_writes.actions.extend(claim_writes.actions);
    volume_writes.actions
}

/// Returns the body of the update that sets the volume's `claimRef`, or `None` if the `claimRef` is complete. The
/// update annotates the volume as bound by the controller, unless a user reserved the volume for the claim.
fn claim_ref_update(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Value> {
    let mut body = json!({});
    let is_complete = volume.spec.claim_ref.as_deref().is_some_and(|reference| {
        reference.name == claim.meta.name
            && reference.namespace == claim.meta.namespace
            && reference.uid == claim.meta.uid
    });
    if !is_complete {
        // Removes a `fieldPath` of the old reference.
        let mut reference = storage::volume::claim_reference(claim);
        reference["fieldPath"] = Value::Null;
        body["spec"]["claimRef"] = reference;
    }
    let is_reserved = storage::volume::is_for_claim(volume, claim);
    if !is_reserved && !volume.meta.annotations.contains(storage::volume::BOUND_BY_CONTROLLER) {
        body["metadata"]["annotations"][storage::volume::BOUND_BY_CONTROLLER] = "yes".into();
    }
    (body != json!({})).then_some(body)
}

/// Returns the body of the update that sets the claim's `volumeName` and annotations, or `None` if they are complete.
fn volume_name_update(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let mut body = json!({});
    let annotations = &claim.meta.annotations;
    if claim.spec.volume_name != volume.meta.name {
        body["spec"]["volumeName"] = json!(volume.meta.name);
        if !annotations.contains(storage::volume::BOUND_BY_CONTROLLER) {
            body["metadata"]["annotations"][storage::volume::BOUND_BY_CONTROLLER] = "yes".into();
        }
    }
    if !annotations.contains(storage::volume::BIND_COMPLETED) {
        body["metadata"]["annotations"][storage::volume::BIND_COMPLETED] = "yes".into();
    }
    (body != json!({})).then_some(body)
}

/// Returns the writes that unbind the volume. If the controller set the `claimRef`, the writes remove it. If a user set
/// it to reserve the volume, the writes remove only its uid.
fn unbind(volume: &PersistentVolume) -> Vec<Action> {
    let mut writes = ConsecutiveWrites::from_version(&volume.meta.resource_version);
    let body = if volume.meta.annotations.contains(storage::volume::BOUND_BY_CONTROLLER) {
        json!({
            "metadata": {"annotations": {storage::volume::BOUND_BY_CONTROLLER: null}},
            "spec": {"claimRef": null},
        })
    } else {
        json!({"spec": {"claimRef": {"uid": null}}})
    };
    writes.push(change_volume(volume, &body));
    if let Some(change) = phase_update(volume, "Available", "") {
        writes.push(change);
    }
    writes.actions
}

/// Returns the update of the volume's phase and message, or `None` if the volume has that phase.
fn phase_update(volume: &PersistentVolume, phase: &str, message: &str) -> Option<Rewrite> {
    if *volume.status.phase == *phase {
        return None;
    }
    let message = Some(message).filter(|message| !message.is_empty());
    let body = json!({"status": {"phase": phase, "message": message}});
    Some(change_volume(volume, &body).of_status())
}

/// Returns [`phase_update`] as the only write of the volume in a plan. It requires the observed resource version.
fn sole_phase_update(volume: &PersistentVolume, phase: &str, message: &str) -> Option<Rewrite> {
    let change = phase_update(volume, phase, message)?;
    Some(Rewrite { resource_version: Arc::from(&*volume.meta.resource_version), ..change })
}

/// Returns the update of the claim's status, or `None` if the status is correct. Without a volume, the update removes
/// access modes and capacity. The update sets the capacity only together with a new phase. Later, the component that
/// expands the volume updates the capacity.
fn claim_status_update(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Option<Rewrite> {
    let current = &claim.status;
    let mut changes = Object::new();
    let phase_changes = *current.phase != *phase;
    if phase_changes {
        changes.insert("phase".into(), phase.into());
    }
    let modes = volume.map_or(&[][..], |volume| &volume.spec.access_modes);
    if *current.access_modes != *modes {
        let modes = Some(modes).filter(|modes| !modes.is_empty());
        changes.insert("accessModes".into(), json!(modes));
    }
    let attributes_class = &current.current_volume_attributes_class_name;
    match volume {
        None => {
            if !current.capacity.is_empty() {
                changes.insert("capacity".into(), Value::Null);
            }
            if !attributes_class.is_empty() {
                changes.insert("currentVolumeAttributesClassName".into(), Value::Null);
            }
        }
        Some(volume) => {
            if phase_changes && let Some(patch) = capacity_patch(claim, volume) {
                changes.insert("capacity".into(), patch);
            }
            let class = &volume.spec.volume_attributes_class_name;
            if &*current.phase == "Pending" && phase == "Bound" && attributes_class != class {
                let class = Some(class).filter(|class| !class.is_empty());
                changes.insert("currentVolumeAttributesClassName".into(), json!(class));
            }
        }
    }
    if changes.is_empty() {
        return None;
    }
    Some(change_claim(claim, &json!({"status": changes})).of_status())
}

/// Returns [`claim_status_update`] without a volume as the only write of a plan. It requires the observed resource
/// version.
fn sole_claim_phase_update(claim: &PersistentVolumeClaim, phase: &str) -> Option<Rewrite> {
    let change = claim_status_update(claim, phase, None)?;
    let version = Arc::from(&*claim.meta.resource_version);
    Some(Rewrite { resource_version: version, ..change })
}

/// Returns the merge patch of the claim's capacity, or `None` if the capacity is correct. While the volume is being
/// expanded, the claim has the capacity from before the expansion.
fn capacity_patch(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    if let Some(text) = volume.meta.annotations.get(storage::volume::PRE_RESIZE_CAPACITY) {
        let capacity = Quantity::parse(text).unwrap_or_else(|_| storage::volume::capacity(volume));
        return Some(json!({"storage": capacity.to_string()}));
    }
    let claim_capacity = &claim.status.capacity;
    let volume_capacity = &volume.spec.capacity;
    let claim_storage = claim_capacity.get("storage");
    if claim_storage.is_some() && claim_storage == volume_capacity.get("storage") {
        return None;
    }
    Some(map_patch(claim_capacity, volume_capacity))
}

/// Returns the merge patch that changes the map `from` into `to`.
fn map_patch(from: &Map<Quantity>, to: &Map<Quantity>) -> Value {
    let removed = from.iter().filter(|(key, _)| !to.contains(key));
    let removed = removed.map(|(key, _)| (key.to_owned(), Value::Null));
    let set = to.iter().map(|(key, amount)| (key.to_owned(), amount.to_string().into()));
    Value::Object(removed.chain(set).collect())
}
