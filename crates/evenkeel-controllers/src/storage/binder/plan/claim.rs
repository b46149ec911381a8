//! Decision about a claim.
//!
//! Upstream: `syncClaim`.

use super::{bind, change_claim, migration, sole_claim_phase_update};
use crate::{
    storage::{
        binder::{Options, host_path},
        persistentvolumeclaimprotection,
    },
    wire,
};
use evenkeel_api::{
    Text,
    views::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass},
};
use evenkeel_component_helpers::storage::volume;
use evenkeel_runtime::{
    introspect::Description,
    plan::{EventRecord, Outcomes, Plan, Rewrite, Steps},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Name of the hostPath provisioner.
pub(in crate::storage::binder) const HOST_PATH: &str = "kubernetes.io/host-path";

/// A claim, its class, and the volumes to which it may be bound.
#[derive(Default)]
pub(in crate::storage::binder) struct Observed {
    pub(in crate::storage::binder) claim: Arc<PersistentVolumeClaim>,
    /// The volume in `spec.volumeName`, if it exists.
    pub(in crate::storage::binder) named_volume: Option<Arc<PersistentVolume>>,
    /// Available volumes of the claim's class, and volumes whose `claimRef` is the claim.
    pub(in crate::storage::binder) candidates: Vec<Arc<PersistentVolume>>,
    /// The claim's class, if it exists.
    pub(in crate::storage::binder) class: Option<Arc<StorageClass>>,
    /// Default class of the cluster, for a claim that sets no class.
    pub(in crate::storage::binder) default_class: Option<Arc<StorageClass>>,
    /// Names of unscheduled pods that use the claim, sorted.
    pub(in crate::storage::binder) unscheduled_pods: Vec<Text>,
}

/// Returns the names of the unscheduled pods among a claim's users, sorted.
pub(in crate::storage::binder) fn unscheduled(users: &[Arc<Pod>]) -> Vec<Text> {
    let is_unscheduled = |pod: &&Arc<Pod>| {
        pod.spec.node_name.is_empty() && !persistentvolumeclaimprotection::is_terminated(pod)
    };
    let mut names: Vec<Text> =
        users.iter().filter(is_unscheduled).map(|pod| pod.meta.name.clone()).collect();
    names.sort_unstable();
    names
}

/// Next step of a claim, in the order of upstream's `syncClaim` and `syncUnboundClaim`.
#[derive(Debug, PartialEq)]
pub(in crate::storage::binder) enum Step<'a> {
    /// Update the annotation for CSI migration.
    Migrate(Value),
    /// Check a claim that was bound before: it stays bound, or is lost.
    CheckBound,
    /// Bind the claim to the volume that it requests by `volumeName`.
    BindRequested,
    /// Bind the claim to this volume: the volume whose `claimRef` is the claim, otherwise the best available one.
    Bind(&'a Arc<PersistentVolume>),
    /// Set the cluster's default class, because the claim sets none (KEP-3333).
    SetDefaultClass(&'a str),
    /// Wait, because the class has `volumeBindingMode: WaitForFirstConsumer`, and the scheduler has selected no node
    /// for a pod that uses the claim.
    WaitForFirstConsumer,
    /// Wait for a volume. No volume matches, and the claim has no class to provision one.
    WaitForVolume,
    /// Provision a volume.
    Provision(Provisioner<'a>),
}

/// Provisioner of a claim's volume.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::storage::binder) enum Provisioner<'a> {
    /// An external provisioner with this name.
    External(&'a str),
    /// The built-in hostPath provisioner.
    HostPath,
    /// No provisioner, for this reason.
    Unavailable(String),
    /// No provisioner, because `--enable-dynamic-provisioning` is off.
    Disabled,
}

/// Returns the next step of a claim.
pub(in crate::storage::binder) fn choose_step<'a>(
    observed: &'a Observed,
    options: &Options,
) -> Step<'a> {
    let claim = &*observed.claim;
    let annotations = &claim.meta.annotations;
    if let Some(body) = migration::claim_update(claim) {
        return Step::Migrate(body);
    }
    if annotations.contains(volume::BIND_COMPLETED) {
        return Step::CheckBound;
    }
    if !claim.spec.volume_name.is_empty() {
        return Step::BindRequested;
    }
    let is_delayed = observed.class.as_deref().is_some_and(volume::waits_for_consumer);
    if let Some(volume) = find_best_match_for_claim(observed, is_delayed) {
        Step::Bind(volume)
    } else if let Some(class) = default_class(observed) {
        Step::SetDefaultClass(class)
    } else if is_delayed && !annotations.contains(volume::SELECTED_NODE) {
        Step::WaitForFirstConsumer
    } else if volume::class_of_claim(claim).is_empty() {
        Step::WaitForVolume
    } else {
        Step::Provision(find_provisioner(observed, options))
    }
}

/// Returns the plan after these outcomes. The hostPath provisioner creates the folder only after the claim's
/// annotation names it as provisioner.
pub(in crate::storage::binder) fn plan(
    observed: &Observed,
    options: &Options,
    outcomes: &Outcomes,
) -> Option<Plan> {
    let step = choose_step(observed, options);
    Steps::next(outcomes, |steps| {
        let plan = plan_step(observed, &step, options);
        if step != Step::Provision(Provisioner::HostPath) {
            return Ok(plan);
        }
        steps.all(plan)?;
        host_path::provision(observed, options, steps)
    })
}

/// Returns the actions of a step. For [`Provisioner::HostPath`], leaves out the actions of the provisioner.
pub(in crate::storage::binder) fn plan_step(
    observed: &Observed,
    step: &Step<'_>,
    options: &Options,
) -> Plan {
    let claim = &*observed.claim;
    let mut plan = match step {
        Step::Migrate(body) => return Plan::one(sole_change(claim, body)),
        Step::CheckBound => return check_bound(observed),
        Step::BindRequested => bind_requested_volume(observed),
        Step::Bind(volume) => Plan::of(bind(volume, claim)),
        Step::SetDefaultClass(class) => {
            Plan::one(sole_change(claim, &json!({"spec": {"storageClassName": class}})))
        }
        Step::WaitForFirstConsumer => set_pending(claim, Some(waiting_event(observed))),
        Step::WaitForVolume => {
            let why = "no persistent volumes available for this claim and no storage class is set";
            set_pending(claim, Some(normal_event(claim, "FailedBinding", why.to_owned())))
        }
        Step::Provision(provisioner) => provision(claim, provisioner),
    };
    // Check again after the period, because some waits end without an event.
    plan.requeue_after(options.sync_period);
    plan
}

/// Returns the only update of the claim in a plan. It requires the observed resource version.
fn sole_change(claim: &PersistentVolumeClaim, body: &Value) -> Rewrite {
    let version = Arc::from(&*claim.meta.resource_version);
    Rewrite { resource_version: version, ..change_claim(claim, body) }
}

/// Sets the phase `Pending`, and records the event.
fn set_pending(claim: &PersistentVolumeClaim, event: Option<EventRecord>) -> Plan {
    let mut plan = Plan::nothing();
    plan.actions.extend(event.map(Into::into));
    if let Some(change) = sole_claim_phase_update(claim, "Pending") {
        plan.push(change);
    }
    plan
}

/// Returns a warning event about a claim.
fn warning_event(
    claim: &PersistentVolumeClaim,
    reason: &'static str,
    message: String,
) -> EventRecord {
    EventRecord::warning(wire::target(claim), reason, message)
}

/// Returns a normal event about a claim.
fn normal_event(
    claim: &PersistentVolumeClaim,
    reason: &'static str,
    message: String,
) -> EventRecord {
    EventRecord::normal(wire::target(claim), reason, message)
}

/// Returns the default class, unless the claim sets a class (KEP-3333).
fn default_class(observed: &Observed) -> Option<&str> {
    if volume::names_class(&observed.claim) {
        return None;
    }
    observed.default_class.as_deref().map(|class| &*class.meta.name)
}

/// Returns the best volume for the claim, if any. Volumes with exactly the requested `accessModes` precede volumes with
/// more modes. Among volumes with the same modes, [`volume::best_match`] prefers the volume whose `claimRef` is the
/// claim. Otherwise, it selects the smallest available volume that is large enough, matches `selector`, and has the
/// claim's class, attributes class and volume mode.
///
/// Upstream: `findBestMatchForClaim`.
fn find_best_match_for_claim(
    observed: &Observed,
    is_delayed: bool,
) -> Option<&Arc<PersistentVolume>> {
    // Groups of volumes by their access modes. Groups with fewer modes come first.
    let mut groups: BTreeMap<(usize, Vec<&str>), Vec<&Arc<PersistentVolume>>> = BTreeMap::new();
    for volume in &observed.candidates {
        if volume::has_access_modes(&observed.claim, volume) {
            let mut modes: Vec<&str> =
                volume.spec.access_modes.iter().map(|mode| &**mode).collect();
            modes.sort_unstable();
            modes.dedup();
            groups.entry((modes.len(), modes)).or_default().push(volume);
        }
    }
    groups
        .into_values()
        .find_map(|volumes| volume::best_match(&observed.claim, volumes, None, is_delayed))
}

/// Returns the event about a claim that waits for its first consumer, or for the scheduling of its pods.
fn waiting_event(observed: &Observed) -> EventRecord {
    let claim = &*observed.claim;
    match &observed.unscheduled_pods[..] {
        [] => normal_event(
            claim,
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding".to_owned(),
        ),
        [pod] => {
            let message = format!("waiting for pod {pod} to be scheduled");
            normal_event(claim, "WaitForPodScheduled", message)
        }
        pods => {
            let message = format!("waiting for pods {} to be scheduled", pods.join(","));
            normal_event(claim, "WaitForPodScheduled", message)
        }
    }
}

/// Returns the provisioner that the claim's class names.
fn find_provisioner<'a>(observed: &'a Observed, options: &Options) -> Provisioner<'a> {
    if !options.dynamic_provisioning {
        return Provisioner::Disabled;
    }
    let Some(class) = observed.class.as_deref() else {
        let name = volume::class_of_claim(&observed.claim);
        return Provisioner::Unavailable(format!(
            "storageclass.storage.k8s.io \"{name}\" not found"
        ));
    };
    let name = &*class.provisioner;
    match migration::driver(name) {
        Some(driver) => Provisioner::External(driver),
        None if name == HOST_PATH => Provisioner::HostPath,
        // The in-tree NFS plugin can recycle volumes, but not provision them.
        None if name == "kubernetes.io/nfs" => {
            Provisioner::Unavailable("no provisionable volume plugin matched".to_owned())
        }
        // For example `kubernetes.io/no-provisioner`: users create the volumes of such a class.
        None if name.starts_with("kubernetes.io/") => {
            Provisioner::Unavailable(format!("no volume plugin matched name: {name}"))
        }
        None => Provisioner::External(name),
    }
}

