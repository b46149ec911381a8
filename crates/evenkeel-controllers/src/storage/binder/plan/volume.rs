//! Decision about a volume.
//!
//! Upstream: `syncVolume`.

use super::{change_volume, migration, reclaim, sole_phase_update, unbind};
use crate::{
    storage::binder::{Options, host_path},
    wire,
};
use evenkeel_api::{
    View as _,
    views::{PersistentVolume, PersistentVolumeClaim, Pod},
};
use evenkeel_component_helpers::storage::volume;
use evenkeel_runtime::{
    introspect::Description,
    plan::{EventRecord, LiveRead, OnError, Outcomes, Plan, Rewrite, Steps},
};
use std::sync::Arc;

/// A volume and the claim in its `claimRef`.
#[derive(Clone)]
pub(in crate::storage::binder) struct Observed {
    pub(in crate::storage::binder) volume: Arc<PersistentVolume>,
    /// The claim in `claimRef`, if the cache has it. In [`decide`], `None` means that a live read did not find the
    /// claim either.
    pub(in crate::storage::binder) claim: Option<Arc<PersistentVolumeClaim>>,
    /// Whether the cache has a claim with the name in `claimRef`, whatever its uid.
    pub(in crate::storage::binder) name_is_taken: bool,
    /// Pods that use a claim with that name and are not terminated, as `namespace/name`, sorted. Only for the policy
    /// `Recycle`.
    pub(in crate::storage::binder) users: Vec<String>,
    /// The recycler pod, if it exists.
    pub(in crate::storage::binder) recycler: Option<Arc<Pod>>,
}

/// Decision about a volume.
#[derive(Debug, Default, PartialEq)]
pub(in crate::storage::binder) struct Decision {
    pub(in crate::storage::binder) plan: Plan,
    /// Whether further steps delete the folder and then the volume.
    pub(in crate::storage::binder) deletes_folder: bool,
}

impl From<Plan> for Decision {
    fn from(plan: Plan) -> Self {
        Self { plan, deletes_folder: false }
    }
}

/// Returns the plan after these outcomes. If the cache lacks the claim, the first step reads it live. The folder is
/// deleted before its volume.
pub(in crate::storage::binder) fn plan(
    observed: &Observed,
    options: &Options,
    outcomes: &Outcomes,
) -> Option<Plan> {
    Steps::next(outcomes, |steps| {
        let claim = confirmed_claim(observed, steps)?;
        let observed = Observed { claim, ..observed.clone() };
        let decision = decide(&observed, options);
        if decision.deletes_folder {
            host_path::delete(&observed.volume, options, steps)
        } else {
            Ok(decision.plan)
        }
    })
}

/// Returns the volume's claim. If the cache lacks the claim, reads it live: without a claim, the volume may be
/// deleted. Upstream: `syncVolume`.
fn confirmed_claim(
    observed: &Observed,
    steps: &mut Steps<'_>,
) -> Result<Option<Arc<PersistentVolumeClaim>>, Plan> {
    let volume = &*observed.volume;
    let reference = volume.spec.claim_ref.as_deref().filter(|claim| !claim.uid.is_empty());
    let Some(reference) = reference else { return Ok(None) };
    // The claim of such a volume was missing in a live read. It is read again only if a claim of this name exists.
    let was_released = matches!(&*volume.status.phase, "Released" | "Failed");
    if observed.claim.is_some() || was_released && !observed.name_is_taken {
        return Ok(observed.claim.clone());
    }
    let kind = PersistentVolumeClaim::kind();
    let read = LiveRead::get::<PersistentVolumeClaim>(&kind, &reference.namespace, &reference.name);
    let live = steps.one(LiveRead { on_error: OnError::Abort, ..read })?;
    let live = live.object::<PersistentVolumeClaim>();
    let live = live.map_err(|error| Plan::failure(error.message))?;
    Ok(live.filter(|claim| claim.meta.uid == reference.uid).map(Arc::new))
}

