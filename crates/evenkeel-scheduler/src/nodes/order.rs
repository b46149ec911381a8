//! Order in which attempts evaluate nodes: round robin over zones.
//!
//! Upstream: `node_tree.go`.

use evenkeel_api::views::Node;
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use super::Slot;

/// Nodes of each zone sorted by name, and the resulting order.
#[derive(Debug, Default)]
pub(super) struct Order {
    zones: BTreeMap<Zone, Vec<(Arc<str>, Slot)>>,
    node_count: usize,
    /// Slots in order, computed on demand: at startup, many nodes arrive at the same time.
    slots: OnceLock<Vec<Slot>>,
}

/// Region and zone.
type Zone = (Box<str>, Box<str>);

impl Order {
    /// Adds a node, unless its zone has it already.
    pub(super) fn insert(&mut self, node: &Node, name: &Arc<str>, slot: Slot) {
        let zone = self.zones.entry(zone_of(node)).or_default();
        if let Err(index) = zone.binary_search_by(|(node, _)| node.cmp(name)) {
            zone.insert(index, (Arc::clone(name), slot));
            self.node_count += 1;
            self.slots.take();
        }
    }

    /// Removes the node from its zone.
    pub(super) fn remove(&mut self, node: &Node) {
        let key = zone_of(node);
        let Some(zone) = self.zones.get_mut(&key) else { return };
        let Ok(index) = zone.binary_search_by(|(name, _)| (**name).cmp(&*node.meta.name)) else {
            return;
        };
        zone.remove(index);
        if zone.is_empty() {
            self.zones.remove(&key);
        }
        self.node_count -= 1;
        self.slots.take();
    }

    /// Returns the number of nodes.
    pub(super) fn len(&self) -> usize {
        self.node_count
    }

    /// Returns the slots of all nodes, round robin over zones.
    pub(super) fn slots(&self) -> &[Slot] {
        self.slots.get_or_init(|| {
            let largest_zone = self.zones.values().map(Vec::len).max().unwrap_or(0);
            let nth_of_each_zone =
                |index| self.zones.values().filter_map(move |zone| zone.get(index));
            (0..largest_zone).flat_map(nth_of_each_zone).map(|(_, slot)| *slot).collect()
        })
    }
}

/// Returns whether two versions of a node have the same position in the order.
pub(super) fn have_same_position(old: &Node, new: &Node) -> bool {
    old.meta.labels == new.meta.labels || zone_of(old) == zone_of(new)
}

/// Returns region and zone of a node from its labels. A beta label counts if the other label is absent.
fn zone_of(node: &Node) -> Zone {
    let labels = &node.meta.labels;
    let label = |key: &str, beta_key: &str| {
        labels.get(key).or_else(|| labels.get(beta_key)).unwrap_or_default().into()
    };
    (
        label("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
        label("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    )
}
