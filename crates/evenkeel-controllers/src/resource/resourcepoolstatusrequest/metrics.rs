//! Metrics of processed ResourcePoolStatusRequests.

use super::{Requests, plan::Observed};
use evenkeel_runtime::{
    metrics,
    plan::{Pass, PassHandler},
};
use prometheus::{HistogramVec, IntCounterVec, Registry};

/// Counters and durations of processed requests, by driver.
pub(super) struct Metrics {
    processed: IntCounterVec,
    errors: IntCounterVec,
    duration: HistogramVec,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let labels = ["driver_name"];
        Self {
            processed: metrics::counters(
                registry,
                "resourcepoolstatusrequest_controller_requests_processed_total",
                "Total number of ResourcePoolStatusRequests processed",
                &labels,
            ),
            errors: metrics::counters(
                registry,
                "resourcepoolstatusrequest_controller_request_processing_errors_total",
                "Total number of errors encountered while processing ResourcePoolStatusRequests",
                &labels,
            ),
            duration: metrics::histograms(
                registry,
                "resourcepoolstatusrequest_controller_request_processing_duration_seconds",
                "Time taken to process a ResourcePoolStatusRequest",
                &metrics::exponential(0.001, 2.0, 15),
                &labels,
            ),
        }
    }
}

impl PassHandler<Requests> for Metrics {
    /// Counts the update of a status. As upstream, a pass without such a request is not counted.
    fn on_passed(&self, observed: &Observed, pass: &Pass<'_>) {
        let Some(update) = pass.outcomes.0.first() else { return };
        let driver = [&*observed.request.spec.driver];
        self.processed.with_label_values(&driver).inc();
        if update.error.is_some() {
            self.errors.with_label_values(&driver).inc();
        }
        self.duration.with_label_values(&driver).observe(pass.took.as_secs_f64());
    }
}
