//! Failures per index: `backoffLimitPerIndex` (KEP-3850).

use super::{
    indexes::Indexes,
    pod::{self, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT},
    policy::{self, PodFailurePolicyAction},
};
use evenkeel_api::{
    time::Timestamp,
    views::{Job, Pod},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Failures of the indexes of a Job with `backoffLimitPerIndex`.
#[derive(Debug)]
pub(super) struct PerIndexFailures {
    /// Indexes that exceeded the limit, or failed by the pod failure policy. Upstream: `calculateFailedIndexes`.
    pub(super) failed: Indexes,
    /// The last failed pod of each index for which the controller has yet to create another pod. The deletion of the
    /// failed pod is delayed, because its annotations have the failure counts that the new pod continues. Upstream:
    /// `getPodsWithDelayedDeletionPerIndex`.
    pub(super) pods_with_delayed_deletion: BTreeMap<u32, Arc<Pod>>,
}

impl PerIndexFailures {
    /// Returns the failures of a Job's indexes, from its status and its pods. `tracked` are the pods with the
    /// finalizer `batch.kubernetes.io/job-tracking`. Returns `None` without `backoffLimitPerIndex`.
    pub(super) fn of<'a>(
        job: &Job,
        tracked: impl Iterator<Item = &'a Arc<Pod>>,
        active: &[Arc<Pod>],
        succeeded: &Indexes,
    ) -> Option<Self> {
        let limit = job.spec.backoff_limit_per_index?;
        let failed_pods: Vec<FailedPod<'a>> = tracked
            .filter(|pod| pod::has_failed(pod, job))
            .filter_map(|pod| Some(FailedPod { index: pod::valid_index(pod, job)?, pod }))
            .collect();
        let recorded_failed = job.status.failed_indexes.as_deref().unwrap_or_default();
        let newly_failed = failed_pods
            .iter()
            .filter(|failed| fails_index(job, failed.pod, limit))
            .map(|failed| failed.index);
        let failed = Indexes::parse(recorded_failed, pod::completions(job)).with(newly_failed);
        // An index beyond `completions` does no harm here, because all indexes of `failed_pods` are valid.
        let running: BTreeSet<u32> = active.iter().filter_map(|pod| pod::index(pod)).collect();
        let mut pods_with_delayed_deletion = BTreeMap::<u32, Arc<Pod>>::new();
        for FailedPod { index, pod } in failed_pods {
            if succeeded.contains(index) || failed.contains(index) || running.contains(&index) {
                continue;
            }
            let replaces_last = match pods_with_delayed_deletion.get(&index) {
                Some(last) => attempt_order(pod) >= attempt_order(last),
                None => true,
            };
            if replaces_last {
                pods_with_delayed_deletion.insert(index, pod.clone());
            }
        }
        Some(Self { failed, pods_with_delayed_deletion })
    }
}

/// A failed pod with its completion index.
struct FailedPod<'a> {
    index: u32,
    pod: &'a Arc<Pod>,
}

/// Returns whether a pod's failure fails its index. It does if the pod failure policy says `FailIndex`. Otherwise the
/// policy must not ignore the failure, and earlier failures must have used up `limit` (`backoffLimitPerIndex`).
///
/// Upstream: `isIndexFailed`.
fn fails_index(job: &Job, pod: &Pod, limit: i32) -> bool {
    match policy::match_pod_failure_policy(job, pod) {
        PodFailurePolicyAction::FailIndex => true,
        action => action.counts_failure() && index_failure_counts(pod).counted >= limit,
    }
}

/// Returns the sort key of a failed pod among those of its index. The pod of a later attempt has a greater key.
fn attempt_order(pod: &Pod) -> (i32, Timestamp) {
    (index_failure_counts(pod).sum(), pod::finished_at(pod))
}

/// Earlier failures of an index, as the annotations of its pod record them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IndexFailureCounts {
    /// Failures that count towards `backoffLimitPerIndex`.
    pub(super) counted: i32,
    /// Failures that the pod failure policy ignores.
    pub(super) ignored: i32,
}

impl IndexFailureCounts {
    /// Returns the number of all failures.
    pub(super) fn sum(self) -> i32 {
        self.counted.saturating_add(self.ignored)
    }
}

/// Returns the failure counts in the pod's annotations. Upstream: `getIndexFailureCount`.
pub(super) fn index_failure_counts(pod: &Pod) -> IndexFailureCounts {
    let read_count = |annotation| {
        let text = pod.meta.annotations.get(annotation);
        text.and_then(|text| text.parse::<i32>().ok()).filter(|count| *count >= 0).unwrap_or(0)
    };
    IndexFailureCounts {
        counted: read_count(INDEX_FAILURE_COUNT),
        ignored: read_count(INDEX_IGNORED_FAILURE_COUNT),
    }
}

/// Returns the failure counts for the successor of a failed pod. Upstream: `getNewIndexFailureCounts`.
pub(super) fn new_index_failure_counts(job: &Job, replaced: Option<&Pod>) -> IndexFailureCounts {
    let Some(replaced) = replaced else { return IndexFailureCounts::default() };
    let mut counts = index_failure_counts(replaced);
    if policy::match_pod_failure_policy(job, replaced).counts_failure() {
        counts.counted = counts.counted.saturating_add(1);
    } else {
        counts.ignored = counts.ignored.saturating_add(1);
    }
    counts
}
