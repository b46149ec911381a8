//! What becomes of a volume.

use super::{change_volume, migration, phase_now, reclaim, unbind};
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

/// A volume and whose it is.
#[derive(Clone)]
pub(in crate::storage::binder) struct Seen {
    pub(in crate::storage::binder) volume: Arc<PersistentVolume>,
    /// The claim that it says it is for, if the cache has it; in a decision, `None` when that is surely gone.
    pub(in crate::storage::binder) claim: Option<Arc<PersistentVolumeClaim>>,
    /// Whether there is any claim of that name.
    pub(in crate::storage::binder) name_is_taken: bool,
    /// Pods that use a claim of that name and have not ended, `namespace/name`, sorted.
    pub(in crate::storage::binder) users: Vec<String>,
    /// The pod that scrubs it, if there is one.
    pub(in crate::storage::binder) recycler: Option<Arc<Pod>>,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq)]
pub(in crate::storage::binder) struct Decision {
    pub(in crate::storage::binder) plan: Plan,
    /// The folder behind it goes, and then the volume.
    pub(in crate::storage::binder) delete_folder: bool,
}

impl From<Plan> for Decision {
    fn from(plan: Plan) -> Self {
        Self { plan, delete_folder: false }
    }
}

/// The step after these outcomes: a claim that the cache lacks is read live, and a folder goes before its volume.
pub(in crate::storage::binder) fn next_step(
    seen: &Seen,
    options: &Options,
    done: &Outcomes,
) -> Option<Plan> {
    Steps::next(done, |steps| {
        let claim = sure_claim(seen, steps)?;
        let seen = Seen { claim, ..seen.clone() };
        let decision = plan(&seen, options);
        if decision.delete_folder {
            host_path::delete(&seen.volume, options, steps)
        } else {
            Ok(decision.plan)
        }
    })
}

/// The claim that the volume is for. That there is none is not believed of the cache alone: the volume may be deleted for
/// it. Upstream: `syncVolume`.
fn sure_claim(
    seen: &Seen,
    steps: &mut Steps<'_>,
) -> Result<Option<Arc<PersistentVolumeClaim>>, Plan> {
    let volume = &*seen.volume;
    let reference = volume.spec.claim_ref.as_deref().filter(|claim| !claim.uid.is_empty());
    let Some(reference) = reference else { return Ok(None) };
    let known = matches!(&*volume.status.phase, "Released" | "Failed");
    if seen.claim.is_some() || known && !seen.name_is_taken {
        return Ok(seen.claim.clone());
    }
    let kind = PersistentVolumeClaim::kind();
    let read = LiveRead::get::<PersistentVolumeClaim>(&kind, &reference.namespace, &reference.name);
    let live = steps.one(LiveRead { on_error: OnError::Abort, ..read })?;
    let live = live.object::<PersistentVolumeClaim>();
    let live = live.map_err(|error| Plan::failure(error.message))?;
    Ok(live.filter(|claim| claim.meta.uid == reference.uid).map(Arc::new))
}

/// Decides the next writes of a volume.
pub(in crate::storage::binder) fn plan(seen: &Seen, options: &Options) -> Decision {
    let volume = &*seen.volume;
    if let Some(body) = migration::of_volume(volume) {
        let version = Arc::from(&*volume.meta.resource_version);
        let change = Rewrite { resource_version: version, ..change_volume(volume, &body) };
        return Plan::one(change).into();
    }
    // Promised to a name alone, it is nobody's yet.
    let claimed = volume.spec.claim_ref.as_deref().filter(|claim| !claim.uid.is_empty());
    if claimed.is_none() {
        return to_phase(volume, "Available").into();
    }
    match seen.claim.as_deref() {
        None => released(seen, options),
        Some(claim) if claim.spec.volume_name.is_empty() => half_bound(volume, claim).into(),
        Some(claim) if claim.spec.volume_name == volume.meta.name => {
            to_phase(volume, "Bound").into()
        }
        Some(_) => claim_bound_elsewhere(seen, options),
    }
}

fn to_phase(volume: &PersistentVolume, phase: &str) -> Plan {
    let change = phase_now(volume, phase, "").map(Into::into);
    Plan::of(change.into_iter().collect())
}

/// The claim is gone.
fn released(seen: &Seen, options: &Options) -> Decision {
    let volume = &*seen.volume;
    if !matches!(&*volume.status.phase, "Released" | "Failed") {
        // What follows from it is looked at once it is so.
        return to_phase(volume, "Released").into();
    }
    reclaim::plan(seen, options)
}

/// The claim does not know of the volume yet; who binds it looks at the claim.
fn half_bound(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Plan {
    let mut plan = Plan::nothing();
    if volume::modes_differ(claim, volume) {
        let (of_volume, of_claim) = (&volume.meta.name, &claim.meta.name);
        plan.push(EventRecord::warning(
            wire::target(volume),
            "VolumeMismatch",
            format!("Cannot bind PersistentVolume to requested PersistentVolumeClaim \"{of_claim}\" due to incompatible volumeMode."),
        ));
        plan.push(EventRecord::warning(
            wire::target(claim),
            "VolumeMismatch",
            format!("Cannot bind PersistentVolume \"{of_volume}\" to requested PersistentVolumeClaim due to incompatible volumeMode."),
        ));
    }
    plan
}

/// The claim is bound elsewhere, to another volume: one that was made for it goes, others are free again.
fn claim_bound_elsewhere(seen: &Seen, options: &Options) -> Decision {
    let volume = &*seen.volume;
    let made = volume.meta.annotations.contains(volume::PROVISIONED_BY);
    if made && &*volume.spec.persistent_volume_reclaim_policy == "Delete" {
        return released(seen, options);
    }
    Plan::of(unbind(volume)).into()
}

/// What there is to say of a volume.
pub(in crate::storage::binder) fn describe(seen: &Seen) -> Description {
    let (volume, mut description) = (&*seen.volume, Description::new());
    description.fact("capacity", volume::capacity(volume));
    description.fact("phase", &volume.status.phase);
    if let Some(claim) = volume.spec.claim_ref.as_deref() {
        let there = if seen.claim.is_some() { "" } else { ", which is not there" };
        description.fact("claim", format!("{}/{}{there}", claim.namespace, claim.name));
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
