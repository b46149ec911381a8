//! Network partition of simulated nodes: while a node is partitioned by its annotation, its kubelet writes nothing.

use evenkeel_api::views::Node;
use evenkeel_runtime::cache::{Cache, CacheEvent};

use crate::annotations::SILENT;

/// Reports whether the node's annotation partitions it from the API server.
pub(crate) fn is_partitioned(node: &Node) -> bool {
    node.meta.annotations.get(SILENT) == Some("true")
}

/// Reports whether the cache has a partitioned node with this name.
pub(crate) fn is_node_partitioned(nodes: &Cache<Node>, name: &str) -> bool {
    nodes.get("", name).is_some_and(|node| is_partitioned(&node))
}

/// Returns the node if its partition ends with this event.
pub(crate) fn reconnected_node(event: &CacheEvent<Node>) -> Option<&Node> {
    match event {
        CacheEvent::Updated { old, new } if is_partitioned(old) && !is_partitioned(new) => {
            Some(new)
        }
        _ => None,
    }
}
