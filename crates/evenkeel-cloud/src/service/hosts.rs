//! Nodes that a load balancer directs traffic to.

use evenkeel_api::{Text, views::Node};
use std::{collections::BTreeMap, sync::Arc};

/// Label that excludes a node from load balancers.
const EXCLUSION_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Taint of a node that the cluster autoscaler is about to delete.
const TO_BE_DELETED_TAINT: &str = "ToBeDeletedByClusterAutoscaler";
/// Maximum number of node names in an event.
const MAX_NAMES: usize = 20;

/// Names and provider IDs of nodes. Other changes of a node do not affect a load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hosts(BTreeMap<Text, Text>);

impl Hosts {
    /// Returns the hosts of these nodes.
    pub(super) fn of(nodes: &[Arc<Node>]) -> Self {
        let host = |node: &Arc<Node>| (node.meta.name.clone(), node.spec.provider_id.clone());
        Self(nodes.iter().map(host).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first names for the messages of events.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<&str> = self.0.keys().take(MAX_NAMES).map(|name| &**name).collect();
        let omitted = format!("<{} more>", self.len().saturating_sub(MAX_NAMES));
        if self.len() > MAX_NAMES {
            names.push(&omitted);
        }
        format!("[{}]", names.join(" "))
    }
}

/// Returns the nodes for load balancers, sorted by name. A node that is not ready stays, because load balancers
/// check the nodes' health themselves (KEP-3458).
pub(super) fn eligible(mut nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    nodes.retain(|node| {
        let to_be_deleted = node.spec.taints.iter().any(|taint| &*taint.key == TO_BE_DELETED_TAINT);
        !node.meta.deleting() && !to_be_deleted && is_included(node)
    });
    nodes.sort_by(|left, right| left.meta.name.cmp(&right.meta.name));
    nodes
}

/// Returns whether an update of a node must update load balancers immediately. The autoscaler's taint does not count,
/// so that connections through the node can end by themselves. The next sync takes it into account.
pub(super) fn should_sync_updated_node(old: &Node, new: &Node) -> bool {
    is_included(old) != is_included(new) || old.spec.provider_id != new.spec.provider_id
}

/// Returns whether the label does not exclude the node. A value that is not a boolean excludes it.
fn is_included(node: &Node) -> bool {
    match node.meta.labels.get(EXCLUSION_LABEL) {
        None => true,
        // The values that Go's `strconv.ParseBool` accepts as false.
        Some(value) => matches!(value, "0" | "f" | "F" | "FALSE" | "false" | "False"),
    }
}
