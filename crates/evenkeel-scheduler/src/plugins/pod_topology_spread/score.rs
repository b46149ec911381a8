//! Soft constraints (`ScheduleAnyway`): nodes in domains with fewer matching pods score higher.
//!
//! Upstream: `plugins/podtopologyspread/scoring.go`.

use std::sync::Arc;

use super::{
    PodTopologySpread, WhenUnsatisfiable,
    constraint::{EligibleNodes, SpreadConstraint},
};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, PreScoreResult, Score},
    nodes::{LabelColumn, NodeRef, NodeTable, Scope, Slot},
    pod::PodInfo,
};

/// Topology key whose domains are single nodes, so that pods are counted by node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Count of a domain that has no feasible node.
const NO_FEASIBLE_NODE: i64 = -1;

/// The pod's soft constraints.
struct SoftConstraints {
    constraints: Vec<SoftConstraint>,
    /// Whether a node must have all topology keys. If so, nodes that lack one score 0.
    require_all_topologies: bool,
}

/// A soft constraint with its counts.
struct SoftConstraint {
    /// Values of the topology key by node.
    column: Arc<LabelColumn>,
    counts: PodCounts,
    /// Factor of the number of pods. It grows with the number of domains.
    weight: f64,
    /// `maxSkew` - 1. It reduces the effect of small differences if the constraint allows larger ones.
    slack: f64,
}

/// Numbers of matching pods.
enum PodCounts {
    /// Counts by node, indexed by slot.
    ByNode(Vec<u32>),
    /// Counts by domain. The last entry counts nodes without the key.
    ByDomain(Vec<i64>),
}

impl PreScore for PodTopologySpread {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
        feasible: &[NodeRef<'_>],
    ) -> PreScoreResult {
        let specs = self.constraints(&pod.pod, WhenUnsatisfiable::ScheduleAnyway);
        if specs.is_empty() {
            return PreScoreResult::Skip;
        }
        // With the system default constraints, nodes without a zone are still spread by host.
        let require_all_topologies = !pod.pod.spec.topology_spread_constraints.is_empty()
            || self.args.defaulting_type != super::DefaultingType::System;
        let keys: Vec<_> = specs.iter().map(|spec| nodes.label(&spec.topology_key)).collect();
        let feasible_slots: Vec<Slot> = feasible
            .iter()
            .map(|node| node.slot())
            .filter(|slot| {
                !require_all_topologies || keys.iter().all(|key| key.value_id_of(*slot).is_some())
            })
            .collect();
        let required_keys = if require_all_topologies { &*keys } else { &[] };
        let constraints = specs
            .iter()
            .zip(&keys)
            .map(|(spec, key)| {
                SoftConstraint::new(spec, key, pod, nodes, &feasible_slots, required_keys)
            })
            .collect();
        state.put(SoftConstraints { constraints, require_all_topologies });
        PreScoreResult::All
    }
}

impl SoftConstraint {
    fn new(
        spec: &SpreadConstraint,
        key: &Arc<LabelColumn>,
        pod: &PodInfo,
        nodes: &NodeTable,
        feasible_slots: &[Slot],
        required_keys: &[Arc<LabelColumn>],
    ) -> Self {
        let (counts, n_domains) = if *spec.topology_key == *HOSTNAME {
            (count_by_node(spec, pod, nodes), feasible_slots.len())
        } else {
            count_by_domain(spec, key, pod, nodes, feasible_slots, required_keys)
        };
        Self {
            column: Arc::clone(key),
            counts,
            // Upstream: `topologyNormalizingWeight`.
            weight: ((n_domains + 2) as f64).ln(),
            slack: f64::from(spec.max_skew - 1),
        }
    }

    /// Returns the constraint's score of a node, or `None` if the node lacks the topology key.
    fn score(&self, slot: Slot) -> Option<f64> {
        let domain = self.column.value_id_of(slot)?;
        let count = match &self.counts {
            PodCounts::ByNode(counts) => i64::from(counts[slot as usize]),
            PodCounts::ByDomain(counts) => counts[domain as usize].max(0),
        };
        Some(count as f64 * self.weight + self.slack)
    }
}

