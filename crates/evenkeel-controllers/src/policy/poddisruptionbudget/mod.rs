//! Disruption controller: computes the disruptions that a PodDisruptionBudget allows, for the eviction API. Upstream:
//! `pkg/controller/disruption`.

mod owner_caches;
mod owners;
mod plan;
mod pod_pass;
mod status;
#[cfg(test)]
mod tests;

use crate::{
    options::Workers,
    pods,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{
    Kind,
    time::Timestamp,
    views::{Pod, PodDisruptionBudget},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::{Builder, Controller, Enqueue},
    introspect::Description,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planner, Steps},
    queue::{Priority, Queue},
};
use owner_caches::OwnerCaches;
use plan::BudgetPods;
use std::sync::{Arc, OnceLock};

/// Source of the controller's events.
const EVENT_SOURCE: &str = "controllermanager";

/// Number of budgets that are reconciled concurrently. Flag `--concurrent-disruption-syncs`. Default: 1.
pub type Options = Workers<1>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-disruption-syncs";

/// The disruption controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "disruption-controller",
    aliases: &["disruption"],
    queue: "disruption",
    client: "disruption-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let budgets = context.env.caches.of();
    let pods = context.env.caches.of::<Pod>();
    let owners = OwnerCaches::new(&context.env.caches);
    let pod_controller = pod_controller(context, &pods, &budgets);
    let pod_budgets = budgets.clone();
    let pods_queue = pod_controller.queue();
    let builder = context
        .builder(&DESCRIPTOR, &budgets)
        .event_source(EVENT_SOURCE)
        .workers(context.options.poddisruptionbudget.concurrent_syncs)
        .watches(&pods, move |event, enqueue| on_pod(&pod_budgets, &pods_queue, event, enqueue))
        .reads(&owners.replication_controllers)
        .reads(&owners.replica_sets)
        .reads(&owners.deployments)
        .reads(&owners.stateful_sets);
    let recheck = Recheck::default();
    let planner = Budgets { budgets, pods, owners };
    let controller = builder.planned_with(planner, recheck.clone());
    context.run(recheck.build_controller(context, controller.queue()));
    context.run(controller);
    context.run(pod_controller);
    Ok(Started::Yes)
}

/// Builds the controller of pods. It resets stale conditions, and records an event if several budgets select a pod.
fn pod_controller(
    context: &ControllerContext,
    pods: &Cache<Pod>,
    budgets: &Cache<PodDisruptionBudget>,
) -> Controller {
    Builder::watching(&context.env, "stale-pod-disruption", pods, |event, enqueue| {
        if !matches!(event, CacheEvent::Deleted(_))
            && pod_pass::stale_condition_time(event.object()).is_some()
        {
            enqueue.add(Key::of(&event.object().meta));
        }
    })
    .queue("stale_pod_disruption")
    .client(context.client(&DESCRIPTOR))
    .component(DESCRIPTOR.client)
    .event_source(EVENT_SOURCE)
    .reads(budgets)
    .planned(Pods { pods: pods.clone(), budgets: budgets.clone() })
}

/// Enqueues the budgets that select the pod. Ignores updates that do not affect their counts. After a change of labels,
/// also enqueues the budgets that selected the old pod. Upstream: `addPod`, `updatePod`, `deletePod`.
fn on_pod(
    budgets: &Cache<PodDisruptionBudget>,
    pods_queue: &Queue<Key>,
    event: &CacheEvent<Pod>,
    enqueue: &Enqueue,
) {
    let mut budgets_before = Vec::new();
    if let CacheEvent::Updated { old, new } = event {
        let is_relabelled = old.meta.labels != new.meta.labels;
        let affects_counts = is_relabelled
            || old.meta.controller() != new.meta.controller()
            || old.meta.uid != new.meta.uid
            || pods::changes_owner_counts(old, new);
        if !affects_counts {
            return;
        }
        if is_relabelled {
            budgets_before = budgets_of(budgets, old);
        }
    }
    let budgets_after = budgets_of(budgets, event.object());
    if budgets_after.len() > 1 && !matches!(event, CacheEvent::Deleted(_)) {
        pods_queue.add(Key::of(&event.object().meta), Priority::NORMAL);
    }
    for budget in budgets_before.iter().chain(&budgets_after) {
        enqueue.add(Key::of(&budget.meta));
    }
}

