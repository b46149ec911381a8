//! The half that looks at claims.

use super::{
    Binder, DESCRIPTOR,
    plan::claim::{self, Next, Provisioner, Seen},
};
use crate::{storage::persistentvolumeclaimprotection, wiring::descriptor::ControllerContext};
use evenkeel_api::{
    Text,
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

/// Runs it. One worker: two could choose one volume for two claims.
pub(super) fn start(context: &ControllerContext, binder: &Arc<Binder>) {
    let (of_volumes, of_classes) = (Arc::clone(binder), Arc::clone(binder));
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
            of_volumes.concerned_by_volume(event).into_iter().for_each(|key| enqueue.add(key));
        })
        .watches(&binder.classes, move |event, enqueue| {
            let keys = of_classes.concerned_by_class(event.object());
            keys.into_iter().for_each(|key| enqueue.add(key));
        });
    let builder = binder.described(builder).local_work(super::work_on_folder);
    context.run(builder.planned_with(Claims(Arc::clone(binder)), Claims(Arc::clone(binder))));
}

/// The binder's half that looks at claims, and counts what becomes of them.
struct Claims(Arc<Binder>);

impl Planner for Claims {
    type Observed = Seen;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Seen> {
        self.0.claim_seen(key)
    }

    fn plan(&self, seen: &Seen, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(seen, &(), now), ())
    }

    fn next(&self, seen: &Seen, (): &(), done: &Outcomes, _: Timestamp) -> Option<Plan> {
        claim::next_step(seen, &self.0.options, done)
    }

    fn describe(&self, seen: &Seen, _: Timestamp) -> Description {
        claim::describe(seen)
    }
}

impl PassHandler<Self> for Claims {
    fn on_planned(&self, seen: &Seen, planned: Planned<'_, ()>) {
        let Self(binder) = self;
        if let Next::Provision(Provisioner::External(provisioner)) =
            claim::next(seen, &binder.options)
        {
            binder.metrics.begun(&seen.claim.meta, provisioner, planned.at);
        }
    }

    fn on_passed(&self, seen: &Seen, pass: &Pass<'_>) {
        let Self(binder) = self;
        match claim::next(seen, &binder.options) {
            Next::DefaultClass(_) => binder.metrics.filled_in(pass.succeeded),
            Next::Bind(_) if pass.succeeded => {
                binder.metrics.bound(&seen.claim.meta, pass.planned);
            }
            _ => {}
        }
        if !pass.succeeded {
            binder.metrics.failed(&seen.claim.meta);
        }
    }
}

impl Binder {
    fn claim_seen(&self, key: &Key) -> Option<Seen> {
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
        let nameless = unbound && !volume::names_class(&claim);
        let default_class =
            nameless.then(|| volume::default_class(&self.classes.list()).cloned()).flatten();
        Some(Seen {
            named,
            candidates,
            class: Some(class).filter(|c| !c.is_empty()).and_then(|c| self.classes.get("", c)),
            default_class,
            waiting: if unbound { self.waiting(&claim) } else { Vec::new() },
            claim,
        })
    }

    /// Pods that want the claim and have no node.
    fn waiting(&self, claim: &PersistentVolumeClaim) -> Vec<Text> {
        let users = self.users.get(&claims::key(&claim.meta.namespace, &claim.meta.name));
        let waits = |pod: &&Arc<Pod>| {
            pod.spec.node_name.is_empty() && !persistentvolumeclaimprotection::is_terminated(pod)
        };
        let mut names: Vec<Text> =
            users.iter().filter(waits).map(|pod| pod.meta.name.clone()).collect();
        names.sort_unstable();
        names
    }
}
