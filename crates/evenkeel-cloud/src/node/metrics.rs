//! Metrics of the cloud node controller, under upstream's names.

use evenkeel_runtime::metrics::{exponential, histogram};
use prometheus::{Histogram, Registry};

/// Metrics `node_controller_…` of the cloud node controller.
pub(super) struct Metrics {
    pub(super) taint_removal: Histogram,
    pub(super) first_sync: Histogram,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let seconds = |name: &str, help: &str| {
            let name = format!("node_controller_{name}");
            histogram(registry, &name, help, &exponential(1.0, 4.0, 6))
        };
        Self {
            taint_removal: seconds(
                "cloud_provider_taint_removal_delay_seconds",
                "Seconds from a node's creation until the cloud's taint was taken off.",
            ),
            first_sync: seconds(
                "initial_node_sync_delay_seconds",
                "Seconds from a node's creation until the cloud's part of it was written.",
            ),
        }
    }
}
