//! In which order nodes are looked at: zone by zone in turn, as upstream's node tree.

use evenkeel_api::views::Node;
use std::collections::BTreeMap;

use super::Slot;

/// Slots with a node, the zones taking turns.
pub(super) fn spread<'a>(nodes: impl Iterator<Item = (Slot, &'a Node)>) -> Vec<Slot> {
    let mut zones: BTreeMap<(&str, &str), Vec<(&str, Slot)>> = BTreeMap::new();
    for (slot, node) in nodes {
        let label = |key: &str, old: &str| {
            node.meta.labels.get(key).or_else(|| node.meta.labels.get(old)).unwrap_or_default()
        };
        let region =
            label("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region");
        let zone = label("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
        zones.entry((region, zone)).or_default().push((&node.meta.name, slot));
    }
    let mut zones: Vec<Vec<(&str, Slot)>> = zones.into_values().collect();
    let longest = zones.iter().map(Vec::len).max().unwrap_or(0);
    for zone in &mut zones {
        zone.sort_unstable();
    }
    (0..longest)
        .flat_map(|n| zones.iter().filter_map(move |zone| zone.get(n)).map(|(_, slot)| *slot))
        .collect()
}
