//! Planner of the claim queue. Upstream: `claimWorker`.

use super::{
    Binder, DESCRIPTOR,
    plan::claim::{self, Next, Observed, Provisioner},
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
    let (for_volumes, for_classes) = (Arc::clone(binder), Arc::clone(binder));
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
            for_volumes.claims_to_enqueue(event).into_iter().for_each(|key| enqueue.add(key));
        })
        .watches(&binder.classes, move |event, enqueue| {
            let keys = for_classes.claims_to_enqueue_for_class(event.object());
            keys.into_iter().for_each(|key| enqueue.add(key));
        });
    let builder = binder.described(builder).local_work(super::work_on_folder);
    context.run(builder.planned_with(Claims(Arc::clone(binder)), Claims(Arc::clone(binder))));
}

/// Planner of claims, and pass handler that measures their provisioning.
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
        claim::next_step(observed, &self.0.options, done)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        claim::describe(observed)
    }
}

impl PassHandler<Self> for Claims {
    fn on_planned(&self, observed: &Observed, planned: Planned<'_, ()>) {
        let Self(binder) = self;
        if let Next::Provision(Provisioner::External(provisioner)) =
            claim::next(observed, &binder.options)
        {
            binder.metrics.provisioning_started(&observed.claim.meta, provisioner, planned.at);
        }
    }

    fn on_passed(&self, observed: &Observed, pass: &Pass<'_>) {
        let Self(binder) = self;
        match claim::next(observed, &binder.options) {
            Next::DefaultClass(_) => binder.metrics.default_class_set(pass.succeeded),
            Next::Bind(_) if pass.succeeded => {
                binder.metrics.bound(&observed.claim.meta, pass.planned);
            }
            _ => {}
        }
        if !pass.succeeded {
            binder.metrics.failed(&observed.claim.meta);
        }
    }
}

impl Binder {
    fn observe_claim(&self, key: &Key) -> Option<Observed> {
        let claim = self.claims.get(&key.namespace, &key.name)?;
        let class = volume::class_of_claim(&claim);
        let named = match &*claim.spec.volume_name {
            "" => None,
            name => self.volumes.get("", name),
        };
        let unbound = !claim.meta.annotations.contains(volume::BIND_COMPLETED);
        let mut candidates = Vec::new();
        if unbound && claim.spec.volume_name.is_empty() {
            candidates = self.promised.get(&claims::key(&key.namespace, &key.name));
            candidates.extend(self.free.get(class));
        }
        let lacks_class = unbound && !volume::names_class(&claim);
        let default_class =
            lacks_class.then(|| volume::default_class(&self.classes.list()).cloned()).flatten();
        Some(Observed {
            named,
            candidates,
            class: Some(class).filter(|c| !c.is_empty()).and_then(|c| self.classes.get("", c)),
            default_class,
            waiting: if unbound { claim::waiting(&self.users_of(&claim)) } else { Vec::new() },
            claim,
        })
    }

    fn users_of(&self, claim: &PersistentVolumeClaim) -> Vec<Arc<Pod>> {
        self.users.get(&claims::key(&claim.meta.namespace, &claim.meta.name))
    }
}
