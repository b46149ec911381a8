//! ReplicaSet controller: maintains the number of pods of a ReplicaSet or a ReplicationController. Upstream:
//! `pkg/controller/replicaset`.

mod describe;
mod metrics;
mod plan;
mod set;
mod status;
#[cfg(test)]
mod tests;

use crate::{
    apps::MIN_STATUS_INTERVAL,
    children::on_child,
    options::Workers,
    owned::ByController,
    pods,
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
};
use evenkeel_api::{
    time::Timestamp,
    views::{Pod, ReplicaSet},
};
use evenkeel_runtime::{
    cache::Cache,
    controller::Builder,
    introspect::Description,
    plan::{Key, Outcomes, PassHandler, Plan, Planned, Planner},
};
use metrics::DeletionAge;
use plan::{Observed, Rules};
pub(crate) use set::Set;
use std::sync::Arc;

/// Number of ReplicaSets processed concurrently; `--concurrent-replicaset-syncs`.
pub type Options = Workers<5>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-replicaset-syncs";

/// The controller of ReplicaSets.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "replicaset-controller",
    aliases: &["replicaset"],
    queue: "replicaset",
    client: "replicaset-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let sets = context.env.caches.of::<ReplicaSet>();
    let builder = context
        .builder(&DESCRIPTOR, &sets)
        .workers(context.options.replicaset.concurrent_syncs)
        .stale_skips_metric("replicaset_controller_stale_sync_skips_total");
    run(context, builder, sets, DeletionAge::register(&context.registry));
    Ok(())
}

/// Runs the controller for another kind, without the metric.
pub(crate) fn run_unmeasured<S: Set>(
    context: &ControllerContext,
    builder: Builder,
    sets: Cache<S>,
) {
    run(context, builder, sets, DeletionAge::unregistered());
}

fn run<S: Set>(
    context: &ControllerContext,
    builder: Builder,
    sets: Cache<S>,
    deletion_age: DeletionAge,
) {
    let cache = context.env.caches.of::<Pod>();
    let planner = Sets {
        pods: ByController::of(&cache),
        siblings: ByController::of(&sets),
        rules: Rules::of(&context.gates),
        sets: sets.clone(),
    };
    let builder =
        builder.min_status_interval(MIN_STATUS_INTERVAL).watches(&cache, move |event, enqueue| {
            on_child(
                &sets,
                event,
                |set, pod| set.could_take(&pod.meta.labels),
                pods::changes_owner_counts,
                |key| enqueue.add(key),
            );
        });
    context.run(builder.planned_with(planner, deletion_age));
}

struct Sets<S> {
    sets: Cache<S>,
    pods: ByController<Pod>,
    siblings: ByController<S>,
    rules: Rules,
}

impl<S: Set> Sets<S> {
    /// Returns the pods of all ReplicaSets with the same controller. Upstream: `getIndirectlyRelatedPods`, which
    /// selects pods by labels; ReplicaSets of one Deployment select by template hash, so the results agree.
    fn related(&self, set: &S) -> Vec<Arc<Pod>> {
        let Some(controller) = set.meta().controller() else { return Vec::new() };
        let siblings = self.siblings.owned(&controller.uid);
        siblings.iter().flat_map(|sibling| self.pods.owned(&sibling.meta().uid)).collect()
    }
}

impl<S: Set> PassHandler<Sets<S>> for DeletionAge {
    fn on_planned(&self, observed: &Observed<S>, planned: Planned<'_, ()>) {
        self.observe(&observed.pods.owned, planned.plan, planned.at);
    }
}

impl<S: Set> Planner for Sets<S> {
    type Observed = Observed<S>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed<S>> {
        let set = self.sets.get(&key.namespace, &key.name)?;
        let candidates = self.pods.owned_and_orphans(&set.meta().uid, &key.namespace);
        Some(Observed::new(set.clone(), candidates, || self.related(&set), self.rules))
    }

    fn plan(&self, observed: &Observed<S>, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }

    fn describe(&self, observed: &Observed<S>, now: Timestamp) -> Description {
        describe::describe(observed, now)
    }

    fn status(&self, observed: &Observed<S>, (): &(), outcomes: &Outcomes, now: Timestamp) -> Plan {
        status::status(observed, outcomes, now)
    }
}
