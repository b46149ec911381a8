//! Which nodes a load balancer leads to.

use evenkeel_api::{Text, views::Node};
use std::{collections::BTreeMap, sync::Arc};

/// Label of a node that no load balancer is to lead to.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Taint of a node that the cluster autoscaler is about to delete.
const GOING: &str = "ToBeDeletedByClusterAutoscaler";
/// As many names stand in an event.
const NAMES: usize = 20;

/// Names of nodes, and what the cloud calls them: whatever else changes about a node is no change of a load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hosts(BTreeMap<Text, Text>);

impl Hosts {
    /// The hosts that these nodes are.
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

    /// Their names for people, not too many.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<&str> = self.0.keys().take(NAMES).map(|name| &**name).collect();
        let more = format!("<{} more>", self.len().saturating_sub(NAMES));
        if self.len() > NAMES {
            names.push(&more);
        }
        format!("[{}]", names.join(" "))
    }
}

/// The nodes that load balancers lead to, by name. A node that is not ready stays: what leads to it sees by its own health
/// checks whether it answers (KEP-3458).
pub(super) fn eligible(mut nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    nodes.retain(|node| {
        let going = node.spec.taints.iter().any(|taint| &*taint.key == GOING);
        !node.meta.deleting() && !going && included(node)
    });
    nodes.sort_by(|one, other| one.meta.name.cmp(&other.meta.name));
    nodes
}

/// Whether an update of a node is a reason to look at load balancers. A taint of the autoscaler's is none, so that
/// connections through the node may end by themselves; the next reason takes it into account.
pub(super) fn matters(old: &Node, new: &Node) -> bool {
    included(old) != included(new) || old.spec.provider_id != new.spec.provider_id
}

/// Whether the label does not exclude the node. A value that says nothing excludes.
fn included(node: &Node) -> bool {
    match node.meta.labels.get(EXCLUDED) {
        None => true,
        // As Go's `strconv.ParseBool` has it.
        Some(value) => matches!(value, "0" | "f" | "F" | "FALSE" | "false" | "False"),
    }
}
