//! Backoff of failed pods: it prevents a hot loop between the controller and a kubelet that rejects the pods.
//! Upstream: `failedPodsBackoff`.

use evenkeel_api::{
    Text,
    time::{SignedDuration, Timestamp},
};
use std::{collections::HashMap, time::Duration};

/// Delay after the first failed pod. Each further failure doubles it.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Upper bound of the delay.
const MAX_BACKOFF: Duration = Duration::from_secs(15 * 60);

/// Key of a backoff. Upstream: `failedPodsBackoffKey`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BackoffKey {
    /// Uid of the DaemonSet.
    pub(crate) set: Text,
    /// The DaemonSet's `status.observedGeneration`: a changed DaemonSet starts without backoff.
    pub(crate) observed_generation: i64,
    /// Name of the node on which the pod failed.
    pub(crate) node: Text,
}

/// Delay before a failed pod of a node is replaced.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Delay {
    since: Timestamp,
    duration: Duration,
}

/// Delays of a DaemonSet by node. Each failure doubles the delay. An entry expires after twice [`MAX_BACKOFF`].
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Backoff(HashMap<BackoffKey, Delay>);

impl Backoff {
    /// Returns the remaining backoff, or `None` if it is over or never began.
    pub(crate) fn remaining(&self, key: &BackoffKey, now: Timestamp) -> Option<Duration> {
        let delay = self.0.get(key)?;
        let remaining = delay.duration.checked_sub(age(delay.since, now))?;
        (!remaining.is_zero()).then_some(remaining)
    }

    /// Records that a failed pod is deleted now.
    pub(crate) fn record(&mut self, key: BackoffKey, now: Timestamp) {
        self.0.retain(|_, delay| age(delay.since, now) <= 2 * MAX_BACKOFF);
        let doubled = self.0.get(&key).map(|delay| (2 * delay.duration).min(MAX_BACKOFF));
        self.0.insert(key, Delay { since: now, duration: doubled.unwrap_or(INITIAL_BACKOFF) });
    }
}

/// Returns the time since `since`. A clock that runs backwards counts as no time.
fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since).max(SignedDuration::ZERO)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at};

    fn key() -> BackoffKey {
        BackoffKey { set: "uid".into(), observed_generation: 1, node: "node".into() }
    }

    #[test]
    fn backoff_doubles_up_to_15_minutes() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.remaining(&key(), T0), None);
        let mut now = T0;
        let mut delays = Vec::new();
        for _ in 0..12 {
            backoff.record(key(), now);
            let remaining = backoff.remaining(&key(), now).unwrap();
            delays.push(remaining.as_secs());
            now += SignedDuration::try_from(remaining).unwrap();
            assert_eq!(backoff.remaining(&key(), now), None);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
    }

    #[test]
    fn backoff_is_reset_after_twice_the_maximum() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.record(key(), T0);
        }
        let mut kept = backoff.clone();
        kept.record(key(), at(1800));
        assert_eq!(kept.remaining(&key(), at(1800)), Some(32 * INITIAL_BACKOFF));
        backoff.record(key(), at(1801));
        assert_eq!(backoff.remaining(&key(), at(1801)), Some(INITIAL_BACKOFF));
    }
}
