//! Disruption controller: computes the disruptions that a PodDisruptionBudget allows, for the eviction API. Upstream:
//! `pkg/controller/disruption`.

mod act;
mod plan;
mod pod_pass;
mod status;
#[cfg(test)]
mod tests;

use crate::{
    options::Workers,
    pods,
    scale::Scales,
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
};
use act::Owners;
use evenkeel_api::views::{Pod, PodDisruptionBudget};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::{Builder, Context, Controller, Enqueue, Error, Outcome},
    introspect,
    plan::{Failure, Key, Plan},
    queue::{Priority, Queue},
};
use plan::Observed;
use std::sync::Arc;

/// Source of the controller's events.
const EVENT_SOURCE: &str = "controllermanager";

/// Number of budgets processed concurrently; `--concurrent-disruption-syncs`.
pub type Options = Workers<1>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-disruption-syncs";

/// The controller of disruption budgets.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "disruption-controller",
    aliases: &["disruption"],
    queue: "disruption",
    client: "disruption-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let (budgets, pods) = (context.env.caches.of(), context.env.caches.of::<Pod>());
    let owners = Owners::new(&context.env.caches, Scales::new(context.client(&DESCRIPTOR)));
    let of_pods = pod_passes(context, &pods, &budgets);
    let (all_budgets, pods_queue) = (budgets.clone(), of_pods.queue());
    let builder = context
        .builder(&DESCRIPTOR, &budgets)
        .event_source(EVENT_SOURCE)
        .workers(context.options.poddisruptionbudget.concurrent_syncs)
        .watches(&pods, move |event, enqueue| on_pod(&all_budgets, &pods_queue, event, enqueue))
        .reads(&owners.controllers)
        .reads(&owners.sets)
        .reads(&owners.deployments)
        .reads(&owners.stateful);
    let recheck = Queue::new("disruption_recheck", &context.env.metrics.queues, &context.env.clock);
    let worker = Arc::new(Worker { budgets, pods, owners, recheck: recheck.clone() });
    let told = worker.clone();
    let builder = builder.explains(move |key, now| {
        let observed = told.observed(key)?;
        let would = plan::plan(&observed, now).actions.iter().map(introspect::action).collect();
        Some((plan::describe(&observed, now), would))
    });
    let controller = builder.reconcile(move |request, context: Context| {
        let worker = worker.clone();
        async move { worker.pass(&request.key, &context).await }
    });
    recheck_into(context, recheck, controller.queue());
    context.run(controller);
    context.run(of_pods);
    Ok(())
}

/// Starts the pod reconciliations: stale conditions, and events about several budgets.
fn pod_passes(
    context: &ControllerContext,
    pods: &Cache<Pod>,
    budgets: &Cache<PodDisruptionBudget>,
) -> Controller {
    Builder::watching(&context.env, "stale-pod-disruption", pods, |event, enqueue| {
        if !matches!(event, CacheEvent::Deleted(_))
            && pod_pass::told_since(event.object()).is_some()
        {
            enqueue.add(Key::of(&event.object().meta));
        }
    })
    .queue("stale_pod_disruption")
    .client((context.clients)(DESCRIPTOR.client))
    .component(DESCRIPTOR.client)
    .event_source(EVENT_SOURCE)
    .reads(budgets)
    .planned(pod_pass::Pods { pods: pods.clone(), budgets: budgets.clone() })
}

/// Moves budgets from the recheck queue to the main queue when the deletion timeout has passed. Upstream:
/// `recheckQueue`. It has a loop of its own, because the queue only delays keys that the main queue may back off meanwhile.
fn recheck_into(context: &ControllerContext, recheck: Queue<Key>, into: Queue<Key>) {
    let stop = context.tasks.token();
    context.tasks.spawn("disruption recheck", async move {
        while let Some(Some(key)) = stop.run_until_cancelled(recheck.next()).await {
            into.add(key.clone(), Priority::NORMAL);
            recheck.done(&key);
        }
    });
}

/// Enqueues the budgets that select the pod, before and after an update that affects counts. Upstream: `addPod`,
/// `updatePod`, `deletePod`.
fn on_pod(
    budgets: &Cache<PodDisruptionBudget>,
    pods_queue: &Queue<Key>,
    event: &CacheEvent<Pod>,
    enqueue: &Enqueue,
) {
    let before = match event {
        CacheEvent::Updated { old, new } => {
            let relabelled = old.meta.labels != new.meta.labels;
            let counts = relabelled
                || old.meta.controller() != new.meta.controller()
                || old.meta.uid != new.meta.uid
                || pods::counts_otherwise(old, new);
            if !counts {
                return;
            }
            if relabelled { pod_pass::budgets_of(budgets, old) } else { Vec::new() }
        }
        CacheEvent::Added { .. } | CacheEvent::Deleted(_) => Vec::new(),
    };
    let now = pod_pass::budgets_of(budgets, event.object());
    if now.len() > 1 && !matches!(event, CacheEvent::Deleted(_)) {
        pods_queue.add(Key::of(&event.object().meta), Priority::NORMAL);
    }
    for budget in before.iter().chain(&now) {
        enqueue.add(Key::of(&budget.meta));
    }
}

struct Worker {
    budgets: Cache<PodDisruptionBudget>,
    pods: Cache<Pod>,
    owners: Owners,
    recheck: Queue<Key>,
}

impl Worker {
    /// Returns a budget and its pods. A null selector matches no pod, an empty one (`{}`) all pods of the namespace.
    fn observed(&self, key: &Key) -> Option<Observed> {
        let budget = self.budgets.get(&key.namespace, &key.name)?;
        let mut pods = self.pods.namespace(&key.namespace);
        pods.retain(|pod| budget.spec.selector.matches(&pod.meta.labels));
        pods.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        Some(Observed { budget, pods, expected_pods: None })
    }

    async fn pass(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(mut observed) = self.observed(key) else { return Ok(Outcome::Settled) };
        if plan::asks_owners(&observed.budget) {
            observed.expected_pods = Some(self.owners.expected_pods(&observed.pods).await);
        }
        let now = context.env.clock.now();
        let plan = plan::plan(&observed, now);
        match context.act(key, &plan).await {
            Ok(_) => {}
            Err(lost) if lost.code == 409 => return Err(lost.into()),
            Err(refused) => {
                fail_safe(key, &observed, context, &refused).await?;
                return Ok(Outcome::Settled);
            }
        }
        if let Some(left) = plan.requeue {
            self.recheck.add_after(key.clone(), left);
        }
        Ok(Outcome::Settled)
    }
}

/// Writes a status with zero allowed disruptions after an error, because the last value may be too high. Upstream:
/// `failSafe`.
async fn fail_safe(
    key: &Key,
    observed: &Observed,
    context: &Context,
    why: &Failure,
) -> Result<(), Error> {
    tracing::warn!(%key, error = %why, "Failed to update the status of the PodDisruptionBudget");
    let mut plan = Plan::nothing();
    plan.actions.extend(status::fail_safe(&observed.budget, &why.message, context.env.clock.now()));
    context.act(key, &plan).await?;
    Ok(())
}