/// Returns the budgets that select the pod, sorted by name.
fn budgets_of(budgets: &Cache<PodDisruptionBudget>, pod: &Pod) -> Vec<Arc<PodDisruptionBudget>> {
    let mut budgets = budgets.namespace(&pod.meta.namespace);
    budgets.retain(|budget| budget.spec.selector.matches(&pod.meta.labels));
    budgets.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
    budgets
}

/// Removes stale `DisruptionTarget` conditions from a pod, and warns about pods with several budgets.
struct Pods {
    pods: Cache<Pod>,
    budgets: Cache<PodDisruptionBudget>,
}

impl Planner for Pods {
    type Observed = pod_pass::Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<pod_pass::Observed> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        let budgets = budgets_of(&self.budgets, &pod);
        Some(pod_pass::Observed { pod, budgets })
    }

    fn plan(&self, observed: &pod_pass::Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (pod_pass::plan(observed, now), ())
    }
}

/// Decides the status of a budget, such as `disruptionsAllowed`.
struct Budgets {
    budgets: Cache<PodDisruptionBudget>,
    pods: Cache<Pod>,
    owners: OwnerCaches,
}

impl Planner for Budgets {
    type Observed = BudgetPods;
    type Memory = ();

    /// Returns a budget and its pods. A null selector matches no pod. An empty selector (`{}`) matches all pods of the
    /// namespace.
    fn observe(&self, key: &Key, (): &()) -> Option<BudgetPods> {
        let budget = self.budgets.get(&key.namespace, &key.name)?;
        let mut pods = self.pods.namespace(&key.namespace);
        pods.retain(|pod| budget.spec.selector.matches(&pod.meta.labels));
        pods.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        let owners =
            if plan::needs_owners(&budget) { self.owners.owners_of(&pods) } else { Vec::new() };
        Some(BudgetPods { budget, pods, owners })
    }

    fn plan(&self, budget: &BudgetPods, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(budget, &(), now), ())
    }

    fn next(
        &self,
        budget: &BudgetPods,
        (): &(),
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        Steps::next(outcomes, |steps| plan::sync(budget, now, steps))
    }

    fn describe(&self, budget: &BudgetPods, now: Timestamp) -> Description {
        plan::describe(budget, now)
    }
}

/// Adds budgets to the recheck queue after an update of their status, so that they are reconciled again when a
/// disrupted pod's timeout ends. Upstream: `enqueuePdbForRecheck`, `recheckQueue`.
///
/// The queue is separate, because a backoff in the main queue would replace the delay of the recheck.
#[derive(Clone, Default)]
struct Recheck {
    /// The recheck queue, once its controller is built.
    queue: Arc<OnceLock<Queue<Key>>>,
}

impl Recheck {
    /// Builds the controller that moves budgets from the recheck queue to the main queue when their delay has passed.
    fn build_controller(&self, context: &ControllerContext, main_queue: Queue<Key>) -> Controller {
        // The keys of this queue are budgets, but its controller reads no objects.
        let no_objects = Kind::new("", "", "", "", true);
        let controller = Builder::of_keys(&context.env, "disruption-recheck", no_objects)
            .queue("disruption_recheck")
            .enqueues(main_queue, |key, enqueue| enqueue(key.clone()));
        self.queue.get_or_init(|| controller.queue());
        controller
    }
}

impl PassHandler<Budgets> for Recheck {
    fn on_passed(&self, budget: &BudgetPods, pass: &Pass<'_>) {
        let steps = &mut Steps::of(pass.outcomes);
        let Ok(result) = plan::try_sync(budget, pass.planned_at, steps) else { return };
        let key = Key::of(&budget.budget.meta);
        match result.status_update {
            Ok(()) => {
                if let (Some(delay), Some(queue)) = (result.recheck_after, self.queue.get()) {
                    queue.add_after(key, delay);
                }
            }
            // A conflict needs no warning, because the budget is reconciled again.
            Err(conflict) if conflict.code == 409 => {}
            Err(error) => {
                tracing::warn!(%key, %error, "Failed to update the status of the PodDisruptionBudget");
            }
        }
    }
}
