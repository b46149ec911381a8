//! State that the controller keeps of all nodes and zones. Upstream: `nodeHealthMap`, `zoneStates`.

use super::{
    Options,
    plan::{
        health::{Moment, NodeHealth, Now, Ready},
        rejected_patch::RejectedPatch,
        zones::Zones,
    },
};
use evenkeel_api::{
    Text,
    views::{Lease, Node},
};
use evenkeel_runtime::introspect::Description;
use std::collections::BTreeMap;

/// The monitor's state.
#[derive(Default)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<Text, NodeRecord>,
    pub(super) zones: Zones,
    /// The resource version that the cache of leases must reach before the health of any node is updated.
    pending_lease_version: Option<u64>,
    /// Time of the next check of all nodes' health.
    pub(super) next_health_pass: Option<Moment>,
}

/// State of one node. Upstream: `nodeHealthData`, `knownNodeSet`.
pub(super) struct NodeRecord {
    pub(super) uid: Text,
    pub(super) zone: Text,
    pub(super) health: Option<NodeHealth>,
    /// Whether pods of the node must still be marked as not ready. Upstream: `nodesToRetry`.
    pub(super) pods_to_mark: bool,
    /// The last patch of taints, if the API server rejected it as invalid.
    pub(super) rejected_patch: Option<RejectedPatch>,
}

impl NodeRecord {
    /// Records that the condition `Ready` was set to `Unknown`.
    pub(super) fn set_unreachable(&mut self) {
        if let Some(health) = &mut self.health {
            health.ready = Some(Ready::Unknown);
        }
    }
}

impl State {
    /// Changes the state of a node, if the node is known.
    pub(super) fn update_record(&mut self, name: &str, update: impl FnOnce(&mut NodeRecord)) {
        if let Some(record) = self.nodes.get_mut(name) {
            update(record);
        }
    }

    /// Records that the lease cache must reach this resource version.
    pub(super) fn await_lease_version(&mut self, version: u64) {
        self.pending_lease_version = self.pending_lease_version.max(Some(version));
    }

    /// Clears the pending version if the lease cache, now at the version `cached`, has reached it. Returns the version if it is
    /// still pending.
    pub(super) fn update_pending_lease_version(&mut self, cached: u64) -> Option<u64> {
        self.pending_lease_version = self.pending_lease_version.filter(|version| cached < *version);
        self.pending_lease_version
    }

    /// Returns whether the API server rejected a patch of the node's taints, and the backoff is not over.
    pub(super) fn has_rejected_patch(&self, node: &Node, now: Moment) -> bool {
        let record = self.nodes.get(&node.meta.name);
        let rejected_patch = record.and_then(|record| record.rejected_patch);
        rejected_patch.is_some_and(|rejected| rejected.applies(node.meta.version(), now))
    }

    /// Records that the API server rejected a patch of the node's taints as invalid.
    pub(super) fn record_rejected_patch(&mut self, node: &Node, now: Moment) {
        let version = node.meta.version();
        self.update_record(&node.meta.name, |record| {
            record.rejected_patch = Some(RejectedPatch::after(record.rejected_patch, version, now));
        });
    }

    /// Returns the status of the node's condition `Ready`, as last observed.
    pub(super) fn ready_status(&self, name: &str) -> Option<Ready> {
        self.nodes.get(name)?.health?.ready
    }

    /// Updates the recorded health of a node from its status, its lease, and whether its kubelet is known to be alive, and
    /// returns it.
    pub(super) fn observe_health(
        &mut self,
        node: &Node,
        lease: Option<&Lease>,
        is_alive: bool,
        now: Now,
    ) -> NodeHealth {
        let record = self.nodes.get_mut(&node.meta.name);
        let before = record.as_ref().and_then(|record| record.health);
        let mut health = NodeHealth::observe(before, node, lease, now);
        if is_alive {
            health.probe_time = now.steady;
        }
        if let Some(record) = record {
            record.health = Some(health);
        }
        health
    }

    /// Describes a node's state for `evenkeel explain`.
    pub(super) fn describe(
        &self,
        name: &str,
        options: &Options,
        now: Now,
        description: &mut Description,
    ) {
        let Some(record) = self.nodes.get(name) else { return };
        if let Some(health) = record.health {
            description.fact(
                "last sign of life",
                format!("{} s ago", (now.steady - health.probe_time).as_secs()),
            );
            if health.is_grace_period_over(options, now) {
                description.waits("its kubelet to report or to renew the node's lease");
            }
        }
        description.fact("state of its zone", format!("{:?}", self.zones.state(&record.zone)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, meta};
    use evenkeel_api::{time::SignedDuration, views::NodeCondition};

    #[test]
    fn grace_begins_when_the_kubelet_is_no_longer_known_to_be_alive() {
        let mut node = Node { meta: meta("n"), ..Node::default() };
        let ready =
            NodeCondition { type_: "Ready".into(), status: "True".into(), ..Default::default() };
        node.status.conditions = Box::new([ready]);
        let mut state = State::default();
        let record = NodeRecord {
            uid: "u".into(),
            zone: "".into(),
            health: None,
            pods_to_mark: false,
            rejected_patch: None,
        };
        state.nodes.insert("n".into(), record);
        let mut is_overdue = |second: i64, is_alive: bool| {
            let now = Now { steady: SignedDuration::from_secs(second), wall: at(second) };
            let health = state.observe_health(&node, None, is_alive, now);
            health.is_grace_period_over(&Options::default(), now)
        };
        // Without a Lease, for hours.
        assert!(!is_overdue(0, true) && !is_overdue(7200, true));
        assert!(!is_overdue(7250, false));
        assert!(is_overdue(7251, false));
        assert!(!is_overdue(7300, true), "it is back");
    }

    #[test]
    fn lease_cache_must_reach_the_newest_live_lease() {
        let mut state = State::default();
        assert_eq!(state.update_pending_lease_version(0), None);
        state.await_lease_version(9);
        state.await_lease_version(7);
        assert_eq!(state.update_pending_lease_version(8), Some(9));
        assert_eq!(state.update_pending_lease_version(9), None);
        assert_eq!(state.update_pending_lease_version(0), None, "it was reached once");
    }
}