/// Returns the plan for a claim that must be provisioned.
fn provision(claim: &PersistentVolumeClaim, provisioner: &Provisioner<'_>) -> Plan {
    let mut plan = Plan::nothing();
    match provisioner {
        Provisioner::Disabled => {}
        Provisioner::Unavailable(why) => {
            plan.push(warning_event(claim, "ProvisioningFailed", why.clone()));
        }
        // The next step creates the folder (see `host_path`). If the update of the claim fails, upstream's
        // `provisionClaimOperation` records no event, but `provisionClaimOperationExternal` does.
        Provisioner::HostPath => {
            plan.actions.extend(set_provisioner(claim, HOST_PATH).map(Into::into));
        }
        Provisioner::External(name) => {
            let message = "Error saving claim: {error}".to_owned();
            let failed = Some(warning_event(claim, "ProvisioningFailed", message));
            let change = set_provisioner(claim, name).map(|change| Rewrite { failed, ..change });
            plan.actions.extend(change.map(Into::into));
            plan.push(normal_event(claim, "ExternalProvisioning", format!(
                "Waiting for a volume to be created either by the external provisioner '{name}' or manually by \
                 the system administrator. If volume creation is delayed, please verify that the provisioner is running \
                 and correctly registered."
            )));
        }
    }
    plan
}

