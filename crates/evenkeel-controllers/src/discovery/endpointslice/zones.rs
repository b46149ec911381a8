//! CPU of the zones, updated by node events. Upstream: `SetNodes` in `topologycache`.

use evenkeel_api::{Text, condition, quantity::Quantity, views::Node};
use evenkeel_runtime::cache::CacheEvent;
use std::{collections::BTreeMap, sync::Arc};

/// Labels of control plane nodes, whose CPU does not count. Upstream: `hasExcludedLabels`.
const EXCLUDED_LABELS: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Fraction of the cluster's CPU in each zone. The ratios are only known if there are several zones, and every node
/// has a zone and CPU.
pub(super) type Ratios = BTreeMap<Text, f64>;

/// Sums of the nodes' CPU by zone.
#[derive(Debug, Default)]
pub(super) struct Zones {
    by_name: BTreeMap<Text, Zone>,
    /// Number of nodes without a zone or CPU. Unless it is 0, the ratios are unknown.
    unknown_nodes: usize,
    /// The computed ratios, which may be unknown. `None` if they must be computed again.
    cached_ratios: Option<Option<Arc<Ratios>>>,
}

/// Sums of the nodes in one zone.
#[derive(Debug, Default)]
struct Zone {
    /// Allocatable CPU in millicores.
    cpu: i64,
    nodes: usize,
}

/// Contribution of one node to the sums.
#[derive(Debug, PartialEq, Eq)]
enum NodeCpu<'a> {
    /// The node does not count: it belongs to the control plane or is not ready.
    Nothing,
    /// The node has no zone or no CPU.
    Unknown,
    /// The name of the node's zone, and the node's allocatable CPU in millicores.
    Cpu(&'a str, i64),
}

/// Returns the CPU that a node adds to its zone. Excluded and unready nodes add nothing.
fn node_cpu(node: &Node) -> NodeCpu<'_> {
    let labels = &node.meta.labels;
    if EXCLUDED_LABELS.iter().any(|label| labels.contains(label)) || !is_ready(node) {
        return NodeCpu::Nothing;
    }
    let cpu = node.status.allocatable.get("cpu").copied().map_or(0, Quantity::milli_value);
    match labels.get(super::ZONE_LABEL) {
        Some(zone) if !zone.is_empty() && cpu > 0 => NodeCpu::Cpu(zone, cpu),
        _ => NodeCpu::Unknown,
    }
}

/// Returns whether the node's condition `Ready` is `True`.
fn is_ready(node: &Node) -> bool {
    condition::is_true(&node.status.conditions, "Ready")
}

impl Zones {
    /// Updates the sums after a node's event. Returns whether the ratios may have changed.
    pub(super) fn record(&mut self, event: &CacheEvent<Node>) -> bool {
        let (old, new) = match event {
            CacheEvent::Added { object, .. } => (NodeCpu::Nothing, node_cpu(object)),
            CacheEvent::Updated { old, new } => (node_cpu(old), node_cpu(new)),
            CacheEvent::Deleted(node) => (node_cpu(node), NodeCpu::Nothing),
        };
        if old == new {
            return false;
        }
        self.add(&new);
        self.subtract(&old);
        self.cached_ratios = None;
        true
    }

    /// Adds a node to the sums.
    fn add(&mut self, node_cpu: &NodeCpu<'_>) {
        match *node_cpu {
            NodeCpu::Nothing => {}
            NodeCpu::Unknown => self.unknown_nodes += 1,
            NodeCpu::Cpu(name, cpu) => {
                let zone = self.by_name.entry(name.into()).or_default();
                zone.cpu += cpu;
                zone.nodes += 1;
            }
        }
    }

    /// Subtracts a node from the sums.
    fn subtract(&mut self, node_cpu: &NodeCpu<'_>) {
        match *node_cpu {
            NodeCpu::Nothing => {}
            NodeCpu::Unknown => self.unknown_nodes -= 1,
            NodeCpu::Cpu(name, cpu) => {
                if let Some(zone) = self.by_name.get_mut(name) {
                    zone.cpu -= cpu;
                    zone.nodes -= 1;
                    if zone.nodes == 0 {
                        self.by_name.remove(name);
                    }
                }
            }
        }
    }

    /// Returns the ratios, or `None` if a node has no zone or CPU, or if there is only one zone.
    pub(super) fn ratios(&mut self) -> Option<Arc<Ratios>> {
        if let Some(cached) = &self.cached_ratios {
            return cached.clone();
        }
        let are_known = self.unknown_nodes == 0 && self.by_name.len() > 1;
        let ratios = are_known.then(|| Arc::new(self.compute_ratios()));
        self.cached_ratios = Some(ratios.clone());
        ratios
    }

    /// Returns the share of each zone in the total CPU.
    fn compute_ratios(&self) -> Ratios {
        let total: i64 = self.by_name.values().map(|zone| zone.cpu).sum();
        let ratio = |zone: &Zone| zone.cpu as f64 / total as f64;
        self.by_name.iter().map(|(name, zone)| (name.clone(), ratio(zone))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use serde_json::json;

    fn node(zone: &str, cpu: &str, ready: &str) -> Arc<Node> {
        Arc::new(object(&json!({
            "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": ready}]},
        })))
    }

    fn added(object: Arc<Node>) -> CacheEvent<Node> {
        CacheEvent::Added { object, initial: true }
    }

    #[test]
    fn ratios_follow_node_events() {
        let mut zones = Zones::default();
        let shares = |zones: &mut Zones| {
            zones.ratios().map(|all| {
                all.iter().map(|(zone, ratio)| format!("{zone} {ratio}")).collect::<Vec<_>>()
            })
        };
        assert_eq!(shares(&mut zones), None);
        zones.record(&added(node("a", "3", "True")));
        assert_eq!(shares(&mut zones), None, "one zone");
        zones.record(&added(node("b", "500m", "True")));
        zones.record(&added(node("b", "500m", "True")));
        let both = Some(vec!["a 0.75".to_owned(), "b 0.25".to_owned()]);
        assert_eq!(shares(&mut zones), both);
        assert!(!zones.record(&added(node("c", "1", "False"))), "not ready");
        zones.record(&added(node("", "1", "True")));
        assert_eq!(shares(&mut zones), None, "a node without a zone");
        let removed =
            CacheEvent::Updated { old: node("", "1", "True"), new: node("", "1", "Unknown") };
        assert!(zones.record(&removed));
        assert_eq!(shares(&mut zones), both);
        zones.record(&CacheEvent::Deleted(node("a", "3", "True")));
        assert_eq!(shares(&mut zones), None, "one zone again");
    }
}
