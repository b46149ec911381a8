//! Planner of the claim queue. Upstream: `claimWorker`.

use super::{
    Binder, DESCRIPTOR,
    plan::claim::{self, Observed, Provisioner, Step},
};
use crate::wiring::descriptor::ControllerContext;
use evenkeel_api::{
    time::Timestamp,
    views::{PersistentVolumeClaim, Pod},
};
use evenkeel_component_helpers::storage::{claims, volume};
use evenkeel_runtime::{
    cache::CacheEvent,
    introspect::Description,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planned, Planner},
};
use std::sync::Arc;

/// Starts the controller of the claim queue. It has only one worker, because two could choose the same volume for
/// different claims.
pub(super) fn start(context: &ControllerContext, binder: &Arc<Binder>) {
    let binder_for_volumes = Arc::clone(binder);
    let binder_for_classes = Arc::clone(binder);
    let metrics = binder.metrics.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &binder.claims, move |event, enqueue| {
            if let CacheEvent::Deleted(claim) = event {
                metrics.forget(&claim.meta);
            } else {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .watches(&binder.volumes, move |event, enqueue| {
            binder_for_volumes
                .claims_to_enqueue(event)
                .into_iter()
                .for_each(|key| enqueue.add(key));
        })
        .watches(&binder.classes, move |event, enqueue| {
            let keys = binder_for_classes.claims_to_enqueue_for_class(event.object());
            keys.into_iter().for_each(|key| enqueue.add(key));
        })
        .event_source(super::REPORTING_COMPONENT)
        .reads(&binder.pods)
        .local_work(super::run_folder_action);
    context.run(builder.planned_with(Claims(Arc::clone(binder)), Claims(Arc::clone(binder))));
}

/// Decides how a PersistentVolumeClaim is bound or provisioned, and records the metrics of provisioning.
struct Claims(Arc<Binder>);

impl Planner for Claims {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        self.0.observe_claim(key)
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(observed, &(), now), ())
    }

    fn next(&self, observed: &Observed, (): &(), done: &Outcomes, _: Timestamp) -> Option<Plan> {
        claim::plan(observed, &self.0.options, done)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        claim::describe(observed)
    }
}

impl PassHandler<Self> for Claims {
    fn on_planned(&self, observed: &Observed, planned: Planned<'_, ()>) {
        let Self(binder) = self;
        if let Step::Provision(Provisioner::External(provisioner)) =
            claim::choose_step(observed, &binder.options)
        {
            binder.metrics.provisioning_started(&observed.claim.meta, provisioner, planned.at);
        }
    }

    fn on_passed(&self, observed: &Observed, pass: &Pass<'_>) {
        let Self(binder) = self;
        match claim::choose_step(observed, &binder.options) {
            Step::SetDefaultClass(_) => binder.metrics.count_default_class_update(pass.succeeded),
            Step::Bind(_) if pass.succeeded => {
                binder.metrics.provisioning_ended(&observed.claim.meta, pass.planned_at);
            }
            _ => {}
        }
        if !pass.succeeded {
            binder.metrics.provisioning_failed(&observed.claim.meta);
        }
    }
}

impl Binder {
    /// Returns a claim with the volumes, classes and pods on which the decision about it depends.
    fn observe_claim(&self, key: &Key) -> Option<Observed> {
        let claim = self.claims.get(&key.namespace, &key.name)?;
        let class = volume::class_of_claim(&claim);
        let named_volume = match &*claim.spec.volume_name {
            "" => None,
            name => self.volumes.get("", name),
        };
        let is_unbound = !claim.meta.annotations.contains(volume::BIND_COMPLETED);
        let mut candidates = Vec::new();
        if is_unbound && claim.spec.volume_name.is_empty() {
            candidates = self.volumes_by_claim.get(&claims::key(&key.namespace, &key.name));
            candidates.extend(self.unclaimed_volumes.get(class));
        }
        let default_class = if is_unbound && !volume::names_class(&claim) {
            volume::default_class(&self.classes.list()).cloned()
        } else {
            None
        };
        let unscheduled_pods =
            if is_unbound { claim::unscheduled(&self.pods_using(&claim)) } else { Vec::new() };
        Some(Observed {
            named_volume,
            candidates,
            class: if class.is_empty() { None } else { self.classes.get("", class) },
            default_class,
            unscheduled_pods,
            claim,
        })
    }

    /// Returns the pods that use a claim.
    fn pods_using(&self, claim: &PersistentVolumeClaim) -> Vec<Arc<Pod>> {
        self.pods_by_claim.get(&claims::key(&claim.meta.namespace, &claim.meta.name))
    }
}