/// Returns the update that names the provisioner in the claim's annotations, or `None` if it is named already.
fn set_provisioner(claim: &PersistentVolumeClaim, provisioner: &str) -> Option<Rewrite> {
    let annotations = &claim.meta.annotations;
    if annotations.get(volume::STORAGE_PROVISIONER) == Some(provisioner) {
        return None;
    }
    let mut new_annotations = json!({
        volume::BETA_STORAGE_PROVISIONER: provisioner,
        volume::STORAGE_PROVISIONER: provisioner,
    });
    // The annotation `migrated-to` belongs to the previous provisioner, so it is removed. The next reconciliation
    // computes it again.
    if annotations.contains(volume::MIGRATED_TO) {
        new_annotations[volume::MIGRATED_TO] = Value::Null;
    }
    let change = sole_change(claim, &json!({"metadata": {"annotations": new_annotations}}));
    Some(Rewrite { on_error: evenkeel_runtime::plan::OnError::SkipRest, ..change })
}

/// Binds the claim to the volume that it names, unless the volume does not match, or belongs to another claim.
fn bind_requested_volume(observed: &Observed) -> Plan {
    let claim = &*observed.claim;
    let Some(volume) = observed.named_volume.as_deref() else { return set_pending(claim, None) };
    let name = &volume.meta.name;
    if volume.spec.claim_ref.is_none() {
        return match mismatch(volume, claim) {
            None => Plan::of(bind(volume, claim)),
            Some(why) => {
                let message = format!("Cannot bind to requested volume \"{name}\": {why}");
                set_pending(claim, Some(warning_event(claim, "VolumeMismatch", message)))
            }
        };
    }
    if volume::is_for_claim(volume, claim) {
        return Plan::of(bind(volume, claim));
    }
    let message = format!("volume \"{name}\" already bound to a different claim.");
    let event = warning_event(claim, "FailedBinding", message);
    // The controller bound the claim earlier, but a user removed the annotation `bind-completed`. The controller cannot
    // repair this.
    if claim.meta.annotations.contains(volume::BOUND_BY_CONTROLLER) {
        return Plan::one(event);
    }
    set_pending(claim, Some(event))
}

