//! Horizontal pod autoscaler: scales workloads by resource, custom and external metrics. Upstream:
//! `pkg/controller/podautoscaler`.

mod limits;
mod metric;
mod metrics;
mod options;
mod plan;
mod readings;
mod replicas;
mod samples;
mod selectors;
mod stabilization;
mod status;
#[cfg(test)]
mod tests;

pub use options::Options;

use crate::{
    scale::{Scale, ScaleError, Scales},
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
};
use evenkeel_api::{
    Kind,
    views::{HorizontalPodAutoscaler, MetricSpec, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    clock::Clock,
    controller::{Context, Enqueue, Error, Outcome},
    introspect::Description,
    plan::{Failure, Key},
    queue::Backoff,
};
use metric::{Proposal, Refusal};
use metrics::{Done, Metrics};
use plan::{Course, Decision, Measured, Observed, Pods, Problem};
use readings::Readings;
use replicas::Scene;
use selectors::Selectors;
use stabilization::StabilizationHistory;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Attempts to update a scale after conflicts.
const TRIES: u32 = 5;

/// Interval between attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// The horizontal pod autoscaler. Upstream: `newHorizontalPodAutoscalerControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "horizontal-pod-autoscaler-controller",
    aliases: &["horizontalpodautoscaling"],
    queue: "horizontalpodautoscaler",
    client: "horizontal-pod-autoscaler",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let options = context.options.horizontalpodautoscaler;
    let (autoscalers, pods) = (context.env.caches.of(), context.env.caches.of::<Pod>());
    let client = context.client(&DESCRIPTOR);
    let scales = Scales::new(client.clone());
    let worker = Arc::new(Worker {
        autoscalers: autoscalers.clone(),
        pods: pods.clone(),
        readings: Readings::new(client, scales.clone(), options.sync_period),
        scales,
        selectors: Mutex::default(),
        histories: Mutex::default(),
        metrics: Metrics::register(&context.registry),
        options,
        clock: context.env.clock.clone(),
    });
    let every =
        Backoff { base_delay: options.sync_period, max_delay: options.sync_period, bucket: false };
    let (of_events, description) = (worker.clone(), worker.clone());
    let builder = context
        .builder_watching(&DESCRIPTOR, &autoscalers, move |event, enqueue| {
            of_events.on_autoscaler(event, enqueue);
        })
        .reads(&pods)
        .workers(options.concurrent_syncs)
        .stale_skips_metric("horizontal_pod_autoscaler_controller_stale_sync_skips_total")
        .backoff(every)
        .explains(move |key, _| {
            let autoscaler = description.autoscalers.get(&key.namespace, &key.name)?;
            Some((describe(&autoscaler), vec!["measure, and scale if need be".to_owned()]))
        });
    context.run(builder.reconcile(move |request, context: Context| {
        let worker = worker.clone();
        async move { worker.reconcile(&request.key, &context).await }
    }));
    Ok(())
}

