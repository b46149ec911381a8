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
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{
    time::Timestamp,
    views::{Pod, ReplicaSet},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::Builder,
    introspect::Description,
    plan::{Key, Outcomes, PassHandler, Plan, Planned, Planner},
};
use metrics::DeletionAge;
use plan::{Features, Observed};
pub(crate) use set::Set;
use std::sync::Arc;

/// Number of ReplicaSets that are reconciled concurrently. Flag `--concurrent-replicaset-syncs`. Default: 5.
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
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let sets = context.env.caches.of::<ReplicaSet>();
    let builder = context
        .builder(&DESCRIPTOR, &sets)
        .workers(context.options.replicaset.concurrent_syncs)
        .stale_skips_metric("replicaset_controller_stale_sync_skips_total");
    run(context, builder, sets, DeletionAge::register(&context.registry));
    Ok(Started::Yes)
}

/// Runs the controller for another kind, without exporting the metric [`DeletionAge`].
pub(crate) fn run_without_metric<S: Set>(
    context: &ControllerContext,
    builder: Builder,
    sets: Cache<S>,
) {
    run(context, builder, sets, DeletionAge::unregistered());
}

/// Runs the controller for ReplicaSets or ReplicationControllers.
fn run<S: Set>(
    context: &ControllerContext,
    builder: Builder,
    sets: Cache<S>,
    deletion_age: DeletionAge,
) {
    let pods = context.env.caches.of::<Pod>();
    let planner = ReplicaSets {
        pods: ByController::of(&pods),
        sets_by_controller: ByController::of(&sets),
        features: Features::of(&context.gates),
        sets: sets.clone(),
    };
    let builder =
        builder.min_status_interval(MIN_STATUS_INTERVAL).watches(&pods, move |event, enqueue| {
            on_child(
                &sets,
                event,
                |set, pod| set.may_adopt(&pod.meta.labels),
                pods::changes_owner_counts,
                |key| {
                    if matches!(event, CacheEvent::Updated { old, new } if pods::changes_only_readiness(old, new)) {
                        enqueue.add_for_status(key);
                    } else {
                        enqueue.add(key);
                    }
                },
            );
        });
    context.run(builder.planned_with(planner, deletion_age));
}

/// Decides the pods and the status of a ReplicaSet or ReplicationController.
struct ReplicaSets<S> {
    sets: Cache<S>,
    sets_by_controller: ByController<S>,
    pods: ByController<Pod>,
    features: Features,
}

impl<S: Set> ReplicaSets<S> {
    /// Returns the pods of all ReplicaSets with the same controller, such as the ReplicaSets of one Deployment.
    /// Upstream's `getIndirectlyRelatedPods` selects pods by labels. The result is the same, because the selectors of a
    /// Deployment's ReplicaSets contain the pod template hash.
    fn related_pods(&self, set: &S) -> Vec<Arc<Pod>> {
        let Some(controller) = set.meta().controller() else { return Vec::new() };
        let related_sets = self.sets_by_controller.owned(&controller.uid);
        related_sets.iter().flat_map(|related| self.pods.owned(&related.meta().uid)).collect()
    }
}

impl<S: Set> PassHandler<ReplicaSets<S>> for DeletionAge {
    fn on_planned(&self, observed: &Observed<S>, planned: Planned<'_, ()>) {
        self.observe(&observed.pods.owned, planned.plan, planned.at);
    }
}

impl<S: Set> Planner for ReplicaSets<S> {
    type Observed = Observed<S>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed<S>> {
        let set = self.sets.get(&key.namespace, &key.name)?;
        let candidates = self.pods.owned_and_orphans(&set.meta().uid, &key.namespace);
        let related_pods = || self.related_pods(&set);
        Some(Observed::new(set.clone(), candidates, related_pods, self.features))
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
