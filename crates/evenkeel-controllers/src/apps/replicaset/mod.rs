//! Keeps as many pods as a ReplicaSet asks for. A ReplicationController is the same to it under another name.
//!
//! Upstream: `pkg/controller/replicaset`.

mod describe;
mod metrics;
mod plan;
mod set;
mod status;
#[cfg(test)]
mod tests;

use crate::{
    apps::STATUS_PACE,
    children::on_child,
    descriptor::{ControllerContext, Descriptor, StartError},
    options::Workers,
    owned::ByController,
    pods,
};
use evenkeel_api::{
    time::Timestamp,
    views::{Pod, ReplicaSet},
};
use evenkeel_runtime::{
    cache::Cache,
    controller::Builder,
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use metrics::DeletionAge;
use plan::{Rules, Seen};
pub(crate) use set::Set;
use std::sync::Arc;

/// How many ReplicaSets are worked on at the same time; `--concurrent-replicaset-syncs`.
pub type Options = Workers<5>;

/// The flag that says so.
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

/// Runs the controller of the other kind.
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
        deletion_age,
        rules: Rules::of(&context.gates),
        sets: sets.clone(),
    };
    let builder = builder.status_pace(STATUS_PACE).watches(&cache, move |event, enqueue| {
        on_child(
            &sets,
            event,
            |set, pod| set.could_take(&pod.meta.labels),
            pods::counts_otherwise,
            |key| enqueue.add(key),
        );
    });
    context.run(builder.planned(planner));
}

struct Sets<S> {
    sets: Cache<S>,
    pods: ByController<Pod>,
    siblings: ByController<S>,
    deletion_age: DeletionAge,
    rules: Rules,
}

impl<S: Set> Sets<S> {
    /// Pods of all sets that have the same controller as this one. Upstream takes those that the sets select, owned or
    /// not; sets of one Deployment select by template hash, so these are the same.
    fn related(&self, set: &S) -> Vec<Arc<Pod>> {
        let Some(controller) = set.meta().controller() else { return Vec::new() };
        let siblings = self.siblings.owned(&controller.uid);
        siblings.iter().flat_map(|sibling| self.pods.owned(&sibling.meta().uid)).collect()
    }
}

impl<S: Set> Planner for Sets<S> {
    type Seen = Seen<S>;

    fn observe(&self, key: &Key) -> Option<Seen<S>> {
        let set = self.sets.get(&key.namespace, &key.name)?;
        let candidates = self.pods.owned_and_orphans(&set.meta().uid, &key.namespace);
        Some(Seen::new(set.clone(), candidates, || self.related(&set), self.rules))
    }

    fn plan(&self, seen: &Seen<S>, now: Timestamp) -> Plan {
        let plan = plan::plan(seen, now);
        self.deletion_age.observe(&seen.pods.owned, &plan, now);
        plan
    }

    fn preview(&self, seen: &Seen<S>, now: Timestamp) -> Plan {
        plan::plan(seen, now)
    }

    fn describe(&self, seen: &Seen<S>, now: Timestamp) -> Description {
        describe::describe(seen, now)
    }

    fn status(&self, seen: &Seen<S>, outcomes: &Outcomes, now: Timestamp) -> Plan {
        status::status(seen, outcomes, now)
    }
}