/// Describes an autoscaler's status for `evenkeel explain`.
fn describe(autoscaler: &HorizontalPodAutoscaler) -> Description {
    let (spec, status) = (&autoscaler.spec, &autoscaler.status);
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

struct Worker {
    autoscalers: Cache<HorizontalPodAutoscaler>,
    pods: Cache<Pod>,
    scales: Scales,
    readings: Readings,
    selectors: Mutex<Selectors>,
    histories: Mutex<HashMap<Key, StabilizationHistory>>,
    metrics: Metrics,
    options: Options,
    clock: Clock,
}

impl Worker {
    fn selectors(&self) -> MutexGuard<'_, Selectors> {
        self.selectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues new and changed autoscalers at once, others after the sync period. Upstream: `enqueueHPA`, `updateHPA`.
    fn on_autoscaler(&self, event: &CacheEvent<HorizontalPodAutoscaler>, enqueue: &Enqueue) {
        let key = Key::of(&event.object().meta);
        match event {
            CacheEvent::Added { .. } => {
                self.metrics.autoscalers.inc();
                enqueue.add(key);
            }
            CacheEvent::Updated { old, new } => {
                if self.options.by_generation && old.meta.generation != new.meta.generation {
                    enqueue.add(key);
                } else {
                    enqueue.add_after(key, self.options.sync_period);
                }
            }
            CacheEvent::Deleted(_) => {
                self.metrics.autoscalers.dec();
                enqueue.add(key);
            }
        }
    }

    async fn reconcile(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(autoscaler) = self.autoscalers.get(&key.namespace, &key.name) else {
            self.histories().remove(key);
            self.selectors().forget(key);
            self.metrics.forget(&key.namespace, &key.name);
            return Ok(Outcome::Settled);
        };
        let begun = self.clock.instant();
        let (done, result) = self.pass(key, autoscaler, context).await;
        let of_spec = result.as_ref().err().map(|problem| problem.of_spec);
        self.metrics.passed(done, of_spec, begun.elapsed());
        match result {
            Ok(()) => Ok(Outcome::again(self.options.sync_period)),
            Err(problem) => Err(Error::message(problem.text)),
        }
    }

    async fn pass(
        &self,
        key: &Key,
        autoscaler: Arc<HorizontalPodAutoscaler>,
        context: &Context,
    ) -> (Done, Result<(), Problem>) {
        let (kind, scale) = match self.scale_of(&autoscaler).await {
            Ok(found) => found,
            Err(why) => {
                let builder = plan::without_scale(&autoscaler, &why, self.clock.now());
                // The error about the scale is returned, even if the status update fails too.
                let _ = context.act(key, &builder.plan(&autoscaler)).await;
                let target = &autoscaler.spec.scale_target_ref;
                let of_spec = group_of(&target.api_version).is_err();
                let text = if of_spec {
                    format!("invalid API version in scale target reference: {why}")
                } else {
                    let (kind, name) = (&target.kind, &target.name);
                    format!(
                        "failed to query scale subresource for {kind}/{}/{name}: {why}",
                        key.namespace
                    )
                };
                return (Done::Nothing, Err(Problem { text, of_spec }));
            }
        };
        let observed = Observed { autoscaler, scale };
        let course = plan::course(&observed, &self.options);
        let measured = match course {
            Course::Measure => self.measure(key, &observed).await,
            Course::Disabled | Course::Bound(..) => Measured::Each(Vec::new()),
        };
        let mut history = self.histories().get(key).cloned().unwrap_or_default();
        let now = self.clock.now();
        let decision = plan::decide(&observed, course, measured, &mut history, &self.options, now);
        let scaled = match &decision.rescale {
            Some(_) => Some(self.rescale(&kind, &observed, decision.desired).await),
            None => None,
        };
        let now = self.clock.now();
        let builder =
            plan::conclude(&observed, &decision, scaled.as_ref(), &mut history, &self.options, now);
        self.histories().insert(key.clone(), history);
        let written = context.act(key, &builder.plan(&observed.autoscaler)).await;
        self.ended(&observed, decision, scaled, written.err())
    }

    /// Returns the outcome of a reconciliation, and observes metrics.
    fn ended(
        &self,
        observed: &Observed,
        decision: Decision,
        scaled: Option<Result<(), String>>,
        unwritten: Option<Failure>,
    ) -> (Done, Result<(), Problem>) {
        let meta = &observed.autoscaler.meta;
        let internal = |text| Err(Problem { text, of_spec: false });
        if let Some(Err(error)) = scaled {
            return (Done::Nothing, internal(format!("failed to rescale: {error}")));
        }
        let done = Done::of(observed.scale.replicas, decision.desired);
        if !decision.failed {
            self.metrics.wants(&meta.namespace, &meta.name, decision.desired);
        }
        match (unwritten, decision.error) {
            (Some(failure), _) if !decision.failed => {
                (done, internal(format!("failed to update status for {}: {failure}", meta.name)))
            }
            (_, Some(error)) => (done, Err(error)),
            (_, None) => (done, Ok(())),
        }
    }

    /// Returns the scale target's resource and scale; of several resources of a kind, the first that exists. Upstream:
    /// `scaleForResourceMappings`.
    async fn scale_of(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
    ) -> Result<(Kind, Scale), String> {
        let target = &autoscaler.spec.scale_target_ref;
        let group = group_of(&target.api_version)?;
        let resources = self.scales.resources(group, &target.kind).await;
        let resources = resources.map_err(|error: ScaleError| error.to_string())?;
        let mut first = None;
        for resource in resources {
            match self.scales.get(&resource.kind, &autoscaler.meta.namespace, &target.name).await {
                Ok(scale) => return Ok((resource.kind, scale)),
                Err(failure) => {
                    first.get_or_insert(failure.message);
                }
            }
        }
        Err(first.unwrap_or_else(|| "unrecognized resource".to_owned()))
    }

    /// Reads all metrics and returns their proposals. Upstream: `computeReplicasForMetrics`.
    async fn measure(&self, key: &Key, observed: &Observed) -> Measured {
        let text = &observed.scale.selector;
        let selector = match selectors::parse(text) {
            Ok(selector) => selector,
            Err(unselected) => return unselected,
        };
        let mut pods: Pods = self.pods.namespace(&key.namespace);
        pods.retain(|pod| selector.matches(&pod.meta.labels));
        let alone = selectors::alone(&mut self.selectors(), key, text, &selector, &pods);
        if let Err(ambiguous) = alone {
            return ambiguous;
        }
        let mut each = Vec::new();
        for metric in &observed.autoscaler.spec.metrics {
            let begun = self.clock.instant();
            let read = self.readings.read(metric, &key.namespace, &selector).await;
            let proposal = self.propose(metric, read, observed, &pods);
            let before = observed.autoscaler.status.current_replicas;
            let (done, of_spec) = match &proposal {
                Ok(proposal) => (Done::of(before, proposal.replicas), None),
                Err(refusal) => (Done::Nothing, Some(refusal.of_spec)),
            };
            self.metrics.computed(&metric.type_, done, of_spec, begun.elapsed());
            each.push(proposal);
        }
        Measured::Each(each)
    }

    fn propose(
        &self,
        metric: &MetricSpec,
        read: metric::Read,
        observed: &Observed,
        pods: &Pods,
    ) -> Result<Proposal, Refusal> {
        let scene = Scene {
            pods,
            spec_replicas: observed.scale.replicas,
            status_replicas: observed.scale.current,
            tolerances: plan::tolerances(
                observed.autoscaler.spec.behavior.as_deref(),
                &self.options,
            ),
            options: &self.options,
            now: self.clock.now(),
        };
        metric::propose(metric, read, &scene, &observed.autoscaler.meta.namespace)
    }

    /// Updates the scale; after a conflict, again with the new resource version. Upstream: `RetryOnConflict` around
    /// `reconcileAutoscaler`.
    async fn rescale(&self, kind: &Kind, observed: &Observed, replicas: i32) -> Result<(), String> {
        let namespace = &observed.autoscaler.meta.namespace;
        let mut scale = observed.scale.clone();
        for attempt in 1.. {
            let changed = self.scales.set(kind, namespace, &scale, replicas).await;
            let Err(refused) = changed else { return Ok(()) };
            if refused.code != 409 || attempt == TRIES {
                return Err(refused.message);
            }
            if let Ok(latest) = self.scales.get(kind, namespace, &scale.name).await {
                scale = latest;
            }
            self.clock.sleep(PAUSE).await;
        }
        Ok(())
    }

    fn histories(&self) -> MutexGuard<'_, HashMap<Key, StabilizationHistory>> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the group of the target's `apiVersion`.
fn group_of(api_version: &str) -> Result<&str, String> {
    match *api_version.split('/').collect::<Vec<_>>() {
        [_] => Ok(""),
        [group, _] => Ok(group),
        _ => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}
