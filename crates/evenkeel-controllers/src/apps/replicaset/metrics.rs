//! Metric of the ages of deleted pods, relative to the youngest remaining pod.

use crate::pods;
use evenkeel_api::{time::Timestamp, views::Pod};
use evenkeel_runtime::{
    metrics,
    plan::{Action, Plan},
};
use prometheus::{Histogram, HistogramOpts, Registry};
use std::sync::Arc;

/// Metric `replicaset_controller_sorting_deletion_age_ratio`, as upstream's.
#[derive(Debug, Clone)]
pub(super) struct DeletionAge(Histogram);

impl DeletionAge {
    /// Registers the metric.
    pub(super) fn register(registry: &Registry) -> Self {
        Self(metrics::register(registry, Self::unregistered().0))
    }

    /// Returns a metric that is not exported, for ReplicationControllers: a registry accepts only one metric
    /// of each name.
    pub(super) fn unregistered() -> Self {
        let help = "The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time). Should be <2. \
                    The intent of this metric is to measure the rough efficacy of the LogarithmicScaleDown feature gate's \
                    effect on the sorting (and deletion) of pods when a replicaset scales down. This only considers Ready \
                    pods when calculating and reporting.";
        let opts = HistogramOpts::new("replicaset_controller_sorting_deletion_age_ratio", help)
            .buckets(metrics::exponential(0.25, 2.0, 6));
        Self(
            Histogram::with_opts(opts)
                .expect("the name and the buckets are constants that are allowed"),
        )
    }

    /// Observes the deletions of a plan, unless it deletes all pods. Upstream:
    /// `reportSortingDeletionAgeRatioMetric`.
    pub(super) fn observe(&self, owned: &[Arc<Pod>], plan: &Plan, now: Timestamp) {
        let deleted = || {
            plan.actions.iter().filter_map(|action| match action {
                Action::Delete(delete) => Some(&*delete.target.name),
                _ => None,
            })
        };
        let deletions = deleted().count();
        if deletions == 0 || deletions >= owned.len() {
            return;
        }
        let age =
            |pod: &Pod| pod.meta.creation.map(|creation| now.duration_since(creation).as_millis());
        let ready = || owned.iter().filter(|pod| pods::is_ready(pod));
        let Some(youngest) = ready().filter_map(|pod| age(pod)).min().filter(|age| *age > 0) else {
            return;
        };
        for name in deleted() {
            let pod = ready().find(|pod| *pod.meta.name == *name);
            if let Some(ratio) = pod.and_then(|pod| age(pod)).map(|age| age / youngest) {
                #[expect(clippy::cast_precision_loss, reason = "a ratio for a histogram")]
                self.0.observe(ratio as f64);
            }
        }
    }
}
