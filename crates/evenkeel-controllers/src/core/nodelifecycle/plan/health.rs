//! Health of a node by its heartbeats: status updates by the kubelet and lease renewals.
//!
//! The controller's clock at the time of an observation counts. Timestamps in objects are only compared for change,
//! because nodes' clocks may be wrong.

use super::super::Options;
use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::{Lease, Node, NodeCondition},
};

/// Time since the controller's start, on the monotonic clock.
pub(crate) type Moment = SignedDuration;

/// The current time on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// Monotonic time, for durations.
    pub(crate) steady: Moment,
    /// Wall-clock time, for timestamps in objects.
    pub(crate) wall: Timestamp,
}

/// Status of the condition `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Status `True`: the kubelet reports a healthy node.
    Yes,
    /// Status `False`: the kubelet reports a node that cannot run pods.
    No,
    /// Status `Unknown`: the kubelet has not reported within the grace period.
    Unknown,
    /// Any other status, which the API server does not accept.
    Other,
}

impl Ready {
    fn of(condition: &NodeCondition) -> Self {
        match &*condition.status {
            "True" => Self::Yes,
            "False" => Self::No,
            "Unknown" => Self::Unknown,
            _ => Self::Other,
        }
    }
}

/// Returns the status of the node's condition `Ready`, or `None` before its kubelet's first status.
pub(crate) fn ready_status(node: &Node) -> Option<Ready> {
    ready_condition(node).map(Ready::of)
}

/// Returns the node's condition `Ready`.
fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    node.status.conditions.iter().find(|condition| &*condition.type_ == "Ready")
}

/// Health of a node as last observed. Upstream: `nodeHealthData`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeHealth {
    /// Time of the last observed heartbeat. Upstream: `probeTimestamp`.
    pub(crate) probe_time: Moment,
    /// Status of the condition `Ready`.
    pub(crate) ready: Option<Ready>,
    /// The condition's `lastHeartbeatTime`, compared for change.
    heartbeat_time: Option<Timestamp>,
    /// The lease's `renewTime`, which a lease may lack. `None` before the first lease.
    renew_time: Option<Option<Timestamp>>,
}

impl NodeHealth {
    /// Returns the health after an observation of the node and its lease. `before` is the last health, if any.
    /// Upstream: `tryUpdateNodeHealth`.
    pub(crate) fn observe(
        before: Option<Self>,
        node: &Node,
        lease: Option<&Lease>,
        now: Now,
    ) -> Self {
        let condition = ready_condition(node);
        let ready = condition.map(Ready::of);
        let heartbeat_time = condition.and_then(|condition| condition.last_heartbeat_time);
        let mut health = match before {
            Some(before)
                if before.ready.is_some() == ready.is_some()
                    && before.heartbeat_time == heartbeat_time =>
            {
                Self { ready, ..before }
            }
            Some(before) => Self { probe_time: now.steady, ready, heartbeat_time, ..before },
            None => {
                // The grace period of a node without a status begins at its creation.
                let probe_time =
                    if ready.is_none() { now.steady - age(node, now.wall) } else { now.steady };
                Self { probe_time, ready, heartbeat_time, renew_time: None }
            }
        };
        if let Some(lease) = lease
            && health.renew_time.is_none_or(|before| before < lease.spec.renew_time)
        {
            health.renew_time = Some(lease.spec.renew_time);
            health.probe_time = now.steady;
        }
        health
    }

    /// Returns whether the last heartbeat is older than the grace period: `--node-startup-grace-period` before the
    /// first status, `--node-monitor-grace-period` after it.
    pub(crate) fn is_grace_period_over(&self, options: &Options, now: Now) -> bool {
        let grace_period = match self.ready {
            None => options.startup_grace_period,
            Some(_) => options.monitor_grace_period,
        };
        let since_heartbeat = now.steady - self.probe_time;
        std::time::Duration::try_from(since_heartbeat).is_ok_and(|passed| passed > grace_period)
    }
}

