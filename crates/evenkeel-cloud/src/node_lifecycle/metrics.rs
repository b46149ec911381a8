//! Metrics of the cloud node lifecycle controller, under upstream's names.

use crate::CloudError;
use evenkeel_runtime::metrics::{counters, exponential, histogram};
use prometheus::{Histogram, IntCounterVec, Registry};

/// Metrics `cloud_node_lifecycle_controller_…` of the cloud node lifecycle controller.
pub(super) struct Metrics {
    calls: IntCounterVec,
    /// Duration of the check of one node. Upstream measures the check of all nodes.
    pub(super) seconds: Histogram,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            calls: counters(
                registry,
                "cloud_node_lifecycle_controller_cloud_provider_calls_total",
                "Number of calls to the cloud provider, by operation and result.",
                &["operation", "result"],
            ),
            seconds: histogram(
                registry,
                "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
                "Duration in seconds of the check of a node that is not ready.",
                &exponential(0.001, 2.0, 15),
            ),
        }
    }

    /// Counts a call to the cloud provider. `Ok(false)` means that the instance does not exist.
    pub(super) fn record_call(&self, operation: &str, answer: Result<bool, &CloudError>) {
        let result = match answer {
            Ok(true) => "success",
            Ok(false) => "instance_not_found",
            Err(error) => error.result(),
        };
        self.calls.with_label_values(&[operation, result]).inc();
    }
}