/// Returns the reason why the requested volume does not match the claim, if any.
fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    if volume.meta.deleting() {
        Some(format!("the volume is marked for deletion \"{}\"", volume.meta.name))
    } else if volume::capacity(volume).value() < volume::requested_storage(claim).value() {
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

/// Checks a claim that was bound before: it either stays bound or is lost. Upstream: `syncBoundClaim`.
fn check_bound(observed: &Observed) -> Plan {
    let claim = &*observed.claim;
    if claim.spec.volume_name.is_empty() {
        return set_lost(
            claim,
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        );
    }
    let Some(volume) = observed.named_volume.as_deref() else {
        return set_lost(
            claim,
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        );
    };
    match volume.spec.claim_ref.as_deref() {
        Some(other) if other.uid != claim.meta.uid => set_lost(
            claim,
            "ClaimMisbound",
            "Two claims are bound to the same volume, this one is bound incorrectly",
        ),
        _ => Plan::of(bind(volume, claim)),
    }
}

/// Sets the phase `Lost`, and records an event once.
fn set_lost(claim: &PersistentVolumeClaim, reason: &'static str, message: &str) -> Plan {
    if &*claim.status.phase == "Lost" {
        return Plan::nothing();
    }
    let change = sole_claim_phase_update(claim, "Lost");
    let event = warning_event(claim, reason, message.to_owned());
    let change = change.map(|change| Rewrite { done: Some(event), ..change }.into());
    Plan::of(change.into_iter().collect())
}

/// Describes a claim for `evenkeel explain`.
pub(in crate::storage::binder) fn describe(observed: &Observed) -> Description {
    let claim = &*observed.claim;
    let mut description = Description::new();
    let class = volume::class_of_claim(claim);
    description.fact("class", if class.is_empty() { "none" } else { class });
    description.fact("asks for", volume::requested_storage(claim));
    if claim.spec.volume_name.is_empty() {
        description.fact("volumes that come into question", observed.candidates.len());
    } else {
        description.fact("volume", &claim.spec.volume_name);
    }
    if claim.meta.annotations.contains(volume::BIND_COMPLETED) {
        return description;
    }
    match (&observed.named_volume, observed.unscheduled_pods.as_slice()) {
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
