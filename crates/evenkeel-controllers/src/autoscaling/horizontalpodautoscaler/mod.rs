//! Horizontal pod autoscaler: scales workloads by resource, custom and external metrics. Upstream:
//! `pkg/controller/podautoscaler`.

mod metric;
mod metrics;
mod normalize;
mod options;
mod plan;
mod readings;
mod reconcile;
mod replicas;
mod samples;
mod selectors;
mod stabilization;
mod status;
#[cfg(test)]
mod tests;

pub use options::Options;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{
    time::Timestamp,
    views::{HorizontalPodAutoscaler, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::Enqueue,
    introspect::Description,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planner, Steps},
    queue::Backoff,
};
use metrics::Metrics;
use reconcile::{CachedAutoscaler, Computation, DiscoveredVersion, reconcile_autoscaler};
use selectors::Selectors;
use stabilization::HpaHistory;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The horizontal pod autoscaler. Upstream: `newHorizontalPodAutoscalerControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "horizontal-pod-autoscaler-controller",
    aliases: &["horizontalpodautoscaling"],
    queue: "horizontalpodautoscaler",
    client: "horizontal-pod-autoscaler",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let options = context.options.horizontalpodautoscaler;
    let autoscalers = context.env.caches.of();
    let pods = context.env.caches.of::<Pod>();
    let shared_reads = Arc::<SharedReads>::default();
    let metrics = Arc::new(Metrics::register(&context.registry));
    let planner = Autoscalers {
        autoscalers: autoscalers.clone(),
        pods: pods.clone(),
        shared_reads: shared_reads.clone(),
        options,
    };
    let reconciliation_handler =
        ReconciliationHandler { shared_reads, metrics: metrics.clone(), options };
    // A failed reconciliation is retried like a successful one, after the sync period.
    let every_sync_period =
        Backoff { base_delay: options.sync_period, max_delay: options.sync_period, bucket: None };
    let builder = context
        .builder_watching(&DESCRIPTOR, &autoscalers, move |event, enqueue| {
            on_autoscaler(&metrics, &options, event, enqueue);
        })
        .reads(&pods)
        .workers(options.concurrent_syncs)
        .stale_skips_metric("horizontal_pod_autoscaler_controller_stale_sync_skips_total")
        .backoff(every_sync_period);
    context.run(builder.planned_with(planner, reconciliation_handler));
    Ok(Started::Yes)
}

/// Describes an autoscaler's status for `evenkeel explain`.
fn describe(autoscaler: &HorizontalPodAutoscaler) -> Description {
    let spec = &autoscaler.spec;
    let status = &autoscaler.status;
    let mut description = Description::new();
    let target = &spec.scale_target_ref;
    description.fact("scales", format!("{} {}", target.kind, target.name));
    description
        .fact("bounds", format!("{} to {}", spec.min_replicas.unwrap_or(1), spec.max_replicas));
    description.fact(
        "replicas",
        format!("{}, {} wanted", status.current_replicas, status.desired_replicas),
    );
    for condition in &status.conditions {
        let text = format!("{} ({}) {}", condition.status, condition.reason, condition.message);
        description.fact(&condition.type_.to_lowercase(), text.trim_end());
        if &*condition.status == "False"
            && matches!(&*condition.type_, "AbleToScale" | "ScalingActive")
        {
            description.waits(&*condition.message);
        }
    }
    description
}

/// Decides the replicas of an autoscaler's target, and the autoscaler's status.
struct Autoscalers {
    autoscalers: Cache<HorizontalPodAutoscaler>,
    pods: Cache<Pod>,
    shared_reads: Arc<SharedReads>,
    options: Options,
}

/// Results of live reads that the reconciliations of all autoscalers share.
#[derive(Default)]
struct SharedReads {
    /// Pod selectors of the scaled workloads.
    selectors: Mutex<Selectors>,
    /// Version of the custom metrics API, once discovered.
    custom_version: Mutex<Option<DiscoveredVersion>>,
}

impl SharedReads {
    /// Locks the pod selectors.
    fn selectors(&self) -> MutexGuard<'_, Selectors> {
        self.selectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the version of the custom metrics API.
    fn custom_version(&self) -> MutexGuard<'_, Option<DiscoveredVersion>> {
        self.custom_version.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Planner for Autoscalers {
    type Observed = CachedAutoscaler;
    type Memory = HpaHistory;

    fn observe(&self, key: &Key, _: &HpaHistory) -> Option<CachedAutoscaler> {
        Some(CachedAutoscaler {
            autoscaler: self.autoscalers.get(&key.namespace, &key.name)?,
            pods: self.pods.namespace(&key.namespace),
            selectors: self.shared_reads.selectors().of_namespace(&key.namespace),
            custom_version: self.shared_reads.custom_version().clone(),
            key: key.clone(),
        })
    }

    fn plan(
        &self,
        cached: &CachedAutoscaler,
        history: &HpaHistory,
        now: Timestamp,
    ) -> (Plan, HpaHistory) {
        let first = self.first_step(cached, history, now);
        (first, history.clone())
    }

    fn next(
        &self,
        cached: &CachedAutoscaler,
        history: &HpaHistory,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        Steps::next(outcomes, |steps| reconcile::plan(cached, history, &self.options, now, steps))
    }

    fn remember(
        &self,
        cached: &CachedAutoscaler,
        history: &HpaHistory,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<HpaHistory> {
        let steps = &mut Steps::of(outcomes);
        let reconciliation = reconcile_autoscaler(cached, history, &self.options, now, steps);
        Some(reconciliation.ok()?.history)
    }

    fn describe(&self, cached: &CachedAutoscaler, _: Timestamp) -> Description {
        describe(&cached.autoscaler)
    }
}

/// Records the metrics of reconciliations, and keeps their live reads for later reconciliations.
struct ReconciliationHandler {
    shared_reads: Arc<SharedReads>,
    metrics: Arc<Metrics>,
    options: Options,
}

impl PassHandler<Autoscalers> for ReconciliationHandler {
    fn on_passed(&self, cached: &CachedAutoscaler, pass: &Pass<'_, HpaHistory>) {
        let steps = &mut Steps::of(pass.outcomes);
        let history = pass.memory;
        let now = pass.planned_at;
        let reconciliation = reconcile_autoscaler(cached, history, &self.options, now, steps);
        let Ok(reconciliation) = reconciliation else { return };
        let key = &cached.key;
        for Computation { metric_type, action, error, took } in &reconciliation.computations {
            self.metrics.observe_computation(metric_type, *action, *error, *took);
        }
        if let Some(replicas) = reconciliation.desired {
            self.metrics.set_desired_replicas(&key.namespace, &key.name, replicas);
        }
        self.metrics.observe_reconciliation(
            reconciliation.action,
            reconciliation.error_label(),
            pass.took,
        );
        if let Some(selector) = &reconciliation.selector {
            self.shared_reads.selectors().record(key, selector);
        }
        if let Some(version) = reconciliation.custom_version {
            *self.shared_reads.custom_version() = Some(DiscoveredVersion { version, at: now });
        }
    }

    fn on_gone(&self, key: &Key) {
        self.shared_reads.selectors().forget(key);
        self.metrics.forget(&key.namespace, &key.name);
    }
}

/// Enqueues an autoscaler immediately if it is new, its spec changed, or it was deleted. Otherwise, enqueues it after the
/// sync period. Upstream: `enqueueHPA`, `updateHPA`.
fn on_autoscaler(
    metrics: &Metrics,
    options: &Options,
    event: &CacheEvent<HorizontalPodAutoscaler>,
    enqueue: &Enqueue,
) {
    let key = Key::of(&event.object().meta);
    match event {
        CacheEvent::Added { .. } => {
            metrics.autoscalers.inc();
            enqueue.add(key);
        }
        CacheEvent::Updated { old, new } => {
            // The generation only changes with the spec.
            if options.observe_generation && old.meta.generation != new.meta.generation {
                enqueue.add(key);
            } else {
                enqueue.add_after(key, options.sync_period);
            }
        }
        CacheEvent::Deleted(_) => {
            metrics.autoscalers.dec();
            enqueue.add(key);
        }
    }
}
