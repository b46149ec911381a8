//! The scheduler's metrics, under upstream's names.

use evenkeel_runtime::metrics::{counters, exponential, histograms, int_gauges};
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec, Registry};
use std::time::Duration;

use crate::{core::Core, queue::Counts};

/// Handles of what is registered.
pub(crate) struct Metrics {
    attempts: IntCounterVec,
    attempt_seconds: HistogramVec,
    algorithm_seconds: HistogramVec,
    pending: IntGaugeVec,
    cache_size: IntGaugeVec,
    attempts_per_pod: HistogramVec,
    sli_seconds: HistogramVec,
}

/// `result` of an attempt.
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
        let seconds: Vec<f64> = exponential(0.001, 2.0, 15);
        let tries: Vec<f64> = exponential(1.0, 2.0, 5);
        let by_result = &["result", "profile"];
        Self {
            attempts: counters(
                registry,
                "scheduler_schedule_attempts_total",
                "Attempts to schedule pods, by result: scheduled, unschedulable or error.",
                by_result,
            ),
            attempt_seconds: histograms(
                registry,
                "scheduler_scheduling_attempt_duration_seconds",
                "Seconds that attempts took, binding included.",
                &seconds,
                by_result,
            ),
            algorithm_seconds: histograms(
                registry,
                "scheduler_scheduling_algorithm_duration_seconds",
                "Seconds that finding a node took.",
                &seconds,
                &[],
            ),
            pending: int_gauges(
                registry,
                "scheduler_pending_pods",
                "Pods that wait, by queue.",
                &["queue"],
            ),
            cache_size: int_gauges(
                registry,
                "scheduler_cache_size",
                "Nodes, pods and assumed pods known.",
                &["type"],
            ),
            attempts_per_pod: histograms(
                registry,
                "scheduler_pod_scheduling_attempts",
                "Attempts that pods took until they were scheduled.",
                &tries,
                &[],
            ),
            sli_seconds: histograms(
                registry,
                "scheduler_pod_scheduling_sli_duration_seconds",
                "Seconds from entering the queue to being scheduled, by number of attempts.",
                &exponential(0.01, 2.0, 20),
                &["attempts"],
            ),
        }
    }

    pub(crate) fn attempted(&self, outcome: Outcome, profile: &str, took: Duration) {
        let labels = &[outcome.as_str(), profile];
        self.attempts.with_label_values(labels).inc();
        self.attempt_seconds.with_label_values(labels).observe(took.as_secs_f64());
    }

    pub(crate) fn searched(&self, took: Duration) {
        let none: &[&str] = &[];
        self.algorithm_seconds.with_label_values(none).observe(took.as_secs_f64());
    }

    /// `attempts` beyond 15 are one label, as upstream has it.
    pub(crate) fn scheduled_after(&self, attempts: u32, waited: Duration) {
        let none: &[&str] = &[];
        self.attempts_per_pod.with_label_values(none).observe(f64::from(attempts));
        let label = if attempts > 15 { "16+".to_owned() } else { attempts.to_string() };
        self.sli_seconds.with_label_values(&[label.as_str()]).observe(waited.as_secs_f64());
    }

    pub(crate) fn sizes(&self, core: &Core) {
        let set = |gauges: &IntGaugeVec, label: &str, n: usize| {
            gauges.with_label_values(&[label]).set(i64::try_from(n).unwrap_or(i64::MAX));
        };
        let Counts { active, backoff, unschedulable, gated } = core.counts();
        set(&self.pending, "active", active);
        set(&self.pending, "backoff", backoff);
        set(&self.pending, "unschedulable", unschedulable);
        set(&self.pending, "gated", gated);
        set(&self.cache_size, "nodes", core.nodes().len());
        set(&self.cache_size, "pods", core.nodes().n_pods());
        set(&self.cache_size, "assumed_pods", core.n_assumed());
    }
}
