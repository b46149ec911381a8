//! `/metrics/slis`: results of the program's health checks (KEP-3466).

use evenkeel_runtime::metrics::{counters, gauge, int_gauges, process};
use prometheus::{IntCounterVec, IntGaugeVec, Registry, proto::MetricFamily};

/// Results of health checks.
#[derive(Clone)]
pub(super) struct Slis {
    registry: Registry,
    last_result: IntGaugeVec,
    total: IntCounterVec,
}

impl Slis {
    pub(super) fn new() -> Self {
        let registry = Registry::new();
        let last_result = int_gauges(
            &registry,
            "kubernetes_healthcheck",
            "1 if a health check passed the last time, 0 if it did not.",
            &["name", "type"],
        );
        let total = counters(
            &registry,
            "kubernetes_healthchecks_total",
            "Runs of health checks, by result: success or error.",
            &["name", "type", "status"],
        );
        let start = "Start of the process, in seconds since the epoch.";
        gauge(&registry, "process_start_time_seconds", start).set(process::start_time());
        Self { registry, last_result, total }
    }

    /// Records the result of a check for a request to `/{path}`.
    pub(super) fn record(&self, name: &str, path: &str, passed: bool) {
        self.last_result.with_label_values(&[name, path]).set(i64::from(passed));
        let status = if passed { "success" } else { "error" };
        self.total.with_label_values(&[name, path, status]).inc();
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}
