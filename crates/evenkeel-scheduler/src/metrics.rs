//! Metrics of the scheduler, under upstream's names.
//!
//! Upstream: `pkg/scheduler/metrics`.

mod claims;
mod hints;
#[cfg(test)]
mod tests;

pub(crate) use claims::{ClaimMetrics, DeviceWaitResult, VolumeStage};
use hints::HintMetrics;

use evenkeel_runtime::metrics::{counters, exponential, histograms, int_gauges};
use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use std::{collections::BTreeMap, time::Duration};

use crate::{
    core::Core,
    framework::{ExtensionPoint, Profile},
    queue::{EventLabel, PluginCall, PoppedPod, QueueLengths},
    schedule::{CallCount, CallDuration, PointDuration, Trace},
};

/// Labels of a metric without labels.
const NO_LABELS: &[&str] = &[];

/// Handles of the registered metrics, which their help texts in `register` explain. Clones share the metrics.
#[derive(Clone)]
pub(crate) struct Metrics {
    attempts: IntCounterVec,
    attempt_seconds: HistogramVec,
    algorithm_seconds: HistogramVec,
    attempts_per_pod: HistogramVec,
    sli_seconds: HistogramVec,
    scheduled_after_flush: IntCounterVec,
    extension_point_seconds: HistogramVec,
    plugin_seconds: HistogramVec,
    plugin_evaluations: IntCounterVec,
    permit_wait_seconds: HistogramVec,
    queue: QueueMetrics,
    preemption: PreemptionMetrics,
    hints: HintMetrics,
    claims: ClaimMetrics,
}

/// Metrics of the queue, the cache and event handling.
#[derive(Clone)]
struct QueueMetrics {
    pending_pods: IntGaugeVec,
    queued_entities: IntGaugeVec,
    incoming_pods: IntCounterVec,
    incoming_entities: IntCounterVec,
    unschedulable_pods: IntGaugeVec,
    in_flight_events: IntGaugeVec,
    cache_size: IntGaugeVec,
    goroutines: IntGaugeVec,
    event_seconds: HistogramVec,
}

#[derive(Clone)]
struct PreemptionMetrics {
    attempts: IntCounterVec,
    victims: HistogramVec,
    task_seconds: HistogramVec,
    tasks: IntCounterVec,
}

/// Guard that counts a running operation in `scheduler_goroutines` until dropped.
pub(crate) struct RunningOperation(IntGauge);

impl Drop for RunningOperation {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Value of the label `result` of an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResultLabel {
    /// The pod got a node.
    Scheduled,
    /// Plugins rejected the pod.
    Unschedulable,
    /// The attempt failed by an error.
    Error,
}

impl ResultLabel {
    /// Returns the value of the label.
    fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

impl Metrics {
    /// Registers all metrics of the scheduler.
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
                NO_LABELS,
            ),
            attempts_per_pod: histogram(
                "scheduler_pod_scheduling_attempts",
                "Number of attempts to successfully schedule a pod.",
                &exponential(1.0, 2.0, 5),
                NO_LABELS,
            ),
            sli_seconds: histogram(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
                &exponential(0.01, 2.0, 20),
                &["attempts"],
            ),
            scheduled_after_flush: counters(
                registry,
                "scheduler_pod_scheduled_after_flush_total",
                "Number of pods that were successfully scheduled after being flushed from unschedulableEntities due to timeout. This metric helps detect potential queueing hint misconfigurations or event handling issues.",
                NO_LABELS,
            ),
            extension_point_seconds: histogram(
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
            plugin_evaluations: counters(
                registry,
                "scheduler_plugin_evaluation_total",
                "Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, Filter, PreScore, and Score).",
                &["plugin", "extension_point", "profile"],
            ),
            permit_wait_seconds: histogram(
                "scheduler_permit_wait_duration_seconds",
                "Duration of waiting on permit.",
                &seconds,
                &["result"],
            ),
            queue: QueueMetrics::register(registry),
            preemption: PreemptionMetrics::register(registry),
            hints: HintMetrics::register(registry),
            claims: ClaimMetrics::register(registry),
        }
        .with_initial_series()
    }

    /// Creates the series that upstream exposes before their first value: those without labels, and two gauges of pod
    /// groups, which stay 0.
    fn with_initial_series(self) -> Self {
        for queue in ["incomplete", "pending"] {
            self.queue.pending_pods.with_label_values(&[queue]).set(0);
        }
        self.algorithm_seconds.with_label_values(NO_LABELS);
        self.attempts_per_pod.with_label_values(NO_LABELS);
        self.scheduled_after_flush.with_label_values(NO_LABELS);
        self.preemption.attempts.with_label_values(NO_LABELS);
        self.preemption.victims.with_label_values(NO_LABELS);
        self
    }

    /// Records the result and the duration of an attempt, including the binding.
    pub(crate) fn observe_attempt(&self, result: ResultLabel, profile: &str, took: Duration) {
        let labels = &[result.as_str(), profile];
        self.attempts.with_label_values(labels).inc();
        self.attempt_seconds.with_label_values(labels).observe(took.as_secs_f64());
    }

