//! Backoff before a Job replaces its failed pods. Upstream: `backoff_utils.go`.

use super::{per_index, pod};
use evenkeel_api::{
    Text,
    time::Timestamp,
    views::{Job, Pod},
};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// Backoff after the first failure. Upstream: `DefaultJobPodFailureBackOff`.
const INITIAL_BACKOFF: Duration = Duration::from_secs(10);
/// Maximum backoff, as in upstream's code (the documentation says 6 minutes). Upstream: `MaxJobPodFailureBackOff`.
const MAX_BACKOFF: Duration = Duration::from_mins(10);

/// Failures since a pod last succeeded. Each doubles the backoff, which starts at the last failure. Upstream:
/// `backoffRecord`.
///
/// The count is kept across reconciliations, because failed pods may disappear. With `podReplacementPolicy:
/// TerminatingOrFailed`, an evicted pod counts as failed as soon as it terminates. After a restart, the controller
/// counts the existing pods, whereas upstream starts from zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// Number of consecutive failures: those since the last success.
    consecutive: u32,
    last_failure: Option<Timestamp>,
    /// Uids of counted pods that still have the finalizer.
    counted: HashSet<Text>,
}

impl Failures {
    /// Counts the pods that ended since `earlier`, which is `None` for a Job that is new to this process.
    pub(super) fn count(earlier: Option<&Self>, job: &Job, pods: &[Arc<Pod>]) -> Self {
        let is_uncounted = |pod: &Pod| match earlier {
            // A pod keeps its finalizer until it is counted here.
            Some(earlier) => pod::is_tracked(pod) && !earlier.counted.contains(&pod.meta.uid),
            // A pod that a suspended Job deletes has no finalizer and did not fail.
            None => pod::is_tracked(pod) || !pod.meta.deleting(),
        };
        let has_ended = |pod: &Pod| pod::has_succeeded(pod) || pod::has_failed(pod, job);
        let with_index = pods.iter().filter(|pod| pod::has_needed_index(pod, job));
        let ended_pods: Vec<&Arc<Pod>> = with_index.filter(|pod| has_ended(pod)).collect();
        let uncounted = || ended_pods.iter().filter(|pod| is_uncounted(pod));
        let succeeded = uncounted().filter(|pod| pod::has_succeeded(pod));
        let failed = uncounted().filter(|pod| !pod::has_succeeded(pod));
        let last_success = succeeded.map(|pod| pod::finished_at(pod)).max();
        let (mut consecutive, mut last_failure) = match (earlier, last_success) {
            (Some(earlier), None) => (earlier.consecutive, earlier.last_failure),
            _ => (0, None),
        };
        for failure in failed.map(|pod| pod::finished_at(pod)) {
            if last_success.is_none_or(|success| failure > success) {
                consecutive = consecutive.saturating_add(1);
                last_failure = last_failure.max(Some(failure));
            }
        }
        let tracked = ended_pods.iter().filter(|pod| pod::is_tracked(pod));
        Self {
            consecutive,
            last_failure,
            counted: tracked.map(|pod| pod.meta.uid.clone()).collect(),
        }
    }

    /// Returns the remaining backoff. Upstream: `getRemainingTime`.
    pub(super) fn remaining(&self, now: Timestamp) -> Duration {
        self.last_failure.map_or(Duration::ZERO, |last| remaining(self.consecutive, last, now))
    }
}

/// Returns the remaining backoff of the index whose last failed pod this is. Upstream: `getRemainingTimePerIndex`.
pub(super) fn remaining_of_index(last_failed: &Pod, now: Timestamp) -> Duration {
    let earlier = u32::try_from(per_index::index_failure_counts(last_failed).sum()).unwrap_or(0);
    remaining(earlier.saturating_add(1), pod::finished_at(last_failed), now)
}

/// Returns the remaining backoff after this number of consecutive failures.
fn remaining(failures: u32, last_failure: Timestamp, now: Timestamp) -> Duration {
    let backoff = INITIAL_BACKOFF
        .saturating_mul(2u32.saturating_pow(failures.saturating_sub(1)))
        .min(MAX_BACKOFF);
    // A clock that runs behind does not extend the backoff.
    let passed = Duration::try_from(now.duration_since(last_failure)).unwrap_or_default();
    backoff.saturating_sub(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at};

    #[test]
    fn backoff_doubles_up_to_ten_minutes() {
        for (failures, passed, expected) in [
            (1, 0, 10),
            (1, 4, 6),
            (1, 11, 0),
            (2, 0, 20),
            (3, 0, 40),
            (6, 0, 320),
            (7, 0, 600),
            (u32::MAX, 1, 599),
            (1, -5, 10),
        ] {
            let remaining = remaining(failures, T0, at(passed)).as_secs();
            assert_eq!(remaining, expected, "{failures} failures, {passed} s ago");
        }
    }
}
