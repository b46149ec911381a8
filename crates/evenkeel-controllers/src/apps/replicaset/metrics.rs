//! Metric of the ages of deleted pods, relative to the youngest remaining pod.

use crate::pods;
use evenkeel_api::{time::Timestamp, views::Pod};
use evenkeel_runtime::{
    metrics,
    plan::{Action, Plan},
};
use prometheus::{Histogram, HistogramOpts, Registry};
use std::sync::Arc;

/// Upstream's metric `replicaset_controller_sorting_deletion_age_ratio`.
#[derive(Debug, Clone)]
pub(super) struct DeletionAge(Histogram);

impl DeletionAge {
    /// Registers the metric.
    pub(super) fn register(registry: &Registry) -> Self {
        Self(metrics::register(registry, Self::unregistered().0))
    }

    /// Returns a metric that is not exported. ReplicationControllers have such a metric, because a registry accepts
    /// only one metric of each name.
    pub(super) fn unregistered() -> Self {
        let help = "The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time). Should be <2. \
                    The intent of this metric is to measure the rough efficacy of the LogarithmicScaleDown feature gate's \
                    effect on the sorting (and deletion) of pods when a replicaset scales down. This only considers Ready \
                    pods when calculating and reporting.";
        let opts = HistogramOpts::new("replicaset_controller_sorting_deletion_age_ratio", help)
            .buckets(metrics::exponential(0.25, 2.0, 6));
        Self(Histogram::with_opts(opts).expect("the name and the buckets are valid literals"))
    }

    /// Observes the deletions of a plan, unless it deletes all pods. Upstream: `reportSortingDeletionAgeRatioMetric`.
    pub(super) fn observe(&self, owned: &[Arc<Pod>], plan: &Plan, now: Timestamp) {
        let deletions = plan.actions.iter().filter_map(|action| match action {
            Action::Delete(delete) => Some(&*delete.target.name),
            _ => None,
        });
        let deleted_names: Vec<&str> = deletions.collect();
        if deleted_names.is_empty() || deleted_names.len() >= owned.len() {
            return;
        }
        let age_millis =
            |pod: &Pod| pod.meta.creation.map(|creation| now.duration_since(creation).as_millis());
        let ready: Vec<&Arc<Pod>> = owned.iter().filter(|pod| pods::is_ready(pod)).collect();
        let Some(youngest) = ready.iter().filter_map(|pod| age_millis(pod)).min() else { return };
        if youngest <= 0 {
            return;
        }
        for name in deleted_names {
            let pod = ready.iter().find(|pod| *pod.meta.name == *name);
            if let Some(age) = pod.and_then(|pod| age_millis(pod)) {
                #[expect(clippy::cast_precision_loss, reason = "a ratio for a histogram")]
                self.0.observe((age / youngest) as f64);
            }
        }
    }
}
