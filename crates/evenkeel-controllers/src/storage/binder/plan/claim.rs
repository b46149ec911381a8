//! What becomes of a claim.

use super::{bind, change_claim, claim_phase_now, migration};
use crate::{
    storage::binder::{Options, host_path},
    wire,
};
use evenkeel_api::{
    Text,
    views::{PersistentVolume, PersistentVolumeClaim, StorageClass},
};
use evenkeel_component_helpers::storage::volume;
use evenkeel_runtime::{
    introspect::Description,
    plan::{EventRecord, Outcomes, Plan, Rewrite, Steps},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The provisioner that makes folders.
pub(in crate::storage::binder) const HOST_PATH: &str = "kubernetes.io/host-path";

/// A claim and what may become its volume.
#[derive(Default)]
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

/// What a claim gets next. The order is that of upstream's `syncClaim` and `syncUnboundClaim`.
#[derive(Debug, PartialEq)]
pub(in crate::storage::binder) enum Next<'a> {
    /// The note of the driver that took over what was built in is put right.
    Migrate(Value),
    /// It has been bound: it stays so, or is lost.
    Bound,
    /// It names the volume that it wants.
    Prebound,
    /// This volume is for it, or the best of those that are nobody's.
    Bind(&'a Arc<PersistentVolume>),
    /// It names no class, and there is a default one (KEP-3333).
    DefaultClass(&'a str),
    /// Its class has `volumeBindingMode: WaitForFirstConsumer`, and no node is selected for a pod that uses it.
    WaitForFirstConsumer,
    /// No volume fits, and it has no class that one could be made by.
    NoClass,
    /// A volume is to be made.
    Provision(Provisioner<'a>),
}

/// Who makes a claim's volume.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::storage::binder) enum Provisioner<'a> {
    /// A provisioner that watches claims.
    External(&'a str),
    /// A folder is made.
    HostPath,
    /// Nobody, and why.
    Nobody(String),
    /// Nobody: `--enable-dynamic-provisioning` is off.
    Off,
}

/// Decides what comes next.
pub(in crate::storage::binder) fn next<'a>(seen: &'a Seen, options: &Options) -> Next<'a> {
    let claim = &*seen.claim;
    let annotations = &claim.meta.annotations;
    if let Some(body) = migration::of_claim(claim) {
        return Next::Migrate(body);
    }
    if annotations.contains(volume::BIND_COMPLETED) {
        return Next::Bound;
    }
    if !claim.spec.volume_name.is_empty() {
        return Next::Prebound;
    }
    let delayed = seen.class.as_deref().is_some_and(volume::waits_for_consumer);
    if let Some(volume) = best(seen, delayed) {
        Next::Bind(volume)
    } else if let Some(class) = default_class(seen) {
        Next::DefaultClass(class)
    } else if delayed && !annotations.contains(volume::SELECTED_NODE) {
        Next::WaitForFirstConsumer
    } else if volume::class_of_claim(claim).is_empty() {
        Next::NoClass
    } else {
        Next::Provision(provisioner(seen, options))
    }
}

/// The step after these outcomes: a folder is made once the claim names its provisioner.
pub(in crate::storage::binder) fn next_step(
    seen: &Seen,
    options: &Options,
    done: &Outcomes,
) -> Option<Plan> {
    let next = next(seen, options);
    Steps::next(done, |steps| {
        let plan = plan(seen, &next, options);
        if next != Next::Provision(Provisioner::HostPath) {
            return Ok(plan);
        }
        steps.all(plan)?;
        host_path::provision(seen, options, steps)
    })
}

/// What is done for it.
pub(in crate::storage::binder) fn plan(seen: &Seen, next: &Next<'_>, options: &Options) -> Plan {
    let claim = &*seen.claim;
    let mut plan = match next {
        Next::Migrate(body) => return one(change(claim, body)),
        Next::Bound => return bound(seen),
        Next::Prebound => prebound(seen),
        Next::Bind(volume) => Plan::of(bind(volume, claim)),
        Next::DefaultClass(class) => {
            one(change(claim, &json!({"spec": {"storageClassName": class}})))
        }
        Next::WaitForFirstConsumer => pending(claim, Some(waits_for_pod(seen))),
        Next::NoClass => {
            let why = "no persistent volumes available for this claim and no storage class is set";
            pending(claim, Some(normal(claim, "FailedBinding", why.to_owned())))
        }
        Next::Provision(provisioner) => provision(claim, provisioner),
    };
    // What it waits for may come about without a change that says so.
    plan.requeue_after(options.sync_period);
    plan
}

fn one(change: Rewrite) -> Plan {
    Plan::one(change)
}

/// A change of the claim, and the only one.
fn change(claim: &PersistentVolumeClaim, body: &Value) -> Rewrite {
    let version = Arc::from(&*claim.meta.resource_version);
    Rewrite { resource_version: version, ..change_claim(claim, body) }
}

/// The claim is to wait; an event says why.
fn pending(claim: &PersistentVolumeClaim, why: Option<EventRecord>) -> Plan {
    let mut plan = Plan::nothing();
    plan.actions.extend(why.map(Into::into));
    if let Some(change) = claim_phase_now(claim, "Pending") {
        plan.push(change);
    }
    plan
}

fn warning(claim: &PersistentVolumeClaim, reason: &'static str, message: String) -> EventRecord {
    EventRecord::warning(wire::target(claim), reason, message)
}

fn normal(claim: &PersistentVolumeClaim, reason: &'static str, message: String) -> EventRecord {
    EventRecord::normal(wire::target(claim), reason, message)
}

/// The class that the claim gets, for it names none (KEP-3333).
fn default_class(seen: &Seen) -> Option<&str> {
    if volume::names_class(&seen.claim) {
        return None;
    }
    seen.default_class.as_deref().map(|class| &*class.meta.name)
}

/// Of the volumes with just the `accessModes` asked for, then of those with more, the best match ([`volume::best_match`]):
/// the one whose `claimRef` is the claim, or else the smallest that is big enough, of the same `storageClassName`,
/// `volumeMode` and `volumeAttributesClassName`, as `selector` says, and free.
fn best(seen: &Seen, delayed: bool) -> Option<&Arc<PersistentVolume>> {
    let mut groups: BTreeMap<(usize, Vec<&str>), Vec<&Arc<PersistentVolume>>> = BTreeMap::new();
    for volume in &seen.candidates {
        if volume::has_access_modes(&seen.claim, volume) {
            let mut modes: Vec<&str> =
                volume.spec.access_modes.iter().map(|mode| &**mode).collect();
            modes.sort_unstable();
            modes.dedup();
            groups.entry((modes.len(), modes)).or_default().push(volume);
        }
    }
    groups.into_values().find_map(|volumes| volume::best_match(&seen.claim, volumes, None, delayed))
}

fn waits_for_pod(seen: &Seen) -> EventRecord {
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

/// Who makes volumes of the claim's class.
fn provisioner<'a>(seen: &'a Seen, options: &Options) -> Provisioner<'a> {
    if !options.dynamic_provisioning {
        return Provisioner::Off;
    }
    let Some(class) = seen.class.as_deref() else {
        let name = volume::class_of_claim(&seen.claim);
        return Provisioner::Nobody(format!("storageclass.storage.k8s.io \"{name}\" not found"));
    };
    let name = &*class.provisioner;
    match migration::driver(name) {
        Some(driver) => Provisioner::External(driver),
        None if name == HOST_PATH => Provisioner::HostPath,
        // A volume that was built in can be recycled, but not made.
        None if name == "kubernetes.io/nfs" => {
            Provisioner::Nobody("no provisionable volume plugin matched".to_owned())
        }
        // Among them `kubernetes.io/no-provisioner`, by which a class says that users make its volumes.
        None if name.starts_with("kubernetes.io/") => {
            Provisioner::Nobody(format!("no volume plugin matched name: {name}"))
        }
        None => Provisioner::External(name),
    }
}

