//! Metrics of the range allocator. Upstream: `cidrset/metrics.go`.

use super::plan::set::CidrSet;
use evenkeel_runtime::metrics;
use prometheus::{GaugeVec, HistogramVec, IntCounterVec, Registry};

/// Upstream's metrics of CIDR sets. Upstream misspells one name.
pub(super) struct Metrics {
    allocations: IntCounterVec,
    releases: IntCounterVec,
    max_cidrs: GaugeVec,
    usage: GaugeVec,
    tries: HistogramVec,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        const RANGE: &[&str] = &["clusterCIDR"];
        Self {
            allocations: metrics::counters(
                registry,
                "node_ipam_controller_cidrset_cidrs_allocations_total",
                "Counter measuring total number of CIDR allocations.",
                RANGE,
            ),
            releases: metrics::counters(
                registry,
                "node_ipam_controller_cidrset_cidrs_releases_total",
                "Counter measuring total number of CIDR releases.",
                RANGE,
            ),
            max_cidrs: metrics::gauges(
                registry,
                "node_ipam_controller_cirdset_max_cidrs",
                "Maximum number of CIDRs that can be allocated.",
                RANGE,
            ),
            usage: metrics::gauges(
                registry,
                "node_ipam_controller_cidrset_usage_cidrs",
                "Gauge measuring percentage of allocated CIDRs.",
                RANGE,
            ),
            tries: metrics::histograms(
                registry,
                "node_ipam_controller_cidrset_allocation_tries_per_request",
                "Number of endpoints added on each Service sync",
                &metrics::exponential(1.0, 5.0, 5),
                RANGE,
            ),
        }
    }

    /// Updates the gauges and counters of a CIDR set.
    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes")]
    pub(super) fn update_gauges(&self, set: &CidrSet) {
        let range = set.range().to_string();
        let label = [range.as_str()];
        let allocations = self.allocations.with_label_values(&label);
        let releases = self.releases.with_label_values(&label);
        allocations.inc_by(set.allocations_total.saturating_sub(allocations.get()));
        if set.releases_total > 0 {
            releases.inc_by(set.releases_total.saturating_sub(releases.get()));
        }
        self.max_cidrs.with_label_values(&label).set(set.size() as f64);
        self.usage.with_label_values(&label).set(set.allocated_parts() as f64 / set.size() as f64);
    }

    /// Observes the number of allocated parts that an allocation tried before it found a free part.
    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes")]
    pub(super) fn observe_tries(&self, set: &CidrSet, tries: usize) {
        let range = set.range().to_string();
        self.tries.with_label_values(&[range.as_str()]).observe(tries as f64);
    }
}
