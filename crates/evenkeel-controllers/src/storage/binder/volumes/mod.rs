//! The volume queue of the PersistentVolume controller. Upstream: `volumeWorker`.

use super::{
    Binder, DESCRIPTOR,
    plan::{
        reclaim,
        volume::{self, Observed},
    },
};
use crate::wiring::descriptor::ControllerContext;
use evenkeel_api::{
    time::Timestamp,
    views::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
};
use evenkeel_component_helpers::storage::claims;
use evenkeel_runtime::{
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use std::sync::Arc;

/// Starts the controller of the volume queue.
pub(super) fn start(context: &ControllerContext, binder: &Arc<Binder>) {
    let binder_for_claims = Arc::clone(binder);
    let builder = context
        .builder(&DESCRIPTOR, &binder.volumes)
        .named("persistentvolume-binder-volumes")
        .queue("volumes")
        .watches(&binder.claims, move |event, enqueue| {
            binder_for_claims
                .volumes_to_enqueue(event)
                .into_iter()
                .for_each(|key| enqueue.add(key));
        })
        .watches(&binder.pods, |event, enqueue| {
            if let Some(volume) = reclaim::volume_of_recycler(event.object()) {
                enqueue.add(Key::new("", volume));
            }
        })
        .event_source(super::REPORTING_COMPONENT)
        .local_work(super::run_folder_action);
    context.run(builder.planned(Volumes(Arc::clone(binder))));
}

/// Decides the phase, the binding and the reclaim of a PersistentVolume.
struct Volumes(Arc<Binder>);

impl Planner for Volumes {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        Some(self.0.observe_volume(&self.0.volumes.get("", &key.name)?))
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(observed, &(), now), ())
    }

    fn next(&self, observed: &Observed, (): &(), done: &Outcomes, _: Timestamp) -> Option<Plan> {
        volume::plan(observed, &self.0.options, done)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        volume::describe(observed)
    }
}

impl Binder {
    /// Returns the claim in the volume's `claimRef` from the cache, if the uid matches.
    fn claim_of(&self, volume: &PersistentVolume) -> Option<Arc<PersistentVolumeClaim>> {
        let reference = volume.spec.claim_ref.as_deref()?;
        let claim = self.claims.get(&reference.namespace, &reference.name)?;
        (claim.meta.uid == reference.uid).then_some(claim)
    }

    /// Returns a volume with the claim and pods on which the decision about it depends.
    fn observe_volume(&self, volume: &Arc<PersistentVolume>) -> Observed {
        let reference = volume.spec.claim_ref.as_deref();
        let has_cached_claim =
            |claim: &ObjectReference| self.claims.get(&claim.namespace, &claim.name).is_some();
        let mut observed = Observed {
            name_is_taken: reference.is_some_and(has_cached_claim),
            users: Vec::new(),
            recycler: None,
            claim: self.claim_of(volume),
            volume: Arc::clone(volume),
        };
        if &*volume.spec.persistent_volume_reclaim_policy == "Recycle" {
            if let Some(claim) = reference {
                let pods = self.pods_by_claim.get(&claims::key(&claim.namespace, &claim.name));
                observed.users = reclaim::users(&pods);
            }
            if let Some(pod) = reclaim::recycler_pod(volume, &self.options) {
                observed.recycler = self.pods.get(&pod.namespace, &pod.name);
            }
        }
        observed
    }
}