    /// Records the duration of the search for a node.
    pub(crate) fn observe_algorithm(&self, took: Duration) {
        self.algorithm_seconds.with_label_values(NO_LABELS).observe(took.as_secs_f64());
    }

    /// Records the measurements of an attempt.
    pub(crate) fn observe_trace(&self, trace: &Trace, profile: &Profile) {
        for PointDuration { point, status, took } in &trace.points {
            self.observe_extension_point(point.as_str(), status, profile.name(), *took);
        }
        for CallDuration { point, plugin, status, took } in &trace.plugin_calls {
            let plugin = profile.plugin(*plugin).name();
            self.observe_plugin(plugin, point.as_str(), status, *took);
        }
        for (plugin, calls) in trace.filter_counts.iter().enumerate() {
            if *calls > 0 {
                self.count_evaluations(profile, ExtensionPoint::Filter, plugin, *calls);
            }
        }
        for CallCount { point, plugin, calls } in &trace.call_counts {
            self.count_evaluations(profile, *point, *plugin, *calls);
        }
    }

    /// Counts calls of a plugin at an extension point.
    fn count_evaluations(
        &self,
        profile: &Profile,
        point: ExtensionPoint,
        plugin: usize,
        calls: u32,
    ) {
        let labels = &[profile.plugin(plugin).name(), point.as_str(), profile.name()];
        self.plugin_evaluations.with_label_values(labels).inc_by(u64::from(calls));
    }

    /// Records a sampled plugin call.
    pub(crate) fn observe_plugin(&self, plugin: &str, point: &str, status: &str, took: Duration) {
        let labels = &[plugin, point, status];
        self.plugin_seconds.with_label_values(labels).observe(took.as_secs_f64());
    }

    /// Records the duration of an extension point.
    pub(crate) fn observe_extension_point(
        &self,
        point: &str,
        status: &str,
        profile: &str,
        took: Duration,
    ) {
        let labels = &[point, status, profile];
        self.extension_point_seconds.with_label_values(labels).observe(took.as_secs_f64());
    }

