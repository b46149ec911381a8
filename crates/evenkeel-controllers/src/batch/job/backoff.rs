//! How long a Job waits before it replaces pods that failed. Upstream: `backoff_utils.go`.

use super::pod;
use evenkeel_api::{
    time::Timestamp,
    views::{Job, Pod},
};
use std::{sync::Arc, time::Duration};

/// After the first failure.
const FIRST: Duration = Duration::from_secs(10);
/// The longest.
const LONGEST: Duration = Duration::from_mins(10);

/// How long is left to wait: failures since the last success double the time, which counts from the last failure.
///
/// Upstream remembers failures as it sees them, and forgets them when it restarts; here they are read off the pods, which
/// stay until somebody deletes them.
pub(super) fn remaining(job: &Job, pods: &[Arc<Pod>], now: Timestamp) -> Duration {
    let counted = || pods.iter().filter(|pod| pod::counts(pod, job));
    let success = counted().filter(|pod| pod::has_succeeded(pod)).map(|pod| pod::finished_at(pod));
    let success = success.max();
    let failures =
        counted().filter(|pod| pod::has_failed(pod, job)).map(|pod| pod::finished_at(pod));
    let since = failures.filter(|failure| success.is_none_or(|success| *failure > success));
    let (n, last) = since.fold((0, None), |(n, last), failure| (n + 1, last.max(Some(failure))));
    last.map_or(Duration::ZERO, |last| left(n, last, now))
}

/// How long is left to wait for one index, whose last pod this is.
pub(super) fn remaining_of_index(last: &Pod, now: Timestamp) -> Duration {
    let (counted, ignored) = pod::earlier_failures(last);
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
