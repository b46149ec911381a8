//! Metrics of the node lifecycle controller. Upstream: `metrics.go`.

use evenkeel_runtime::metrics;
use prometheus::{GaugeVec, Histogram, IntCounterVec, Registry};

/// Upstream's gauges of zones, and counters and histograms of updates.
pub(super) struct Metrics {
    pub(super) zone_health: GaugeVec,
    pub(super) zone_size: GaugeVec,
    pub(super) unhealthy_nodes: GaugeVec,
    /// Nodes tainted for eviction, by zone: `node_collector_evictions_total`.
    pub(super) evictions: IntCounterVec,
    /// Seconds to update one node: `node_collector_update_node_health_duration_seconds`.
    pub(super) node_seconds: Histogram,
    /// Seconds of a pass over all nodes: `node_collector_update_all_nodes_health_duration_seconds`.
    pub(super) all_nodes_seconds: Histogram,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        const ZONE: &[&str] = &["zone"];
        Self {
            zone_health: metrics::gauges(
                registry,
                "node_collector_zone_health",
                "Gauge measuring percentage of healthy nodes per zone.",
                ZONE,
            ),
            zone_size: metrics::gauges(
                registry,
                "node_collector_zone_size",
                "Gauge measuring number of registered Nodes per zones.",
                ZONE,
            ),
            unhealthy_nodes: metrics::gauges(
                registry,
                "node_collector_unhealthy_nodes_in_zone",
                "Gauge measuring number of not Ready Nodes per zones.",
                ZONE,
            ),
            evictions: metrics::counters(
                registry,
                "node_collector_evictions_total",
                "Number of Node evictions that happened since current instance of NodeController started.",
                ZONE,
            ),
            node_seconds: metrics::histogram(
                registry,
                "node_collector_update_node_health_duration_seconds",
                "Duration in seconds for NodeController to update the health of a single node.",
                &metrics::exponential(0.001, 4.0, 8),
            ),
            all_nodes_seconds: metrics::histogram(
                registry,
                "node_collector_update_all_nodes_health_duration_seconds",
                "Duration in seconds for NodeController to update the health of all nodes.",
                &metrics::exponential(0.01, 4.0, 8),
            ),
        }
    }
}
