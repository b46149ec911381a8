//! What becomes of a claim.

use super::{bind, change_claim, claim_phase_now, migration};
use crate::{storage::binder::Options, wire};
use evenkeel_api::{
    Text, storage,
    views::{PersistentVolume, PersistentVolumeClaim, StorageClass},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Note, Plan, Rewrite},
};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

/// The provisioner that makes folders.
pub(in crate::storage::binder) const HOST_PATH: &str = "kubernetes.io/host-path";

/// A claim and what may become its volume.
pub(in crate::storage::binder) struct Seen {
    pub(in crate::storage::binder) claim: Arc<PersistentVolumeClaim>,
    /// The volume that it names, if that is there.
    pub(in crate::storage::binder) named: Option<Arc<PersistentVolume>>,
    /// Volumes of its class that are nobody's, and those that are promised to it.
    pub(in crate::storage::binder) candidates: Vec<Arc<PersistentVolume>>,
    /// Its class, if that is there.
    pub(in crate::storage::binder) class: Option<Arc<StorageClass>>,
    /// The class of claims that name none.
    pub(in crate::storage::binder) default_class: Option<Arc<StorageClass>>,
    /// Pods that want it and have no node yet, by name.
    pub(in crate::storage::binder) waiting: Vec<Text>,
}

/// Decides.
pub(in crate::storage::binder) fn plan(seen: &Seen, options: &Options) -> Plan {
    let claim = &*seen.claim;
    if let Some(body) = migration::of_claim(claim) {
        return one(change(claim, &body));
    }
    if claim.meta.annotations.contains(storage::BIND_COMPLETED) {
        return bound(seen);
    }
    let mut plan =
        if claim.spec.volume_name.is_empty() { unbound(seen, options) } else { prebound(seen) };
    // What it waits for may come about without a change that says so.
    plan.requeue_after(options.sync_period);
    plan
}

fn one(change: Rewrite) -> Plan {
    Plan { actions: vec![change.into()], requeue: None }
}

/// A change of the claim, and the only one.
fn change(claim: &PersistentVolumeClaim, body: &serde_json::Value) -> Rewrite {
    let version = Arc::from(&*claim.meta.resource_version);
    Rewrite { resource_version: version, ..change_claim(claim, body) }
}

/// The claim is to wait; an event says why.
fn pending(claim: &PersistentVolumeClaim, why: Option<Note>) -> Plan {
    let mut plan = Plan::nothing();
    plan.actions.extend(why.map(Into::into));
    if let Some(change) = claim_phase_now(claim, "Pending") {
        plan.push(change);
    }
    plan
}

fn warning(claim: &PersistentVolumeClaim, reason: &'static str, message: String) -> Note {
    Note::warning(wire::target(claim), reason, message)
}

fn normal(claim: &PersistentVolumeClaim, reason: &'static str, message: String) -> Note {
    Note::normal(wire::target(claim), reason, message)
}

/// Any volume will do.
fn unbound(seen: &Seen, options: &Options) -> Plan {
    let claim = &*seen.claim;
    let delayed = seen.class.as_deref().is_some_and(storage::waits_for_consumer);
    if let Some(volume) = best(seen, delayed) {
        return Plan { actions: bind(volume, claim), requeue: None };
    }
    if let Some(class) = default_class(seen) {
        return one(change(claim, &json!({"spec": {"storageClassName": class}})));
    }
    if delayed && !claim.meta.annotations.contains(storage::SELECTED_NODE) {
        return pending(claim, Some(waits_for_pod(seen)));
    }
    if storage::class_of_claim(claim).is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return pending(claim, Some(normal(claim, "FailedBinding", message.to_owned())));
    }
    provision(seen, options)
}

/// The class that the claim gets, for it names none (KEP-3333).
pub(in crate::storage::binder) fn default_class(seen: &Seen) -> Option<&str> {
    if storage::names_class(&seen.claim) {
        return None;
    }
    seen.default_class.as_deref().map(|class| &*class.meta.name)
}