fn provision(claim: &PersistentVolumeClaim, provisioner: &Provisioner<'_>) -> Plan {
    let mut plan = Plan::nothing();
    match provisioner {
        Provisioner::Off => {}
        Provisioner::Nobody(why) => plan.push(warning(claim, "ProvisioningFailed", why.clone())),
        // The next step makes the folder; see `host_path`. Upstream's `provisionClaimOperation` records no event when the claim
        // cannot be saved, `provisionClaimOperationExternal` does.
        Provisioner::HostPath => {
            plan.actions.extend(set_provisioner(claim, HOST_PATH).map(Into::into));
        }
        Provisioner::External(name) => {
            let message = "Error saving claim: {error}".to_owned();
            let failed = Some(warning(claim, "ProvisioningFailed", message));
            let change = set_provisioner(claim, name).map(|change| Rewrite { failed, ..change });
            plan.actions.extend(change.map(Into::into));
            plan.push(normal(claim, "ExternalProvisioning", format!(
                "Waiting for a volume to be created either by the external provisioner '{name}' or manually by \
                 the system administrator. If volume creation is delayed, please verify that the provisioner is running \
                 and correctly registered."
            )));
        }
    }
    plan
}

/// Names the provisioner on the claim, where it is not named.
fn set_provisioner(claim: &PersistentVolumeClaim, provisioner: &str) -> Option<Rewrite> {
    let annotations = &claim.meta.annotations;
    if annotations.get(volume::STORAGE_PROVISIONER) == Some(provisioner) {
        return None;
    }
    let mut notes = json!({
        volume::BETA_STORAGE_PROVISIONER: provisioner,
        volume::STORAGE_PROVISIONER: provisioner,
    });
    // Named by its driver, it is nothing that was built in.
    if annotations.contains(volume::MIGRATED_TO) {
        notes[volume::MIGRATED_TO] = Value::Null;
    }
    let change = change(claim, &json!({"metadata": {"annotations": notes}}));
    Some(Rewrite { on_error: evenkeel_runtime::plan::OnError::SkipRest, ..change })
}

