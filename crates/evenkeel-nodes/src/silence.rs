//! Nodes that are cut off: nothing is heard of them while their annotation says so.

use evenkeel_api::views::Node;
use evenkeel_runtime::cache::{Cache, CacheEvent};

/// Beside those of pods, under the same prefix.
const SILENT: &str = "sim.evenkeel.dev/silent";

/// Whether nothing is to be heard of the node.
pub(crate) fn is_silent(node: &Node) -> bool {
    node.meta.annotations.get(SILENT) == Some("true")
}

/// The same of a node by its name, as far as it is known.
pub(crate) fn silences(nodes: &Cache<Node>, name: &str) -> bool {
    nodes.get("", name).is_some_and(|node| is_silent(&node))
}

/// The node that an event brings back, if it does.
pub(crate) fn brings_back(event: &CacheEvent<Node>) -> Option<&Node> {
    match event {
        CacheEvent::Updated { old, new } if is_silent(old) && !is_silent(new) => Some(new),
        _ => None,
    }
}