/// Returns the time since the node's creation. Zero for a creation in the future.
fn age(node: &Node, now: Timestamp) -> SignedDuration {
    let creation = node.meta.creation.unwrap_or(now);
    now.duration_since(creation).max(SignedDuration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, meta};
    use evenkeel_api::views::LeaseSpec;
    use proptest::prelude::*;

    fn now(seconds: i64) -> Now {
        Now { steady: SignedDuration::from_secs(seconds), wall: at(seconds) }
    }

    /// Returns a node with this status of `Ready` and this heartbeat time; without the condition if the status is
    /// empty.
    fn node(ready: &str, heartbeat_time: i64) -> Node {
        let mut node = Node { meta: meta("n"), ..Node::default() };
        if !ready.is_empty() {
            node.status.conditions = Box::new([NodeCondition {
                type_: "Ready".into(),
                status: ready.into(),
                last_heartbeat_time: Some(at(heartbeat_time)),
                ..NodeCondition::default()
            }]);
        }
        node
    }

    fn lease(renew_time: i64) -> Lease {
        let spec = LeaseSpec { renew_time: Some(at(renew_time)), ..LeaseSpec::default() };
        Lease { meta: meta("n"), spec }
    }

    /// An observation: its time, the Ready status and its heartbeat time, and the renew time of the lease.
    type Observation = (i64, &'static str, i64, Option<i64>);

    /// Returns the probe time of a node after these observations.
    fn probe_time(observations: &[Observation]) -> i64 {
        let mut health = None;
        for (when, ready, heartbeat_time, renew_time) in observations {
            let lease = renew_time.map(lease);
            health = Some(NodeHealth::observe(
                health,
                &node(ready, *heartbeat_time),
                lease.as_ref(),
                now(*when),
            ));
        }
        health.expect("an observation").probe_time.as_secs()
    }

    #[test]
    fn probe_time_follows_heartbeats_and_lease_renewals() {
        // Observations, and the probe time after them.
        let table: [(&[Observation], i64); 9] = [
            (&[(100, "True", 7, None)], 100),
            (&[(100, "True", 7, None), (200, "True", 7, None)], 100),
            (&[(100, "True", 7, None), (200, "True", 8, None)], 200),
            // The status alone is not a heartbeat: another client may have written it.
            (&[(100, "True", 7, None), (200, "Unknown", 7, None)], 100),
            (&[(100, "True", 7, Some(1)), (200, "True", 7, Some(1))], 100),
            (
                &[(100, "True", 7, Some(1)), (200, "True", 7, Some(2)), (300, "True", 7, Some(2))],
                200,
            ),
            // A node that never reported counts from its creation.
            (&[(100, "", 0, None), (200, "", 0, None)], 0),
            (&[(100, "", 0, None), (200, "True", 8, None)], 200),
            (&[(100, "True", 7, None), (200, "", 0, None)], 200),
        ];
        for (number, (observations, want)) in table.iter().enumerate() {
            assert_eq!(probe_time(observations), *want, "{number}");
        }
    }

    #[test]
    fn grace_period_is_longer_before_the_first_status() {
        let options = Options::default();
        for (ready, grace) in [("True", 50), ("False", 50), ("Unknown", 50), ("", 60)] {
            let health = NodeHealth::observe(None, &node(ready, 0), None, now(0));
            assert!(!health.is_grace_period_over(&options, now(grace)), "{ready:?}");
            assert!(health.is_grace_period_over(&options, now(grace + 1)), "{ready:?}");
        }
    }

    #[test]
    fn node_created_in_the_future_is_new() {
        let mut young = node("", 0);
        young.meta.creation = Some(T0 + SignedDuration::from_hours(1));
        assert_eq!(NodeHealth::observe(None, &young, None, now(5)).probe_time, now(5).steady);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn grace_period_is_never_over_with_timely_renewals(gaps in proptest::collection::vec(1i64..=50, 1..40)) {
            let (options, mut time, mut health) = (Options::default(), 0, None);
            for gap in gaps {
                time += gap;
                // Check also just before the lease is renewed.
                if let Some(before) = health {
                    let seen = NodeHealth::observe(Some(before), &node("True", 0), None, now(time));
                    prop_assert!(!seen.is_grace_period_over(&options, now(time)));
                }
                health = Some(NodeHealth::observe(health, &node("True", 0), Some(&lease(time)), now(time)));
            }
        }
    }
}
