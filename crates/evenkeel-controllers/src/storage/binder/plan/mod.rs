//! Decisions about claims and volumes.
//!
//! A binding consists of two references, written in this order: the volume's `claimRef`, then the claim's `volumeName`.
//! After an interruption, the next pass of either object completes it.
//!
//! | documented | where |
//! |---|---|
//! | order of the steps of a claim (`syncClaim`, `syncUnboundClaim`) | `claim::next` |
//! | a claim's `accessModes`, `volumeMode`, `storage` requested, `selector`, `storageClassName`, `volumeAttributesClassName` | `claim::best`, `../../../../../evenkeel-component-helpers/src/storage/volume.rs` |
//! | reserving by a claim's `volumeName` | `claim::prebound`, `claim::mismatch` |
//! | reserving by a volume's `claimRef` | `claim::best`, `claim_ref` |
//! | the default class (`storageclass.kubernetes.io/is-default-class`), also for existing claims | `claim::default_class` |
//! | `volumeBindingMode`: `WaitForFirstConsumer`; `volume.kubernetes.io/selected-node`, which the scheduler sets | `claim::next`, `claim::waits_for_pod` |
//! | dynamic provisioning: `provisioner`, `kubernetes.io/no-provisioner` | `claim::provisioner` |
//! | `volume.kubernetes.io/storage-provisioner` | `claim::set_provisioner` |
//! | phases of claims: `Pending`, `Bound`, `Lost` | `claim::pending`, `bind`, `claim::lost` |
//! | phases of volumes: `Available`, `Bound`, `Released`, `Failed` | `volume::plan`, `reclaim::fail` |
//! | a volume whose claim is bound elsewhere | `volume::claim_bound_elsewhere` |
//! | `persistentVolumeReclaimPolicy`: `Retain`, `Delete` | `reclaim::plan` |
//! | `persistentVolumeReclaimPolicy`: `Recycle`, the recycler's pod template | `reclaim::recycle`, `reclaim::create_recycler_pod` |
//! | finalizer `kubernetes.io/pv-controller` | `reclaim::finalizers` |
//! | CSI migration: `pv.kubernetes.io/migrated-to` | `migration::annotation` |
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
use evenkeel_runtime::plan::{Action, OnError, PatchForm, Rewrite};
use serde_json::{Map as Object, Value, json};
use std::sync::Arc;

/// Annotation of a volume that is being expanded: its capacity before the expansion.
const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// Consecutive writes of one object. Each write uses the resource version that the previous one returned.
struct Changes {
    actions: Vec<Action>,
    version: Arc<str>,
}

impl Changes {
    fn of(version: &str) -> Self {
        Self { actions: Vec::new(), version: Arc::from(version) }
    }

    fn push(&mut self, change: Rewrite) {
        let version = std::mem::replace(&mut self.version, Arc::from(""));
        self.actions.push(
            Rewrite { resource_version: version, on_error: OnError::SkipRest, ..change }.into(),
        );
    }
}

fn change_volume(volume: &PersistentVolume, body: &Value) -> Rewrite {
    Rewrite::new(wire::target(volume), "", PatchForm::Merge, body.to_string())
}

fn change_claim(claim: &PersistentVolumeClaim, body: &Value) -> Rewrite {
    Rewrite::new(wire::target(claim), "", PatchForm::Merge, body.to_string())
}

/// Returns the missing writes that bind the volume and the claim: `claimRef` and phase of the volume, `volumeName`
/// and status of the claim.
fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Vec<Action> {
    let mut volume_changes = Changes::of(&volume.meta.resource_version);
    if let Some(body) = claim_ref(volume, claim) {
        volume_changes.push(change_volume(volume, &body));
    }
    if let Some(change) = phase(volume, "Bound", "") {
        volume_changes.push(change);
    }
    let mut claim_changes = Changes::of(&claim.meta.resource_version);
    if let Some(body) = volume_name(claim, volume) {
        claim_changes.push(change_claim(claim, &body));
    }
    if let Some(change) = claim_status(claim, "Bound", Some(volume)) {
        claim_changes.push(change);
    }
    volume_changes.actions.extend(claim_changes.actions);
    volume_changes.actions
}

