//! CPU of the zones, updated by node events. Upstream: `SetNodes` in `topologycache`.

use evenkeel_api::{Text, condition, quantity::Quantity, views::Node};
use evenkeel_runtime::cache::CacheEvent;
use std::{collections::BTreeMap, sync::Arc};

/// Labels of control plane nodes, whose CPU does not count. Upstream: `hasExcludedLabels`.
const EXCLUDED: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Fraction of the cluster's CPU in each zone. The ratios are only known if there are several zones, and every node
/// has a zone and CPU.
pub(super) type Ratios = BTreeMap<Text, f64>;

/// Sums of the nodes' CPU by zone.
#[derive(Debug, Default)]
pub(super) struct Zones {
    /// Allocatable CPU in millicores and number of nodes of each zone.
    cpu: BTreeMap<Text, (i64, usize)>,
    /// Number of nodes without a zone or CPU. Unless it is 0, the ratios are unknown.
    unknown: usize,
    /// The computed ratios; `None` if they must be computed again.
    ratios: Option<Option<Arc<Ratios>>>,
}

/// Contribution of one node to the sums.
#[derive(Debug, PartialEq, Eq)]
enum NodeCpu<'a> {
    /// The node does not count: it belongs to the control plane or is not ready.
    Nothing,
    /// The node has no zone or no CPU.
    Unknown,
    /// The node's zone, and its allocatable CPU in millicores.
    Cpu(&'a str, i64),
}

fn node_cpu(node: &Node) -> NodeCpu<'_> {
    let labels = &node.meta.labels;
    if EXCLUDED.iter().any(|label| labels.contains(label)) || !is_ready(node) {
        return NodeCpu::Nothing;
    }
    let cpu = node.status.allocatable.get("cpu").copied().map_or(0, Quantity::milli_value);
    match labels.get(super::ZONE) {
        Some(zone) if !zone.is_empty() && cpu > 0 => NodeCpu::Cpu(zone, cpu),
        _ => NodeCpu::Unknown,
    }
}

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
        self.ratios = None;
        true
    }

    fn add(&mut self, node_cpu: &NodeCpu<'_>) {
        match *node_cpu {
            NodeCpu::Nothing => {}
            NodeCpu::Unknown => self.unknown += 1,
            NodeCpu::Cpu(zone, cpu) => {
                let (sum, nodes) = self.cpu.entry(zone.into()).or_default();
                *sum += cpu;
                *nodes += 1;
            }
        }
    }

    fn subtract(&mut self, node_cpu: &NodeCpu<'_>) {
        match *node_cpu {
            NodeCpu::Nothing => {}
            NodeCpu::Unknown => self.unknown -= 1,
            NodeCpu::Cpu(zone, cpu) => {
                if let Some((sum, nodes)) = self.cpu.get_mut(zone) {
                    *sum -= cpu;
                    *nodes -= 1;
                    if *nodes == 0 {
                        self.cpu.remove(zone);
                    }
                }
            }
        }
    }

    /// Returns the ratios, or `None` if a node has no zone or CPU, or if there is only one zone.
    pub(super) fn ratios(&mut self) -> Option<Arc<Ratios>> {
        if let Some(known) = &self.ratios {
            return known.clone();
        }
        let total: i64 = self.cpu.values().map(|(cpu, _)| cpu).sum();
        let known = self.unknown == 0 && self.cpu.len() > 1;
        let shares =
            self.cpu.iter().map(|(zone, (cpu, _))| (zone.clone(), *cpu as f64 / total as f64));
        let ratios = known.then(|| Arc::new(shares.collect()));
        self.ratios = Some(ratios.clone());
        ratios
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
