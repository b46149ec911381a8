//! Metrics of controllers.

use crate::{
    metrics::{counters, exponential, histograms, int_gauges, register},
    plan::Failure,
    queue,
};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};
use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// Metrics of all controllers of a program, with controller-runtime's names, and metrics of their queues.
#[derive(Clone)]
pub struct Metrics {
    /// Metrics of queues, for programs with their own queues.
    pub queues: queue::Metrics,
    results: IntCounterVec,
    errors: IntCounterVec,
    terminal_errors: IntCounterVec,
    timeouts: IntCounterVec,
    panics: IntCounterVec,
    seconds: HistogramVec,
    active: IntGaugeVec,
    workers: IntGaugeVec,
    stale_skips: IntCounterVec,
    upstream_stale_skips: Arc<Mutex<HashMap<&'static str, IntCounterVec>>>,
    registry: Registry,
}

impl Metrics {
    /// Registers the metrics. The metrics of queues have the labels of Kubernetes' programs. Call it once per registry.
    pub fn register(registry: &Registry) -> Self {
        Self::with_queues(registry, queue::Metrics::register(registry))
    }

    /// Registers the metrics. The metrics of queues have the labels of controller-runtime. Call it once per registry.
    pub fn register_with_controller(registry: &Registry) -> Self {
        Self::with_queues(registry, queue::Metrics::register_with_controller(registry))
    }

    fn with_queues(registry: &Registry, queues: queue::Metrics) -> Self {
        let labels = &["controller"];
        Self {
            queues,
            results: counters(
                registry,
                "controller_runtime_reconcile_total",
                "Reconciliations by result: success, requeue_after or error.",
                &["controller", "result"],
            ),
            errors: counters(
                registry,
                "controller_runtime_reconcile_errors_total",
                "Reconciliations that failed.",
                labels,
            ),
            terminal_errors: counters(
                registry,
                "controller_runtime_terminal_reconcile_errors_total",
                "Reconciliations that failed with an error that is not retried.",
                labels,
            ),
            timeouts: counters(
                registry,
                "controller_runtime_reconcile_timeouts_total",
                "Reconciliations that did not end in time.",
                labels,
            ),
            panics: counters(
                registry,
                "controller_runtime_reconcile_panics_total",
                "Reconciliations that panicked.",
                labels,
            ),
            seconds: histograms(
                registry,
                "controller_runtime_reconcile_time_seconds",
                "Seconds that reconciliations took.",
                &[0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0],
                labels,
            ),
            active: int_gauges(
                registry,
                "controller_runtime_active_workers",
                "Workers that are reconciling.",
                labels,
            ),
            workers: int_gauges(
                registry,
                "controller_runtime_max_concurrent_reconciles",
                "Workers of a controller.",
                labels,
            ),
            stale_skips: counters(
                registry,
                "evenkeel_controller_stale_sync_skips_total",
                "Keys put off because a cache had not yet shown the controller's own writes.",
                &["controller", "group", "resource"],
            ),
            upstream_stale_skips: Arc::default(),
            registry: registry.clone(),
        }
    }

    /// Returns the counter of a controller's passes that did not end in time.
    pub(crate) fn timeouts_of(&self, controller: &str) -> IntCounter {
        self.timeouts.with_label_values(&[controller])
    }

    /// Returns the metrics of one controller.
    pub(super) fn of(
        &self,
        controller: &str,
        workers: usize,
        stale_skips: Option<&'static str>,
        passes: Option<&'static str>,
    ) -> ControllerMetrics {
        let label = &[controller];
        self.workers.with_label_values(label).set(i64::try_from(workers).unwrap_or(i64::MAX));
        ControllerMetrics {
            controller: controller.to_owned(),
            results: self.results.clone(),
            known_results: Default::default(),
            errors: self.errors.with_label_values(label),
            terminal_errors: self.terminal_errors.with_label_values(label),
            panics: self.panics.with_label_values(label),
            seconds: self.seconds.with_label_values(label),
            active: self.active.with_label_values(label),
            stale_skips: self.stale_skips.clone(),
            upstream_stale_skips: stale_skips.map(|name| self.upstream(name)),
            passes: passes.map(|name| PassMetrics::register(&self.registry, name)),
        }
    }

