//! How many pods of each set may be unavailable, and are.

use super::{plan::Pass, seen::Seen};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::metrics;
use prometheus::{IntGaugeVec, Registry};

const LABELS: &[&str] = &["statefulset_namespace", "statefulset_name", "pod_management_policy"];

/// Upstream's gauges of rolling updates.
#[derive(Debug, Clone)]
pub(super) struct Gauges {
    max_unavailable: IntGaugeVec,
    unavailable: IntGaugeVec,
}

impl Gauges {
    /// Registers them.
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

    /// Notes how a set stands, where `maxUnavailable` counts.
    pub(super) fn observe(&self, seen: &Seen, now: Timestamp) {
        if !seen.features.max_unavailable {
            return;
        }
        let set = &*seen.set;
        let labels = [&*set.meta.namespace, &*set.meta.name, &*set.spec.pod_management_policy];
        let pass = Pass::begin(seen, now);
        self.max_unavailable.with_label_values(&labels).set(pass.max_unavailable().into());
        self.unavailable.with_label_values(&labels).set(pass.n_unavailable().into());
    }

    /// Forgets a set that is gone.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        for policy in [super::plan::ORDERED_READY, "Parallel"] {
            // Not there for the policy that the set did not have.
            let _ = self.max_unavailable.remove_label_values(&[namespace, name, policy]);
            let _ = self.unavailable.remove_label_values(&[namespace, name, policy]);
        }
    }
}