    /// Records the duration of a wait in Permit.
    pub(crate) fn observe_permit_wait(&self, result: &str, took: Duration) {
        self.permit_wait_seconds.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// Records the attempts and the total duration until a pod was scheduled. Like upstream, 15 and more attempts share
    /// one label.
    pub(crate) fn observe_scheduled_pod(&self, popped: &PoppedPod, waited: Duration) {
        let attempts = popped.attempts;
        self.attempts_per_pod.with_label_values(NO_LABELS).observe(f64::from(attempts));
        let label = if attempts >= 15 { "15+".to_owned() } else { attempts.to_string() };
        self.sli_seconds.with_label_values(&[label.as_str()]).observe(waited.as_secs_f64());
        if popped.flushed {
            self.scheduled_after_flush.with_label_values(NO_LABELS).inc();
        }
    }

    /// Records the duration of handling an event.
    pub(crate) fn observe_event_handling(&self, event: &str, took: Duration) {
        self.queue.event_seconds.with_label_values(&[event]).observe(took.as_secs_f64());
    }

    /// Records the queue's calls of plugins.
    pub(crate) fn observe_queue_calls(&self, calls: &[PluginCall], profiles: &[Profile]) {
        let point = ExtensionPoint::PreEnqueue.as_str();
        for call in calls {
            match *call {
                PluginCall::Hint { key, took } => {
                    let plugin = profiles[key.profile].plugin(key.plugin);
                    self.hints.observe(key, plugin.name(), took);
                }
                PluginCall::PreEnqueue { profile, plugin, status, took } => {
                    let plugin = profiles[profile].plugin(plugin);
                    self.observe_plugin(plugin.name(), point, status, took);
                }
                // Upstream sets this label to Success even if a plugin gates the pod.
                PluginCall::AllPreEnqueue { profile, took } => {
                    let profile = profiles[profile].name();
                    self.observe_extension_point(point, "Success", profile, took);
                }
            }
        }
    }

    /// Returns the metrics of claims.
    pub(crate) fn claims(&self) -> &ClaimMetrics {
        &self.claims
    }

    /// Counts a running `operation` until the guard is dropped.
    pub(crate) fn count_running(&self, operation: &str) -> RunningOperation {
        let gauge = self.queue.goroutines.with_label_values(&[operation]);
        gauge.inc();
        RunningOperation(gauge)
    }

    /// Updates all gauges and the counters of incoming pods.
    pub(crate) fn update_gauges(&self, core: &mut Core, n_bindings: usize) {
        self.queue.update_gauges(core, n_bindings);
    }

    /// Counts an attempt to preempt.
    pub(crate) fn count_preemption_attempt(&self) {
        self.preemption.attempts.with_label_values(NO_LABELS).inc();
    }

    /// Records the number of victims of one preemption.
    pub(crate) fn observe_victims(&self, n_victims: usize) {
        self.preemption.victims.with_label_values(NO_LABELS).observe(n_victims as f64);
    }

    /// Records the result and the duration of a task that evicts victims.
    pub(crate) fn observe_preemption_task(&self, succeeded: bool, took: Duration) {
        let result = &[if succeeded { "success" } else { "error" }];
        self.preemption.tasks.with_label_values(result).inc();
        self.observe_preemption(succeeded, took);
    }

    /// Records the result and the duration of the eviction of a candidate's victims.
    pub(crate) fn observe_preemption(&self, succeeded: bool, took: Duration) {
        let result = &[if succeeded { "success" } else { "error" }];
        self.preemption.task_seconds.with_label_values(result).observe(took.as_secs_f64());
    }
}

impl QueueMetrics {
    /// Registers the metrics of the queue.
    fn register(registry: &Registry) -> Self {
        let gauges = |name, help, labels: &[&str]| int_gauges(registry, name, help, labels);
        Self {
            pending_pods: gauges(
                "scheduler_pending_pods",
                "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated; 'incomplete' means number of pods in incompletePodGroupPods; 'pending' means number of pods in pendingPodGroupPods.",
                &["queue"],
            ),
            queued_entities: gauges(
                "scheduler_queued_entities",
                "Number of queued scheduling entities ('pod' or 'podgroup'; 'pod' stands for individual pods that are not members of any podgroup) by the queue type. 'active' means number of entities in activeQ; 'backoff' means number of entities in backoffQ; 'unschedulable' means number of entities in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable entities that the scheduler never attempted to schedule because they are gated.",
                &["queue", "type"],
            ),
            incoming_pods: counters(
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
            unschedulable_pods: gauges(
                "scheduler_unschedulable_pods",
                "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
                &["plugin", "profile"],
            ),
            in_flight_events: gauges(
                "scheduler_inflight_events",
                "Number of events currently tracked in the scheduling queue.",
                &["event"],
            ),
            cache_size: gauges(
                "scheduler_cache_size",
                "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
                &["type"],
            ),
            goroutines: gauges(
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

    /// Updates the gauges of the queue, the cache and the running bindings.
    fn update_gauges(&self, core: &mut Core, n_bindings: usize) {
        let set = |gauges: &IntGaugeVec, labels: &[&str], value: usize| {
            gauges.with_label_values(labels).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        let QueueLengths { active, backoff, unschedulable, gated } = core.queue_lengths();
        for (queue, pods) in [
            ("active", active),
            ("backoff", backoff),
            ("unschedulable", unschedulable),
            ("gated", gated),
        ] {
            set(&self.pending_pods, &[queue], pods);
            set(&self.queued_entities, &[queue, "pod"], pods);
        }
        set(&self.cache_size, &["nodes"], core.nodes().len());
        set(&self.cache_size, &["pods"], core.nodes().n_pods());
        set(&self.cache_size, &["assumed_pods"], core.n_assumed());
        set(&self.goroutines, &["binding"], n_bindings);
        for ((profile, plugin), pods) in core.queue().rejected_pods() {
            let profile = core.profile(*profile);
            let labels = &[profile.plugin(*plugin).name(), profile.name()];
            self.unschedulable_pods.with_label_values(labels).set(*pods);
        }
        self.update_in_flight_gauge(core);
        for ((queue, label), pods) in core.queue_mut().take_incoming_pods() {
            let label = label.to_string();
            self.incoming_pods.with_label_values(&[queue, &label]).inc_by(pods);
            self.incoming_entities.with_label_values(&[queue, &label, "pod"]).inc_by(pods);
        }
    }

    /// Sets the numbers of in-flight events and pods.
    fn update_in_flight_gauge(&self, core: &Core) {
        let mut counts: BTreeMap<EventLabel, i64> = BTreeMap::new();
        for label in core.queue().in_flight_events() {
            *counts.entry(label).or_default() += 1;
        }
        self.in_flight_events.reset();
        let pods = i64::try_from(core.queue().n_in_flight()).unwrap_or(i64::MAX);
        self.in_flight_events.with_label_values(&["PodPopped"]).set(pods);
        for (label, count) in counts {
            self.in_flight_events.with_label_values(&[label.to_string()]).set(count);
        }
    }
}

impl PreemptionMetrics {
    /// Registers the metrics of preemption.
    fn register(registry: &Registry) -> Self {
        Self {
            attempts: counters(
                registry,
                "scheduler_preemption_attempts_total",
                "Total preemption attempts in the cluster till now",
                NO_LABELS,
            ),
            victims: histograms(
                registry,
                "scheduler_preemption_victims",
                "Number of selected preemption victims for preemption initiated by a single pod",
                &exponential(1.0, 2.0, 7),
                NO_LABELS,
            ),
            task_seconds: histograms(
                registry,
                "scheduler_preemption_goroutines_duration_seconds",
                "Duration in seconds for running goroutines for the preemption.",
                &exponential(0.01, 2.0, 20),
                &["result"],
            ),
            tasks: counters(
                registry,
                "scheduler_preemption_goroutines_execution_total",
                "Number of preemption goroutines executed.",
                &["result"],
            ),
        }
    }
}
