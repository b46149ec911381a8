//! Deployment controller: rolls out pod templates with one ReplicaSet for each template. Upstream:
//! `pkg/controller/deployment`.

mod annotations;
mod describe;
mod events;
mod limits;
mod new_set;
mod observed;
mod plan;
mod progress;
mod recreate;
mod rollback;
mod rolling;
mod scale;
mod sets;
mod status;
mod sync;
#[cfg(test)]
mod tests;

use crate::{
    apps::{MIN_STATUS_INTERVAL, TERMINATING_REPLICAS_GATE},
    children::on_child,
    options::Workers,
    owned::ByController,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{
    time::Timestamp,
    views::{Deployment, Pod, ReplicaSet},
};
use evenkeel_runtime::{
    cache::Cache,
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use observed::Observed;

/// Maximum number of retries of a failing Deployment until its next event. Upstream: `maxRetries`.
const MAX_RETRIES: u32 = 15;

/// Number of Deployments that are reconciled concurrently. Flag `--concurrent-deployment-syncs`. Default: 5.
pub type Options = Workers<5>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-deployment-syncs";

/// The controller of Deployments.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "deployment-controller",
    aliases: &["deployment"],
    queue: "deployment",
    client: "deployment-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let deployments = context.env.caches.of::<Deployment>();
    let sets = context.env.caches.of::<ReplicaSet>();
    let pods = context.env.caches.of::<Pod>();
    let planner = Deployments {
        deployments: deployments.clone(),
        owned_sets: ByController::of(&sets),
        sets: sets.clone(),
        pods: ByController::of(&pods),
        counts_terminating: context.gates.enabled(TERMINATING_REPLICAS_GATE),
    };
    let builder = context
        .builder(&DESCRIPTOR, &deployments)
        .workers(context.options.deployment.concurrent_syncs)
        .min_status_interval(MIN_STATUS_INTERVAL)
        .max_retries(MAX_RETRIES);
    let owners = deployments.clone();
    let builder = builder.watches(&sets, move |event, enqueue| {
        on_child(
            &owners,
            event,
            |deployment, set| {
                let selector = &deployment.spec.selector;
                !selector.is_empty() && selector.matches(&set.meta.labels)
            },
            // Every update of a ReplicaSet may affect the Deployment.
            |_, _| true,
            |key| enqueue.add(key),
        );
    });
    let cached_sets = sets.clone();
    let builder = builder.watches(&pods, move |event, enqueue| {
        events::on_pod(&deployments, &cached_sets, event, |key| enqueue.add(key));
    });
    context.run(builder.planned(planner));
    Ok(Started::Yes)
}

/// Decides the ReplicaSets and the status of a Deployment.
struct Deployments {
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    owned_sets: ByController<ReplicaSet>,
    pods: ByController<Pod>,
    /// Whether the status counts terminating pods.
    counts_terminating: bool,
}

impl Planner for Deployments {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let deployment = self.deployments.get(&key.namespace, &key.name)?;
        let candidates = self.owned_sets.owned_and_orphans(&deployment.meta.uid, &key.namespace);
        let get_set = |name: &str| self.sets.get(&key.namespace, name);
        let mut observed = Observed::new(deployment, candidates, get_set);
        observed.counts_terminating = self.counts_terminating;
        // Only the strategy `Recreate` depends on the pods.
        if &*observed.deployment.spec.strategy.type_ == limits::RECREATE {
            observed = observed.with_pods(|set| self.pods.owned(&set.meta.uid));
        }
        Some(observed)
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }

    fn describe(&self, observed: &Observed, now: Timestamp) -> Description {
        describe::describe(observed, now)
    }

    fn status(&self, observed: &Observed, (): &(), outcomes: &Outcomes, now: Timestamp) -> Plan {
        status::status(observed, outcomes, now)
    }
}
