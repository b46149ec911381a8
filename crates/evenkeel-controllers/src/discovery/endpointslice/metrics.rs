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
    changed: HistogramVec,
    syncs: IntCounterVec,
    distributions: IntGaugeVec,
    /// The traffic distribution of each Service that has one.
    by_service: Mutex<HashMap<Key, Text>>,
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
            changed: metrics::histograms(
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
            distributions: metrics::int_gauges(
                registry,
                "endpoint_slice_controller_services_count_by_traffic_distribution",
                "Number of Services using some specific trafficDistribution",
                &["traffic_distribution"],
            ),
            by_service: Mutex::default(),
        }
    }

    /// Records the counts and the result of a pass.
    pub(super) fn passed(&self, observed: &Observed, decision: &Decision, outcomes: &Outcomes) {
        let succeeded = outcomes.first_error().is_none() && !decision.incomplete;
        self.syncs.with_label_values(&[if succeeded { "success" } else { "error" }]).inc();
        count_writes(&decision.writes, outcomes, &self.changes);
        let labels = plan::metric_labels(&observed.service);
        for [added, removed, changed] in &decision.counts {
            self.added.observe(*added as f64);
            self.removed.observe(*removed as f64);
            self.changed.with_label_values(&labels).observe(*changed as f64);
        }
        self.gauges.set(&observed.key, Some(decision.share));
        self.set_distribution(&observed.key, labels[1]);
    }

    /// Removes a deleted Service from the gauges.
    pub(super) fn gone(&self, key: &Key) {
        self.gauges.set(key, None);
        self.set_distribution(key, "");
    }

    /// Moves a Service from the gauge of its previous traffic distribution to that of `now`; empty for none.
    fn set_distribution(&self, key: &Key, now: &str) {
        let mut by_service = self.lock();
        let before = by_service.get(key).map_or("", |before| before);
        if before == now {
            return;
        }
        if !before.is_empty() {
            self.distributions.with_label_values(&[before]).dec();
        }
        if now.is_empty() {
            by_service.remove(key);
        } else {
            self.distributions.with_label_values(&[now]).inc();
            by_service.insert(key.clone(), now.into());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Text>> {
        self.by_service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
