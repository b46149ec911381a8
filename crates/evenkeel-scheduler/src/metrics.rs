//! Metrics of the scheduler, under upstream's names.
//!
//! Upstream: `pkg/scheduler/metrics`.

mod claims;
mod hints;
#[cfg(test)]
mod tests;

pub(crate) use claims::{Claims, DeviceWaitResult, Stage};
use hints::Hints;

use evenkeel_runtime::metrics::{counters, exponential, histograms, int_gauges};
use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use std::{collections::BTreeMap, time::Duration};

use crate::{
    core::Core,
    framework::{ExtensionPoint, Profile},
    queue::{Counts, EventLabel, PluginCall, Popped},
    schedule::Trace,
};

const NONE: &[&str] = &[];

/// Handles of the registered metrics. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    attempts: IntCounterVec,
    attempt_seconds: HistogramVec,
    algorithm_seconds: HistogramVec,
    attempts_per_pod: HistogramVec,
    sli_seconds: HistogramVec,
    after_flush: IntCounterVec,
    point_seconds: HistogramVec,
    plugin_seconds: HistogramVec,
    evaluations: IntCounterVec,
    permit_seconds: HistogramVec,
    queues: Queues,
    preemption: Preemption,
    hints: Hints,
    claims: Claims,
}

/// Metrics of the queue, the cache and event handling.
#[derive(Clone)]
struct Queues {
    pending: IntGaugeVec,
    entities: IntGaugeVec,
    incoming: IntCounterVec,
    incoming_entities: IntCounterVec,
    unschedulable: IntGaugeVec,
    in_flight: IntGaugeVec,
    cache_size: IntGaugeVec,
    running: IntGaugeVec,
    event_seconds: HistogramVec,
}

/// Metrics of preemption.
#[derive(Clone)]
struct Preemption {
    attempts: IntCounterVec,
    victims: HistogramVec,
    seconds: HistogramVec,
    total: IntCounterVec,
}

