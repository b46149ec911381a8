//! Metrics of the EndpointSlice mirroring controller, under upstream's names.

use super::plan::Decision;
use crate::discovery::metrics::{SliceGauges, count_writes};
use evenkeel_runtime::{
    metrics,
    plan::{Key, Outcomes},
};
use prometheus::{Histogram, IntCounterVec, Registry};
use std::time::Duration;

/// Handles of the controller's metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    added: Histogram,
    updated: Histogram,
    removed: Histogram,
    skipped: Histogram,
    took: Histogram,
    gauges: SliceGauges,
    changes: IntCounterVec,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let sizes = metrics::exponential(2.0, 2.0, 15);
        let per_sync = |name, help| metrics::histogram(registry, name, help, &sizes);
        Self {
            added: per_sync(
                "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
                "Number of endpoints added on each Endpoints sync",
            ),
            updated: per_sync(
                "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
                "Number of endpoints updated on each Endpoints sync",
            ),
            removed: per_sync(
                "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
                "Number of endpoints removed on each Endpoints sync",
            ),
            skipped: per_sync(
                "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
                "Number of addresses skipped on each Endpoints sync due to being invalid or exceeding MaxEndpointsPerSubset",
            ),
            took: metrics::histogram(
                registry,
                "endpoint_slice_mirroring_controller_endpoints_sync_duration",
                "Duration of syncEndpoints() in seconds",
                &metrics::exponential(0.001, 2.0, 15),
            ),
            gauges: SliceGauges::new(
                registry,
                [
                    "endpoint_slice_mirroring_controller_endpoints_desired",
                    "endpoint_slice_mirroring_controller_num_endpoint_slices",
                    "endpoint_slice_mirroring_controller_desired_endpoint_slices",
                ],
            ),
            changes: metrics::counters(
                registry,
                "endpoint_slice_mirroring_controller_changes",
                "Number of EndpointSlice changes",
                &["operation"],
            ),
        }
    }

    /// Records the counts and the duration of a reconciliation.
    pub(super) fn record_pass(
        &self,
        key: &Key,
        decision: &Decision,
        outcomes: &Outcomes,
        took: Duration,
    ) {
        self.took.observe(took.as_secs_f64());
        let Some(counts) = decision.counts else {
            return self.gauges.set(key, None);
        };
        count_writes(&decision.writes, outcomes, &self.changes);
        self.added.observe(counts.added as f64);
        self.updated.observe(counts.updated as f64);
        self.removed.observe(counts.removed as f64);
        self.skipped.observe(counts.skipped as f64);
        self.gauges.set(key, Some(counts.service_counts));
    }
}