    /// Returns the counter with upstream's name, which several controllers may share.
    fn upstream(&self, name: &'static str) -> IntCounterVec {
        let mut counters_by_name =
            self.upstream_stale_skips.lock().unwrap_or_else(PoisonError::into_inner);
        let help = "Syncs skipped because a cache had not yet shown the controller's own writes.";
        counters_by_name
            .entry(name)
            .or_insert_with(|| counters(&self.registry, name, help, &["group", "resource"]))
            .clone()
    }
}

/// Usual results of a reconciliation.
const RESULTS: [&str; 4] = ["success", "requeue_after", "requeue", "error"];

pub(super) struct ControllerMetrics {
    controller: String,
    results: IntCounterVec,
    /// Counters of [`RESULTS`], looked up once.
    known_results: [OnceLock<IntCounter>; RESULTS.len()],
    errors: IntCounter,
    pub(super) terminal_errors: IntCounter,
    pub(super) panics: IntCounter,
    seconds: Histogram,
    pub(super) active: IntGauge,
    stale_skips: IntCounterVec,
    upstream_stale_skips: Option<IntCounterVec>,
    passes: Option<PassMetrics>,
}

/// Passes (reconciles) by status code, for controllers whose passes upstream counts.
struct PassMetrics {
    total: IntCounterVec,
    seconds: HistogramVec,
}

impl PassMetrics {
    fn register(registry: &Registry, name: &str) -> Self {
        let labels = &["code"];
        let total = Opts::new(format!("{name}_sync_total"), "Passes by status code.");
        let total = IntCounterVec::new(total, labels).expect("name and label are literals");
        let seconds = format!("{name}_sync_duration_seconds");
        let seconds = HistogramOpts::new(seconds, "Seconds that passes took, by status code.")
            .buckets(exponential(0.001, 2.0, 15));
        let seconds = HistogramVec::new(seconds, labels).expect("name and label are literals");
        Self { total: register(registry, total), seconds: register(registry, seconds) }
    }

    fn observe(&self, took: Duration, error: Option<&(dyn Error + Send + Sync + 'static)>) {
        let code = match error.map(|error| error.downcast_ref::<Failure>()) {
            None => 200,
            Some(Some(failure)) if failure.code != 0 => failure.code,
            Some(_) => 500,
        };
        let code = code.to_string();
        self.total.with_label_values(&[&code]).inc();
        self.seconds.with_label_values(&[&code]).observe(took.as_secs_f64());
    }
}

impl ControllerMetrics {
    /// Records the duration of a pass, and its error.
    pub(super) fn observe_pass(
        &self,
        took: Duration,
        error: Option<&(dyn Error + Send + Sync + 'static)>,
    ) {
        self.seconds.observe(took.as_secs_f64());
        if let Some(passes) = &self.passes {
            passes.observe(took, error);
        }
    }

    /// Counts a reconciliation by its result.
    pub(super) fn count_result(&self, result: &str) {
        let counter = || self.results.with_label_values(&[&self.controller, result]);
        match RESULTS.iter().position(|known| *known == result) {
            Some(index) => self.known_results[index].get_or_init(counter).inc(),
            None => counter().inc(),
        }
        if result == "error" {
            self.errors.inc();
        }
    }

    /// Counts a key that was postponed because the cache of this resource does not show the key's own writes.
    pub(super) fn count_stale_skip(&self, group: &str, resource: &str) {
        self.stale_skips.with_label_values(&[&self.controller, group, resource]).inc();
        if let Some(upstream) = &self.upstream_stale_skips {
            upstream.with_label_values(&[group, resource]).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_counted_by_the_failures_status_code() {
        let registry = Registry::new();
        let passes = PassMetrics::register(&registry, "publisher");
        let failure = |code| Failure {
            code,
            reason: String::new(),
            message: String::new(),
            namespace_terminating: false,
        };
        let (refused, lost) = (failure(403), failure(0));
        passes.observe(Duration::from_millis(3), None);
        passes.observe(Duration::ZERO, Some(&refused));
        passes.observe(Duration::ZERO, Some(&lost));
        let count = |code| passes.total.with_label_values(&[code]).get();
        assert_eq!([count("200"), count("403"), count("500")], [1, 1, 1]);
        assert_eq!(registry.gather()[1].name(), "publisher_sync_total");
    }
}