/// A certain volume is asked for.
fn prebound(seen: &Seen) -> Plan {
    let claim = &*seen.claim;
    let Some(volume) = seen.named.as_deref() else { return pending(claim, None) };
    let name = &volume.meta.name;
    if volume.spec.claim_ref.is_none() {
        return match mismatch(volume, claim) {
            None => Plan::of(bind(volume, claim)),
            Some(why) => {
                let message = format!("Cannot bind to requested volume \"{name}\": {why}");
                pending(claim, Some(warning(claim, "VolumeMismatch", message)))
            }
        };
    }
    if volume::is_for_claim(volume, claim) {
        return Plan::of(bind(volume, claim));
    }
    let message = format!("volume \"{name}\" already bound to a different claim.");
    let event = warning(claim, "FailedBinding", message);
    // Where a controller chose the volume, somebody took away the note that the binding was complete: nothing to mend.
    if claim.meta.annotations.contains(volume::BOUND_BY_CONTROLLER) {
        return Plan::one(event);
    }
    pending(claim, Some(event))
}

/// Why the volume that the claim names is not for it.
fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    if volume.meta.deleting() {
        Some(format!("the volume is marked for deletion \"{}\"", volume.meta.name))
    } else if volume::capacity(volume).value() < volume::requested(claim).value() {
        Some("requested PV is too small".to_owned())
    } else if volume::class_of_volume(volume) != volume::class_of_claim(claim) {
        Some("storageClassName does not match".to_owned())
    } else if claim.spec.volume_attributes_class_name != volume.spec.volume_attributes_class_name {
        Some("volumeAttributesClassName does not match".to_owned())
    } else if volume::modes_differ(claim, volume) {
        Some("incompatible volumeMode".to_owned())
    } else if !volume::has_access_modes(claim, volume) {
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
        _ => Plan::of(bind(volume, claim)),
    }
}

fn lost(claim: &PersistentVolumeClaim, reason: &'static str, message: &str) -> Plan {
    if &*claim.status.phase == "Lost" {
        return Plan::nothing();
    }
    let change = claim_phase_now(claim, "Lost");
    let event = warning(claim, reason, message.to_owned());
    let change = change.map(|change| Rewrite { done: Some(event), ..change }.into());
    Plan::of(change.into_iter().collect())
}

/// What there is to say of a claim.
pub(in crate::storage::binder) fn describe(seen: &Seen) -> Description {
    let (claim, mut description) = (&*seen.claim, Description::new());
    let class = volume::class_of_claim(claim);
    description.fact("class", if class.is_empty() { "none" } else { class });
    description.fact("asks for", volume::requested(claim));
    if claim.spec.volume_name.is_empty() {
        description.fact("volumes that come into question", seen.candidates.len());
    } else {
        description.fact("volume", &claim.spec.volume_name);
    }
    if claim.meta.annotations.contains(volume::BIND_COMPLETED) {
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
