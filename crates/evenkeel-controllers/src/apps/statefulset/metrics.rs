//! Gauges of unavailable pods during rolling updates.

use super::{
    observed::Observed,
    plan::{ORDERED_READY, StatefulSetSync},
};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::metrics;
use prometheus::{IntGaugeVec, Registry};

/// Labels of the metrics.
const LABELS: &[&str] = &["statefulset_namespace", "statefulset_name", "pod_management_policy"];

/// Upstream's gauges `statefulset_max_unavailable` and `statefulset_unavailable_replicas`.
#[derive(Debug, Clone)]
pub(super) struct Gauges {
    max_unavailable: IntGaugeVec,
    unavailable: IntGaugeVec,
}

impl Gauges {
    /// Registers the gauges.
    pub(super) fn register(registry: &Registry) -> Self {
        let gauges = |name, help| metrics::int_gauges(registry, name, help, LABELS);
        Self {
            max_unavailable: gauges(
                "statefulset_controller_statefulset_max_unavailable",
                "Maximum number of unavailable pods allowed during StatefulSet rolling updates",
            ),
            unavailable: gauges(
                "statefulset_controller_statefulset_unavailable_replicas",
                "Current number of unavailable pods in StatefulSet",
            ),
        }
    }

    /// Updates the gauges of a set, if the gate `MaxUnavailableStatefulSet` is on.
    pub(super) fn observe(&self, observed: &Observed, now: Timestamp) {
        if !observed.features.max_unavailable {
            return;
        }
        let set = &*observed.set;
        let labels = [&*set.meta.namespace, &*set.meta.name, &*set.spec.pod_management_policy];
        let sync = StatefulSetSync::begin(observed, now);
        self.max_unavailable.with_label_values(&labels).set(sync.max_unavailable().into());
        self.unavailable.with_label_values(&labels).set(sync.n_unavailable().into());
    }

    /// Removes the gauges of a deleted set.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        for policy in [ORDERED_READY, "Parallel"] {
            // The set has gauges for one of the policies only, so the other removal fails.
            let _ = self.max_unavailable.remove_label_values(&[namespace, name, policy]);
            let _ = self.unavailable.remove_label_values(&[namespace, name, policy]);
        }
    }
}