/// Returns the update that sets the volume's `claimRef`, or `None` if it is complete. The update annotates the volume
/// as bound by the controller, unless a user reserved the volume for the claim.
fn claim_ref(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Value> {
    let mut body = json!({});
    let known = volume.spec.claim_ref.as_deref();
    let complete = known.is_some_and(|known| {
        known.name == claim.meta.name
            && known.namespace == claim.meta.namespace
            && known.uid == claim.meta.uid
    });
    if !complete {
        let mut reference = storage::volume::claim_reference(claim);
        reference["fieldPath"] = Value::Null;
        body["spec"]["claimRef"] = reference;
    }
    let chosen = !storage::volume::is_for_claim(volume, claim);
    if chosen && !volume.meta.annotations.contains(storage::volume::BOUND_BY_CONTROLLER) {
        body["metadata"]["annotations"][storage::volume::BOUND_BY_CONTROLLER] = "yes".into();
    }
    (body != json!({})).then_some(body)
}

/// Returns the update that sets the claim's `volumeName`, or `None` if it is complete.
fn volume_name(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let (mut body, annotations) = (json!({}), &claim.meta.annotations);
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

/// Returns the writes that unbind the volume. If the controller set the `claimRef`, they remove it. If a user
/// reserved the volume, they remove only the uid.
fn unbind(volume: &PersistentVolume) -> Vec<Action> {
    let mut changes = Changes::of(&volume.meta.resource_version);
    let body = if volume.meta.annotations.contains(storage::volume::BOUND_BY_CONTROLLER) {
        json!({
            "metadata": {"annotations": {storage::volume::BOUND_BY_CONTROLLER: null}},
            "spec": {"claimRef": null},
        })
    } else {
        json!({"spec": {"claimRef": {"uid": null}}})
    };
    changes.push(change_volume(volume, &body));
    if let Some(change) = phase(volume, "Available", "") {
        changes.push(change);
    }
    changes.actions
}

/// Returns the update of the volume's phase, or `None` if it has that phase.
fn phase(volume: &PersistentVolume, phase: &str, message: &str) -> Option<Rewrite> {
    if *volume.status.phase == *phase {
        return None;
    }
    let message = Some(message).filter(|message| !message.is_empty());
    let body = json!({"status": {"phase": phase, "message": message}});
    Some(change_volume(volume, &body).of_status())
}

/// Returns the update of the volume's phase, with its resource version, as the only write of a plan.
fn phase_now(volume: &PersistentVolume, to: &str, message: &str) -> Option<Rewrite> {
    let change = phase(volume, to, message)?;
    Some(Rewrite { resource_version: Arc::from(&*volume.meta.resource_version), ..change })
}

/// Returns the update of the claim's status, or `None` if it is correct. Without a volume, the update removes access
/// modes and capacity. It sets the capacity only when the phase changes; afterwards the expander updates the
/// capacity.
fn claim_status(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Option<Rewrite> {
    let (was, mut status) = (&claim.status, Object::new());
    let phase_changes = *was.phase != *phase;
    if phase_changes {
        status.insert("phase".into(), phase.into());
    }
    let modes = volume.map_or(&[][..], |volume| &volume.spec.access_modes);
    if *was.access_modes != *modes {
        let modes = Some(modes).filter(|modes| !modes.is_empty());
        status.insert("accessModes".into(), json!(modes));
    }
    let attributes = &was.current_volume_attributes_class_name;
    match volume {
        None => {
            if !was.capacity.is_empty() {
                status.insert("capacity".into(), Value::Null);
            }
            if !attributes.is_empty() {
                status.insert("currentVolumeAttributesClassName".into(), Value::Null);
            }
        }
        Some(volume) => {
            if let Some(capacity) = capacity(claim, volume).filter(|_| phase_changes) {
                status.insert("capacity".into(), capacity);
            }
            let class = &volume.spec.volume_attributes_class_name;
            if &*was.phase == "Pending" && phase == "Bound" && attributes != class {
                let class = Some(class).filter(|class| !class.is_empty());
                status.insert("currentVolumeAttributesClassName".into(), json!(class));
            }
        }
    }
    let body = json!({"status": status});
    (!status.is_empty()).then(|| change_claim(claim, &body).of_status())
}

/// Returns the update of the claim's phase, with its resource version, as the only write of a plan.
fn claim_phase_now(claim: &PersistentVolumeClaim, phase: &str) -> Option<Rewrite> {
    let change = claim_status(claim, phase, None)?;
    let version = Arc::from(&*claim.meta.resource_version);
    Some(Rewrite { resource_version: version, ..change })
}

/// Returns the merge patch of the claim's capacity, or `None` if it is correct.
fn capacity(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let (was, has) = (&claim.status.capacity, &volume.spec.capacity);
    if let Some(before) = volume.meta.annotations.get(PRE_RESIZE) {
        let before = Quantity::parse(before).unwrap_or_else(|_| storage::volume::capacity(volume));
        return Some(json!({"storage": before.to_string()}));
    }
    if was.get("storage").is_some() && was.get("storage") == has.get("storage") {
        return None;
    }
    Some(replacing(was, has))
}

/// Returns the merge patch that changes one map into the other.
fn replacing(was: &Map<Quantity>, becomes: &Map<Quantity>) -> Value {
    let removed = was.iter().filter(|(key, _)| !becomes.contains(key));
    let removed = removed.map(|(key, _)| (key.to_owned(), Value::Null));
    let new = becomes.iter().map(|(key, amount)| (key.to_owned(), amount.to_string().into()));
    Value::Object(removed.chain(new).collect())
}
