//! Network partition of simulated nodes: a node writes nothing while its annotation says so.

use evenkeel_api::views::Node;
use evenkeel_runtime::cache::{Cache, CacheEvent};

/// Annotation of a Node; `"true"` partitions it.
const SILENT: &str = "sim.evenkeel.dev/silent";

/// Whether the node's annotation partitions it from the API server.
pub(crate) fn is_partitioned(node: &Node) -> bool {
    node.meta.annotations.get(SILENT) == Some("true")
}

/// Whether the cache has a node of this name that is partitioned.
pub(crate) fn is_node_partitioned(nodes: &Cache<Node>, name: &str) -> bool {
    nodes.get("", name).is_some_and(|node| is_partitioned(&node))
}

/// Returns the node whose partition ends with this event, or `None`.
pub(crate) fn reconnected_node(event: &CacheEvent<Node>) -> Option<&Node> {
    match event {
        CacheEvent::Updated { old, new } if is_partitioned(old) && !is_partitioned(new) => {
            Some(new)
        }
        _ => None,
    }
}