/// Of the volumes with just the access modes asked for, then of those with more, the best match.
fn best(seen: &Seen, delayed: bool) -> Option<&Arc<PersistentVolume>> {
    let mut groups: BTreeMap<(usize, Vec<&str>), Vec<&Arc<PersistentVolume>>> = BTreeMap::new();
    for volume in &seen.candidates {
        if storage::has_access_modes(&seen.claim, volume) {
            let mut modes: Vec<&str> =
                volume.spec.access_modes.iter().map(|mode| &**mode).collect();
            modes.sort_unstable();
            modes.dedup();
            groups.entry((modes.len(), modes)).or_default().push(volume);
        }
    }
    groups
        .into_values()
        .find_map(|volumes| storage::best_match(&seen.claim, volumes, None, delayed))
}

fn waits_for_pod(seen: &Seen) -> Note {
    let claim = &*seen.claim;
    match &seen.waiting[..] {
        [] => normal(
            claim,
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding".to_owned(),
        ),
        [pod] => {
            normal(claim, "WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled"))
        }
        pods => {
            let message = format!("waiting for pods {} to be scheduled", pods.join(","));
            normal(claim, "WaitForPodScheduled", message)
        }
    }
}

/// Who makes the claim's volume.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::storage::binder) enum Maker<'a> {
    /// A provisioner that watches claims.
    External(&'a str),
    /// A folder is made.
    HostPath,
    /// Nobody, and why.
    Nobody(String),
}

/// Who makes volumes of the claim's class.
pub(in crate::storage::binder) fn maker(seen: &Seen) -> Maker<'_> {
    let Some(class) = seen.class.as_deref() else {
        let name = storage::class_of_claim(&seen.claim);
        return Maker::Nobody(format!("storageclass.storage.k8s.io \"{name}\" not found"));
    };
    let provisioner = &*class.provisioner;
    match migration::driver(provisioner) {
        Some(driver) => Maker::External(driver),
        None if provisioner == HOST_PATH => Maker::HostPath,
        // A volume that was built in can be recycled, but not made.
        None if provisioner == "kubernetes.io/nfs" => {
            Maker::Nobody("no provisionable volume plugin matched".to_owned())
        }
        None if provisioner.starts_with("kubernetes.io/") => {
            Maker::Nobody(format!("no volume plugin matched name: {provisioner}"))
        }
        None => Maker::External(provisioner),
    }
}

/// Whether a volume is to be made for the claim, there being none that it could have.
pub(in crate::storage::binder) fn wants_volume(seen: &Seen, options: &Options) -> bool {
    let claim = &*seen.claim;
    let delayed = seen.class.as_deref().is_some_and(storage::waits_for_consumer);
    let annotations = &claim.meta.annotations;
    options.dynamic_provisioning
        && !annotations.contains(storage::BIND_COMPLETED)
        && claim.spec.volume_name.is_empty()
        && !storage::class_of_claim(claim).is_empty()
        && (!delayed || annotations.contains(storage::SELECTED_NODE))
        && best(seen, delayed).is_none()
}

fn provision(seen: &Seen, options: &Options) -> Plan {
    let claim = &*seen.claim;
    let mut plan = Plan::nothing();
    if !options.dynamic_provisioning {
        return plan;
    }
    match maker(seen) {
        Maker::Nobody(why) => plan.push(warning(claim, "ProvisioningFailed", why)),
        // The shell makes the folder; see `host_path`.
        Maker::HostPath => plan.actions.extend(hand_over(claim, HOST_PATH).map(Into::into)),
        Maker::External(provisioner) => {
            plan.actions.extend(hand_over(claim, provisioner).map(Into::into));
            plan.push(normal(claim, "ExternalProvisioning", format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                 the system administrator. If volume creation is delayed, please verify that the provisioner is running \
                 and correctly registered."
            )));
        }
    }
    plan
}

/// Names the provisioner on the claim, where it is not named.
fn hand_over(claim: &PersistentVolumeClaim, provisioner: &str) -> Option<Rewrite> {
    let annotations = &claim.meta.annotations;
    if annotations.get(storage::STORAGE_PROVISIONER) == Some(provisioner) {
        return None;
    }
    let mut notes = json!({
        storage::BETA_STORAGE_PROVISIONER: provisioner,
        storage::STORAGE_PROVISIONER: provisioner,
    });
    // Named by its driver, it is nothing that was built in.
    if annotations.contains(storage::MIGRATED_TO) {
        notes[storage::MIGRATED_TO] = serde_json::Value::Null;
    }
    let failed = warning(claim, "ProvisioningFailed", "Error saving claim: {error}".to_owned());
    let change = change(claim, &json!({"metadata": {"annotations": notes}}));
    Some(Rewrite {
        failed: Some(failed),
        on_error: evenkeel_runtime::plan::OnError::SkipRest,
        ..change
    })
}

