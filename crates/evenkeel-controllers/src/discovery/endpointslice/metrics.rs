//! Metrics of the EndpointSlice controller, under upstream's names.

use super::plan::{self, Decision, Observed};
use crate::discovery::metrics::{SliceGauges, count_writes};
use evenkeel_api::Text;
use evenkeel_runtime::{
    metrics::{self, DEFAULT_SECONDS},
    plan::{Key, Outcomes},
};
use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGaugeVec, Registry};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Handles of the controller's metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    added: Histogram,
    removed: Histogram,
    gauges: SliceGauges,
    changes: IntCounterVec,
    slices_changed: HistogramVec,
    syncs: IntCounterVec,
    services_by_distribution: IntGaugeVec,
    /// The traffic distribution of each Service that has one.
    distribution_of_service: Mutex<HashMap<Key, Text>>,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let sizes = metrics::exponential(2.0, 2.0, 15);
        let per_sync = |name, help| metrics::histogram(registry, name, help, &sizes);
        Self {
            added: per_sync(
                "endpoint_slice_controller_endpoints_added_per_sync",
                "Number of endpoints added on each Service sync",
            ),
            removed: per_sync(
                "endpoint_slice_controller_endpoints_removed_per_sync",
                "Number of endpoints removed on each Service sync",
            ),
            gauges: SliceGauges::new(
                registry,
                [
                    "endpoint_slice_controller_endpoints_desired",
                    "endpoint_slice_controller_num_endpoint_slices",
                    "endpoint_slice_controller_desired_endpoint_slices",
                ],
            ),
            changes: metrics::counters(
                registry,
                "endpoint_slice_controller_changes",
                "Number of EndpointSlice changes",
                &["operation"],
            ),
            slices_changed: metrics::histograms(
                registry,
                "endpoint_slice_controller_endpointslices_changed_per_sync",
                "Number of EndpointSlices changed on each Service sync",
                DEFAULT_SECONDS,
                &["topology", "traffic_distribution"],
            ),
            syncs: metrics::counters(
                registry,
                "endpoint_slice_controller_syncs",
                "Number of EndpointSlice syncs",
                &["result"],
            ),
            services_by_distribution: metrics::int_gauges(
                registry,
                "endpoint_slice_controller_services_count_by_traffic_distribution",
                "Number of Services using some specific trafficDistribution",
                &["traffic_distribution"],
            ),
            distribution_of_service: Mutex::default(),
        }
    }

    /// Records the counts and the result of a reconciliation.
    pub(super) fn record_pass(
        &self,
        observed: &Observed,
        decision: &Decision,
        outcomes: &Outcomes,
    ) {
        let succeeded = outcomes.first_error().is_none() && !decision.omits_pods;
        self.syncs.with_label_values(&[if succeeded { "success" } else { "error" }]).inc();
        count_writes(&decision.writes, outcomes, &self.changes);
        let labels = plan::metric_labels(&observed.service);
        for counts in &decision.family_counts {
            self.added.observe(counts.added_endpoints as f64);
            self.removed.observe(counts.removed_endpoints as f64);
            self.slices_changed.with_label_values(&labels).observe(counts.changed_slices as f64);
        }
        self.gauges.set(&observed.key, Some(decision.service_counts));
        let [_, traffic_distribution] = labels;
        self.set_distribution(&observed.key, traffic_distribution);
    }

    /// Removes a deleted Service from the gauges.
    pub(super) fn remove_service(&self, key: &Key) {
        self.gauges.set(key, None);
        self.set_distribution(key, "");
    }

    /// Moves a Service from the gauge of its previous traffic distribution to that of `distribution`. Empty for none.
    fn set_distribution(&self, key: &Key, distribution: &str) {
        let mut distribution_of_service = self.lock();
        let previous = distribution_of_service.get(key).map_or("", |previous| previous);
        if previous == distribution {
            return;
        }
        if !previous.is_empty() {
            self.services_by_distribution.with_label_values(&[previous]).dec();
        }
        if distribution.is_empty() {
            distribution_of_service.remove(key);
        } else {
            self.services_by_distribution.with_label_values(&[distribution]).inc();
            distribution_of_service.insert(key.clone(), distribution.into());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Text>> {
        self.distribution_of_service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