/// Decides the next writes of a volume.
pub(in crate::storage::binder) fn decide(observed: &Observed, options: &Options) -> Decision {
    let volume = &*observed.volume;
    if let Some(body) = migration::volume_update(volume) {
        let version = Arc::from(&*volume.meta.resource_version);
        let change = Rewrite { resource_version: version, ..change_volume(volume, &body) };
        return Plan::one(change).into();
    }
    // A `claimRef` without a uid reserves the volume by name, but leaves it available.
    let is_claimed = volume.spec.claim_ref.as_deref().is_some_and(|claim| !claim.uid.is_empty());
    if !is_claimed {
        return set_phase(volume, "Available").into();
    }
    match observed.claim.as_deref() {
        None => release_or_reclaim(observed, options),
        Some(claim) if claim.spec.volume_name.is_empty() => report_mismatch(volume, claim).into(),
        Some(claim) if claim.spec.volume_name == volume.meta.name => {
            set_phase(volume, "Bound").into()
        }
        Some(_) => claim_bound_elsewhere(observed, options),
    }
}

/// Sets the volume's phase, unless the volume has it.
fn set_phase(volume: &PersistentVolume, phase: &str) -> Plan {
    sole_phase_update(volume, phase, "").map_or_else(Plan::nothing, Plan::one)
}

/// Sets the phase `Released` of a volume whose claim was deleted. After that, reclaims the volume.
fn release_or_reclaim(observed: &Observed, options: &Options) -> Decision {
    let volume = &*observed.volume;
    if !matches!(&*volume.status.phase, "Released" | "Failed") {
        // The next reconciliation, which observes this phase, applies the reclaim policy.
        return set_phase(volume, "Released").into();
    }
    reclaim::decide(observed, options)
}

/// Records events about a volume whose claim does not name it yet, if their volume modes differ. Otherwise, the claim
/// queue completes the binding.
fn report_mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Plan {
    let mut plan = Plan::nothing();
    if volume::modes_differ(claim, volume) {
        let volume_name = &volume.meta.name;
        let claim_name = &claim.meta.name;
        plan.push(EventRecord::warning(
            wire::target(volume),
            "VolumeMismatch",
            format!("Cannot bind PersistentVolume to requested PersistentVolumeClaim \"{claim_name}\" due to incompatible volumeMode."),
        ));
        plan.push(EventRecord::warning(
            wire::target(claim),
            "VolumeMismatch",
            format!("Cannot bind PersistentVolume \"{volume_name}\" to requested PersistentVolumeClaim due to incompatible volumeMode."),
        ));
    }
    plan
}

/// Handles a volume whose claim is bound to another volume. A provisioned volume with the policy `Delete` is
/// reclaimed. Any other becomes available.
fn claim_bound_elsewhere(observed: &Observed, options: &Options) -> Decision {
    let volume = &*observed.volume;
    let is_provisioned = volume.meta.annotations.contains(volume::PROVISIONED_BY);
    if is_provisioned && &*volume.spec.persistent_volume_reclaim_policy == "Delete" {
        return release_or_reclaim(observed, options);
    }
    Plan::of(unbind(volume)).into()
}

/// Describes a volume for `evenkeel explain`.
pub(in crate::storage::binder) fn describe(observed: &Observed) -> Description {
    let volume = &*observed.volume;
    let mut description = Description::new();
    description.fact("capacity", volume::capacity(volume));
    description.fact("phase", &volume.status.phase);
    if let Some(claim) = volume.spec.claim_ref.as_deref() {
        let suffix = if observed.claim.is_some() { "" } else { ", which is not there" };
        description.fact("claim", format!("{}/{}{suffix}", claim.namespace, claim.name));
    }
    if &*volume.status.phase == "Released" {
        let policy = &volume.spec.persistent_volume_reclaim_policy;
        description.waits(match &**policy {
            "Retain" => "its policy is Retain: somebody has to free or delete it".to_owned(),
            policy => format!("policy {policy}"),
        });
    }
    description
}
