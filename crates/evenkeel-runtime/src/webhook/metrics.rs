//! Metrics of webhooks, by controller-runtime's names.

use crate::metrics::{counters, exponential, histograms, int_gauges, register};
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

/// Metrics of the webhooks of a program.
#[derive(Clone)]
pub(super) struct Metrics {
    requests: IntCounterVec,
    latency: HistogramVec,
    in_flight: IntGaugeVec,
    /// Panics of admission handlers.
    pub(super) panics: IntCounter,
    pub(super) conversion_panics: IntCounter,
    /// Reads of certificate files.
    pub(super) certificate_reads: IntCounter,
    /// Failed reads of certificate files.
    pub(super) certificate_read_errors: IntCounter,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> Self {
        Self {
            requests: counters(
                registry,
                "controller_runtime_webhook_requests_total",
                "Total number of admission requests by HTTP status code.",
                &["webhook", "code"],
            ),
            latency: histograms(
                registry,
                "controller_runtime_webhook_latency_seconds",
                "Histogram of the latency of processing admission requests",
                &exponential(10e-9, 10.0, 12),
                &["webhook"],
            ),
            in_flight: int_gauges(
                registry,
                "controller_runtime_webhook_requests_in_flight",
                "Current number of admission requests being served.",
                &["webhook"],
            ),
            panics: counter(
                registry,
                "controller_runtime_webhook_panics_total",
                "Total number of webhook panics",
            ),
            conversion_panics: counter(
                registry,
                "controller_runtime_conversion_webhook_panics_total",
                "Total number of conversion webhook panics",
            ),
            certificate_reads: counter(
                registry,
                "certwatcher_read_certificate_total",
                "Total number of certificate reads",
            ),
            certificate_read_errors: counter(
                registry,
                "certwatcher_read_certificate_errors_total",
                "Total number of certificate read errors",
            ),
        }
    }

    /// Makes the series of a path visible before its first request, as upstream does.
    pub(super) fn expose(&self, path: &str) {
        for code in ["200", "500"] {
            self.requests.with_label_values(&[path, code]);
        }
        self.latency.with_label_values(&[path]);
        self.in_flight.with_label_values(&[path]);
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(super) fn begin(&self, path: &str) -> InFlight {
        let gauge = self.in_flight.with_label_values(&[path]);
        gauge.inc();
        InFlight(gauge)
    }

    /// Counts a completed request.
    pub(super) fn record_response(&self, path: &str, code: http::StatusCode, seconds: f64) {
        self.requests.with_label_values(&[path, code.as_str()]).inc();
        self.latency.with_label_values(&[path]).observe(seconds);
    }
}

/// Request in flight.
pub(super) struct InFlight(IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn counter(registry: &Registry, name: &'static str, help: &'static str) -> IntCounter {
    register(registry, IntCounter::new(name, help).expect("name is a valid literal"))
}
