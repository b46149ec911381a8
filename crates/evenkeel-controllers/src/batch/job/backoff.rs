//! How long a Job waits before it replaces pods that failed. Upstream: `backoff_utils.go`.

use super::{per_index, pod};
use evenkeel_api::{
    Text,
    time::Timestamp,
    views::{Job, Pod},
};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// After the first failure.
const FIRST: Duration = Duration::from_secs(10);
/// The longest, as upstream has it; its documentation says six minutes.
const LONGEST: Duration = Duration::from_mins(10);

/// Failures of a Job's pods since one last succeeded: each doubles the time, which counts from the last.
///
/// Remembered from pass to pass, as upstream does, since a pod that failed need not stay: one that is evicted or deleted has
/// failed at once, where `podReplacementPolicy` says `TerminatingOrFailed`, and is soon gone. After a restart, when nothing
/// is remembered, failures are read off the pods that are there (upstream then counts from nothing).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Failures {
    number: u32,
    last: Option<Timestamp>,
    /// Uids of pods that have ended and are held back still: each of them is taken into account.
    counted: HashSet<Text>,
}

impl Failures {
    /// With what pods have ended since `earlier`, which is none when the Job is looked at for the first time.
    pub(super) fn seen(earlier: Option<&Self>, job: &Job, pods: &[Arc<Pod>]) -> Self {
        let is_new = |pod: &Pod| match earlier {
            // No pod is let go before it is looked at here.
            Some(earlier) => pod::is_tracked(pod) && !earlier.counted.contains(&pod.meta.uid),
            // One that the Job itself deletes, when it is suspended, is not tracked and has not failed.
            None => pod::is_tracked(pod) || !pod.meta.deleting(),
        };
        let ended = || {
            let ended = |pod: &&Pod| pod::has_succeeded(pod) || pod::has_failed(pod, job);
            pods.iter().map(|pod| &**pod).filter(|pod| pod::counts(pod, job)).filter(ended)
        };
        let new = |ended: &&Pod| is_new(ended);
        let success = ended().filter(|pod| pod::has_succeeded(pod)).filter(new);
        let success = success.map(pod::finished_at).max();
        let failures = ended().filter(|pod| !pod::has_succeeded(pod)).filter(new);
        let failures = failures
            .map(pod::finished_at)
            .filter(|failure| success.is_none_or(|success| *failure > success));
        let before = match (earlier, success) {
            (Some(earlier), None) => (earlier.number, earlier.last),
            _ => (0, None),
        };
        let (number, last) = failures
            .fold(before, |(n, last), failure| (n.saturating_add(1), last.max(Some(failure))));
        let held = ended().filter(|pod| pod::is_tracked(pod));
        Self { number, last, counted: held.map(|pod| pod.meta.uid.clone()).collect() }
    }

    /// How long is left to wait.
    pub(super) fn remaining(&self, now: Timestamp) -> Duration {
        self.last.map_or(Duration::ZERO, |last| left(self.number, last, now))
    }
}

/// How long is left to wait for one index, whose last pod this is.
pub(super) fn remaining_of_index(last: &Pod, now: Timestamp) -> Duration {
    let (counted, ignored) = per_index::earlier_failures(last);
    let earlier = u32::try_from(counted.saturating_add(ignored)).unwrap_or(0);
    left(earlier.saturating_add(1), pod::finished_at(last), now)
}

fn left(failures: u32, last: Timestamp, now: Timestamp) -> Duration {
    let wait = FIRST.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST);
    // A clock that is behind makes the wait no longer than it is.
    let passed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
    wait.saturating_sub(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at};

    #[test]
    fn each_failure_doubles_the_wait_up_to_ten_minutes() {
        for (failures, passed, want) in [
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
            let left = left(failures, T0, at(passed)).as_secs();
            assert_eq!(left, want, "{failures} failures, {passed} s ago");
        }
    }
}