/// A certain volume is asked for.
fn prebound(seen: &Seen) -> Plan {
    let claim = &*seen.claim;
    let Some(volume) = seen.named.as_deref() else { return pending(claim, None) };
    let name = &volume.meta.name;
    if volume.spec.claim_ref.is_none() {
        return match mismatch(volume, claim) {
            None => Plan { actions: bind(volume, claim), requeue: None },
            Some(why) => {
                let message = format!("Cannot bind to requested volume \"{name}\": {why}");
                pending(claim, Some(warning(claim, "VolumeMismatch", message)))
            }
        };
    }
    if storage::is_for_claim(volume, claim) {
        return Plan { actions: bind(volume, claim), requeue: None };
    }
    let message = format!("volume \"{name}\" already bound to a different claim.");
    let told = warning(claim, "FailedBinding", message);
    // Where a controller chose the volume, somebody took away the note that the binding was complete: nothing to mend.
    if claim.meta.annotations.contains(storage::BOUND_BY_CONTROLLER) {
        return Plan { actions: vec![told.into()], requeue: None };
    }
    pending(claim, Some(told))
}

/// Why the volume that the claim names is not for it.
fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    if volume.meta.deleting() {
        Some(format!("the volume is marked for deletion \"{}\"", volume.meta.name))
    } else if storage::capacity(volume).value() < storage::requested(claim).value() {
        Some("requested PV is too small".to_owned())
    } else if storage::class_of_volume(volume) != storage::class_of_claim(claim) {
        Some("storageClassName does not match".to_owned())
    } else if claim.spec.volume_attributes_class_name != volume.spec.volume_attributes_class_name {
        Some("volumeAttributesClassName does not match".to_owned())
    } else if storage::modes_differ(claim, volume) {
        Some("incompatible volumeMode".to_owned())
    } else if !storage::has_access_modes(claim, volume) {
        Some("incompatible accessMode".to_owned())
    } else {
        None
    }
}

/// The claim has been bound: it stays so, or is lost.
fn bound(seen: &Seen) -> Plan {
    let claim = &*seen.claim;
    if claim.spec.volume_name.is_empty() {
        return lost(
            claim,
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        );
    }
    let Some(volume) = seen.named.as_deref() else {
        return lost(
            claim,
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        );
    };
    match volume.spec.claim_ref.as_deref() {
        Some(other) if other.uid != claim.meta.uid => lost(
            claim,
            "ClaimMisbound",
            "Two claims are bound to the same volume, this one is bound incorrectly",
        ),
        _ => Plan { actions: bind(volume, claim), requeue: None },
    }
}

fn lost(claim: &PersistentVolumeClaim, reason: &'static str, message: &str) -> Plan {
    if &*claim.status.phase == "Lost" {
        return Plan::nothing();
    }
    let change = claim_phase_now(claim, "Lost");
    let told = warning(claim, reason, message.to_owned());
    Plan {
        actions: change
            .map(|change| Rewrite { done: Some(told), ..change }.into())
            .into_iter()
            .collect(),
        requeue: None,
    }
}

/// What there is to say of a claim.
pub(in crate::storage::binder) fn describe(seen: &Seen) -> Description {
    let (claim, mut description) = (&*seen.claim, Description::new());
    let class = storage::class_of_claim(claim);
    description.fact("class", if class.is_empty() { "none" } else { class });
    description.fact("asks for", storage::requested(claim));
    if claim.spec.volume_name.is_empty() {
        description.fact("volumes that come into question", seen.candidates.len());
    } else {
        description.fact("volume", &claim.spec.volume_name);
    }
    if claim.meta.annotations.contains(storage::BIND_COMPLETED) {
        return description;
    }
    match (&seen.named, seen.waiting.as_slice()) {
        (None, _) if !claim.spec.volume_name.is_empty() => {
            description.waits(format!("there is no volume {}", claim.spec.volume_name));
        }
        (Some(volume), _) if volume.spec.claim_ref.is_some() => {
            description.waits(format!("volume {} is another claim's", volume.meta.name));
        }
        (_, []) => description.waits("no volume fits"),
        (_, pods) => description.waits(format!("not scheduled yet: {}", pods.join(", "))),
    }
    description
}
