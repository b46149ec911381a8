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
    lease_cache_behind: Option<u64>,
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
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut NodeRecord)) {
        if let Some(known) = self.nodes.get_mut(name) {
            change(known);
        }
    }

    /// Records that the lease cache must reach this resource version.
    pub(super) fn await_lease_version(&mut self, version: u64) {
        self.lease_cache_behind = self.lease_cache_behind.max(Some(version));
    }

    /// Returns the resource version for which the lease cache still waits; `None` once the cache has reached it.
    /// `seen` is the cache's version.
    pub(super) fn awaited_lease_version(&mut self, seen: u64) -> Option<u64> {
        self.lease_cache_behind = self.lease_cache_behind.filter(|version| seen < *version);
        self.lease_cache_behind
    }

    /// Whether the API server rejected a patch of the node's taints, and the backoff is not over.
    pub(super) fn has_rejected_patch(&self, node: &Node, now: Moment) -> bool {
        let known = self.nodes.get(&node.meta.name);
        let rejected_patch = known.and_then(|known| known.rejected_patch);
        let version = node.meta.version();
        rejected_patch.is_some_and(|rejected_patch| rejected_patch.applies(version, now))
    }

    /// Records that the API server rejected a patch of the node's taints as invalid.
    pub(super) fn record_rejected_patch(&mut self, node: &Node, now: Moment) {
        let version = node.meta.version();
        self.change(&node.meta.name, |known| {
            known.rejected_patch = Some(RejectedPatch::after(known.rejected_patch, version, now));
        });
    }

    /// Returns the status of the node's condition `Ready`, as last observed.
    pub(super) fn ready(&self, name: &str) -> Option<Ready> {
        self.nodes.get(name)?.health?.ready
    }

    /// Updates the health of a node from its status and its lease, and returns it.
    pub(super) fn update_health(
        &mut self,
        node: &Node,
        lease: Option<&Lease>,
        now: Now,
    ) -> NodeHealth {
        let known = self.nodes.get_mut(&node.meta.name);
        let before = known.as_ref().and_then(|known| known.health);
        let health = NodeHealth::updated(before, node, lease, now);
        if let Some(known) = known {
            known.health = Some(health);
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
        let Some(known) = self.nodes.get(name) else { return };
        if let Some(health) = known.health {
            description.fact(
                "last sign of life",
                format!("{} s ago", (now.steady - health.probe_time).as_secs()),
            );
            if health.is_grace_period_over(options, now) {
                description.waits("its kubelet to report or to renew the node's lease");
            }
        }
        description.fact("state of its zone", format!("{:?}", self.zones.state(&known.zone)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_cache_must_reach_the_newest_live_lease() {
        let mut state = State::default();
        assert_eq!(state.awaited_lease_version(0), None);
        state.await_lease_version(9);
        state.await_lease_version(7);
        assert_eq!(state.awaited_lease_version(8), Some(9));
        assert_eq!(state.awaited_lease_version(9), None);
        assert_eq!(state.awaited_lease_version(0), None, "it was reached once");
    }
}