/// Guard that counts a running operation in `scheduler_goroutines` until dropped.
pub(crate) struct Running(IntGauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Value of the label `result` of an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Scheduled,
    Unschedulable,
    Error,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Self {
        let seconds = exponential(0.001, 2.0, 15);
        let by_result = &["result", "profile"];
        let histogram = |name, help, bounds: &[f64], labels: &[&str]| {
            histograms(registry, name, help, bounds, labels)
        };
        Self {
            attempts: counters(
                registry,
                "scheduler_schedule_attempts_total",
                "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
                by_result,
            ),
            attempt_seconds: histogram(
                "scheduler_scheduling_attempt_duration_seconds",
                "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
                &seconds,
                by_result,
            ),
            algorithm_seconds: histogram(
                "scheduler_scheduling_algorithm_duration_seconds",
                "Scheduling algorithm latency in seconds",
                &seconds,
                NONE,
            ),
            attempts_per_pod: histogram(
                "scheduler_pod_scheduling_attempts",
                "Number of attempts to successfully schedule a pod.",
                &exponential(1.0, 2.0, 5),
                NONE,
            ),
            sli_seconds: histogram(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
                &exponential(0.01, 2.0, 20),
                &["attempts"],
            ),
            after_flush: counters(
                registry,
                "scheduler_pod_scheduled_after_flush_total",
                "Number of pods that were successfully scheduled after being flushed from unschedulableEntities due to timeout. This metric helps detect potential queueing hint misconfigurations or event handling issues.",
                NONE,
            ),
            point_seconds: histogram(
                "scheduler_framework_extension_point_duration_seconds",
                "Latency for running all plugins of a specific extension point.",
                &exponential(0.0001, 2.0, 12),
                &["extension_point", "status", "profile"],
            ),
            plugin_seconds: histogram(
                "scheduler_plugin_execution_duration_seconds",
                "Duration for running a plugin at a specific extension point.",
                &exponential(0.000_01, 1.5, 20),
                &["plugin", "extension_point", "status"],
            ),
            evaluations: counters(
                registry,
                "scheduler_plugin_evaluation_total",
                "Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, Filter, PreScore, and Score).",
                &["plugin", "extension_point", "profile"],
            ),
            permit_seconds: histogram(
                "scheduler_permit_wait_duration_seconds",
                "Duration of waiting on permit.",
                &seconds,
                &["result"],
            ),
            queues: Queues::register(registry),
            preemption: Preemption::register(registry),
            hints: Hints::register(registry),
            claims: Claims::register(registry),
        }
        .with_initial_series()
    }

    /// Creates the series that upstream exposes before their first value: those without labels, and two gauges of pod
    /// groups, which stay 0.
    fn with_initial_series(self) -> Self {
        for queue in ["incomplete", "pending"] {
            self.queues.pending.with_label_values(&[queue]).set(0);
        }
        self.algorithm_seconds.with_label_values(NONE);
        self.attempts_per_pod.with_label_values(NONE);
        self.after_flush.with_label_values(NONE);
        self.preemption.attempts.with_label_values(NONE);
        self.preemption.victims.with_label_values(NONE);
        self
    }

    /// Records the result and the duration of an attempt, including the binding.
    pub(crate) fn attempted(&self, outcome: Outcome, profile: &str, took: Duration) {
        let labels = &[outcome.as_str(), profile];
        self.attempts.with_label_values(labels).inc();
        self.attempt_seconds.with_label_values(labels).observe(took.as_secs_f64());
    }

    /// Records the duration of the search for a node.
    pub(crate) fn searched(&self, took: Duration) {
        self.algorithm_seconds.with_label_values(NONE).observe(took.as_secs_f64());
    }

    /// Records the measurements of an attempt.
    pub(crate) fn traced(&self, trace: &Trace, profile: &Profile) {
        for (point, status, took) in &trace.points {
            self.ran(point.as_str(), status, profile.name(), *took);
        }
        for (point, plugin, status, took) in &trace.plugins {
            self.plugin_ran(profile.plugin(*plugin).name(), point.as_str(), status, *took);
        }
        let filtered = trace.filtered.iter().enumerate();
        let filtered = filtered
            .filter(|(_, calls)| **calls > 0)
            .map(|(plugin, calls)| (ExtensionPoint::Filter, plugin, *calls));
        for (point, plugin, calls) in filtered.chain(trace.called.iter().copied()) {
            let labels = &[profile.plugin(plugin).name(), point.as_str(), profile.name()];
            self.evaluations.with_label_values(labels).inc_by(u64::from(calls));
        }
    }

    /// Records a sampled plugin call.
    pub(crate) fn plugin_ran(&self, plugin: &str, point: &str, status: &str, took: Duration) {
        let labels = &[plugin, point, status];
        self.plugin_seconds.with_label_values(labels).observe(took.as_secs_f64());
    }

    /// Records the duration of an extension point.
    pub(crate) fn ran(&self, point: &str, status: &str, profile: &str, took: Duration) {
        let labels = &[point, status, profile];
        self.point_seconds.with_label_values(labels).observe(took.as_secs_f64());
    }

    /// Records the duration of a wait in Permit.
    pub(crate) fn permitted(&self, result: &str, took: Duration) {
        self.permit_seconds.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// Records the attempts and the total duration until a pod was scheduled. As upstream, 15 and more attempts share
    /// one label.
    pub(crate) fn scheduled_after(&self, popped: &Popped, waited: Duration) {
        let attempts = popped.attempts;
        self.attempts_per_pod.with_label_values(NONE).observe(f64::from(attempts));
        let label = if attempts >= 15 { "15+".to_owned() } else { attempts.to_string() };
        self.sli_seconds.with_label_values(&[label.as_str()]).observe(waited.as_secs_f64());
        if popped.flushed {
            self.after_flush.with_label_values(NONE).inc();
        }
    }

    /// Records the duration of handling an event.
    pub(crate) fn handled(&self, event: &str, took: Duration) {
        self.queues.event_seconds.with_label_values(&[event]).observe(took.as_secs_f64());
    }

    /// Records the queue's calls of plugins.
    pub(crate) fn plugins_called(&self, calls: &[PluginCall], profiles: &[Profile]) {
        let point = ExtensionPoint::PreEnqueue.as_str();
        for call in calls {
            match *call {
                PluginCall::Hint { key, took } => {
                    let plugin = profiles[key.profile].plugin(key.plugin);
                    self.hints.took(key, plugin.name(), took);
                }
                PluginCall::PreEnqueue { profile, plugin, status, took } => {
                    let plugin = profiles[profile].plugin(plugin);
                    self.plugin_ran(plugin.name(), point, status, took);
                }
                // Upstream sets this label to Success even if a plugin gates the pod.
                PluginCall::AllPreEnqueue { profile, took } => {
                    self.ran(point, "Success", profiles[profile].name(), took);
                }
            }
        }
    }

    /// Returns the metrics of claims.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Counts a running `operation` until the guard is dropped.
    pub(crate) fn running(&self, operation: &str) -> Running {
        let running = self.queues.running.with_label_values(&[operation]);
        running.inc();
        Running(running)
    }

    /// Updates all gauges and the counters of incoming pods.
    pub(crate) fn sizes(&self, core: &mut Core, bindings: usize) {
        self.queues.sizes(core, bindings);
    }

    /// Counts an attempt to preempt.
    pub(crate) fn preemption_tried(&self) {
        self.preemption.attempts.with_label_values(NONE).inc();
    }

    /// Records the number of victims of one preemption.
    pub(crate) fn preempted(&self, victims: usize) {
        self.preemption.victims.with_label_values(NONE).observe(victims as f64);
    }

    /// Records the result and the duration of a task that evicts victims.
    pub(crate) fn preemption_ran(&self, succeeded: bool, took: Duration) {
        let result = &[if succeeded { "success" } else { "error" }];
        self.preemption.seconds.with_label_values(result).observe(took.as_secs_f64());
        self.preemption.total.with_label_values(result).inc();
    }
}

impl Queues {
    fn register(registry: &Registry) -> Self {
        let gauges = |name, help, labels: &[&str]| int_gauges(registry, name, help, labels);
        Self {
            pending: gauges(
                "scheduler_pending_pods",
                "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated; 'incomplete' means number of pods in incompletePodGroupPods; 'pending' means number of pods in pendingPodGroupPods.",
                &["queue"],
            ),
            entities: gauges(
                "scheduler_queued_entities",
                "Number of queued scheduling entities ('pod' or 'podgroup'; 'pod' stands for individual pods that are not members of any podgroup) by the queue type. 'active' means number of entities in activeQ; 'backoff' means number of entities in backoffQ; 'unschedulable' means number of entities in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable entities that the scheduler never attempted to schedule because they are gated.",
                &["queue", "type"],
            ),
            incoming: counters(
                registry,
                "scheduler_queue_incoming_pods_total",
                "Number of pods added to scheduling queues by event and queue type.",
                &["queue", "event"],
            ),
            incoming_entities: counters(
                registry,
                "scheduler_queue_incoming_entities_total",
                "Number of scheduling entities added to scheduling queues by event, queue type, and entity type. Entity types are either 'pod' (for individual pods that are not members of any podgroup) or 'podgroup'.",
                &["queue", "event", "type"],
            ),
            unschedulable: gauges(
                "scheduler_unschedulable_pods",
                "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
                &["plugin", "profile"],
            ),
            in_flight: gauges(
                "scheduler_inflight_events",
                "Number of events currently tracked in the scheduling queue.",
                &["event"],
            ),
            cache_size: gauges(
                "scheduler_cache_size",
                "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
                &["type"],
            ),
            running: gauges(
                "scheduler_goroutines",
                "Number of running goroutines split by the work they do such as binding.",
                &["operation"],
            ),
            event_seconds: histograms(
                registry,
                "scheduler_event_handling_duration_seconds",
                "Event handling latency in seconds.",
                &exponential(0.0001, 2.0, 12),
                &["event"],
            ),
        }
    }

    fn sizes(&self, core: &mut Core, bindings: usize) {
        let set = |gauges: &IntGaugeVec, labels: &[&str], value: usize| {
            gauges.with_label_values(labels).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        let Counts { active, backoff, unschedulable, gated } = core.counts();
        for (queue, pods) in [
            ("active", active),
            ("backoff", backoff),
            ("unschedulable", unschedulable),
            ("gated", gated),
        ] {
            set(&self.pending, &[queue], pods);
            set(&self.entities, &[queue, "pod"], pods);
        }
        set(&self.cache_size, &["nodes"], core.nodes().len());
        set(&self.cache_size, &["pods"], core.nodes().n_pods());
        set(&self.cache_size, &["assumed_pods"], core.n_assumed());
        set(&self.running, &["binding"], bindings);
        for ((profile, plugin), pods) in core.queue().rejected() {
            let profile = core.profile(*profile);
            let labels = &[profile.plugin(*plugin).name(), profile.name()];
            self.unschedulable.with_label_values(labels).set(*pods);
        }
        self.in_flight(core);
        for ((queue, label), pods) in core.queue_mut().take_incoming() {
            let label = label.to_string();
            self.incoming.with_label_values(&[queue, &label]).inc_by(pods);
            self.incoming_entities.with_label_values(&[queue, &label, "pod"]).inc_by(pods);
        }
    }

    /// Sets the numbers of in-flight events and pods.
    fn in_flight(&self, core: &Core) {
        let (events, pods_in_flight) = core.queue().in_flight();
        let mut counts: BTreeMap<EventLabel, i64> = BTreeMap::new();
        for label in events {
            *counts.entry(label).or_default() += 1;
        }
        self.in_flight.reset();
        let pods = i64::try_from(pods_in_flight).unwrap_or(i64::MAX);
        self.in_flight.with_label_values(&["PodPopped"]).set(pods);
        for (label, count) in counts {
            self.in_flight.with_label_values(&[label.to_string()]).set(count);
        }
    }
}

impl Preemption {
    fn register(registry: &Registry) -> Self {
        Self {
            attempts: counters(
                registry,
                "scheduler_preemption_attempts_total",
                "Total preemption attempts in the cluster till now",
                NONE,
            ),
            victims: histograms(
                registry,
                "scheduler_preemption_victims",
                "Number of selected preemption victims for preemption initiated by a single pod",
                &exponential(1.0, 2.0, 7),
                NONE,
            ),
            seconds: histograms(
                registry,
                "scheduler_preemption_goroutines_duration_seconds",
                "Duration in seconds for running goroutines for the preemption.",
                &exponential(0.01, 2.0, 20),
                &["result"],
            ),
            total: counters(
                registry,
                "scheduler_preemption_goroutines_execution_total",
                "Number of preemption goroutines executed.",
                &["result"],
            ),
        }
    }
}