/// Calls `f` with the slot of each node that has matching pods, and with their number.
fn for_each_node_with_matching_pods(
    spec: &SpreadConstraint,
    pod: &PodInfo,
    nodes: &NodeTable,
    mut f: impl FnMut(Slot, u32),
) {
    if spec.selector.is_everything() {
        return;
    }
    let mut pod_index = nodes.pod_index();
    let scope =
        pod_index.find_or_add_scope(Scope::within(&pod.pod.meta.namespace, spec.selector.clone()));
    for class in pod_index.members(scope).filter(|class| !class.is_deleting()) {
        class.nodes().iter().for_each(|(slot, count)| f(slot, count));
    }
}

/// Counts matching pods on each node.
fn count_by_node(spec: &SpreadConstraint, pod: &PodInfo, nodes: &NodeTable) -> PodCounts {
    let mut counts = vec![0; nodes.n_slots()];
    for_each_node_with_matching_pods(spec, pod, nodes, |slot, count| {
        counts[slot as usize] += count;
    });
    PodCounts::ByNode(counts)
}

/// Counts matching pods in the domains of the feasible nodes. Returns the counts and the number of these domains.
fn count_by_domain(
    spec: &SpreadConstraint,
    key: &LabelColumn,
    pod: &PodInfo,
    nodes: &NodeTable,
    feasible_slots: &[Slot],
    required_keys: &[Arc<LabelColumn>],
) -> (PodCounts, usize) {
    // Like upstream, nodes without the key share a domain with nodes whose value is empty.
    let unlabelled_domain = key.value_id("").map_or(key.n_values(), |id| id as usize);
    let domain_of = |slot| key.value_id_of(slot).map_or(unlabelled_domain, |id| id as usize);
    let mut counts = vec![NO_FEASIBLE_NODE; key.n_values() + 1];
    let mut n_domains = 0;
    for slot in feasible_slots {
        let count = &mut counts[domain_of(*slot)];
        n_domains += usize::from(*count == NO_FEASIBLE_NODE);
        *count = 0;
    }
    let eligible_nodes = EligibleNodes::find(spec, &pod.pod, nodes, required_keys);
    for_each_node_with_matching_pods(spec, pod, nodes, |slot, count| {
        let sum = &mut counts[domain_of(slot)];
        if *sum != NO_FEASIBLE_NODE && eligible_nodes.contains(slot) && nodes.has_node(slot) {
            *sum += i64::from(count);
        }
    });
    (PodCounts::ByDomain(counts), n_domains)
}

impl SoftConstraints {
    /// Returns whether the node lacks a topology key that it must have.
    fn ignores(&self, slot: Slot) -> bool {
        self.require_all_topologies
            && self
                .constraints
                .iter()
                .any(|constraint| constraint.column.value_id_of(slot).is_none())
    }

    /// Returns the sum of the constraints' scores of a node. A lower sum is better, until the scores are normalized.
    fn score(&self, slot: Slot) -> i64 {
        if self.ignores(slot) {
            return 0;
        }
        let scores = self.constraints.iter().filter_map(|constraint| constraint.score(slot));
        scores.sum::<f64>().round() as i64
    }
}

impl Score for PodTopologySpread {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        state.get::<SoftConstraints>().map_or(0, |soft| soft.score(node.slot()))
    }

    fn score_all(
        &self,
        state: &CycleState,
        _: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        let Some(soft) = state.get::<SoftConstraints>() else {
            return scores.resize(nodes.len(), 0);
        };
        scores.extend(nodes.iter().map(|node| soft.score(node.slot())));
    }

    fn normalize_score(&self, state: &CycleState, nodes: &[NodeRef<'_>], scores: &mut [i64]) {
        let Some(soft) = state.get::<SoftConstraints>() else { return };
        let is_ignored: Vec<bool> = nodes.iter().map(|node| soft.ignores(node.slot())).collect();
        let counted_scores =
            || scores.iter().zip(&is_ignored).filter(|(_, is_ignored)| !**is_ignored);
        let min = counted_scores().map(|(score, _)| *score).min().unwrap_or(0);
        let max = counted_scores().map(|(score, _)| *score).max().unwrap_or(0);
        for (score, is_ignored) in scores.iter_mut().zip(&is_ignored) {
            *score = match (is_ignored, max) {
                (true, _) => 0,
                (false, 0) => MAX_NODE_SCORE,
                (false, _) => MAX_NODE_SCORE * (max + min - *score) / max,
            };
        }
    }
}
