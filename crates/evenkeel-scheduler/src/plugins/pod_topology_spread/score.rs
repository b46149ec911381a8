//! Soft constraints (`ScheduleAnyway`): nodes in domains with fewer matching pods score higher.
//!
//! Upstream: `plugins/podtopologyspread/scoring.go`.

use std::sync::Arc;

use super::{
    PodTopologySpread, WhenUnsatisfiable,
    constraint::{Eligible, SpreadConstraint},
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
    constraints: Vec<Constraint>,
    /// Whether a node must have all topology keys. Nodes that lack one score 0.
    needs_all: bool,
}

struct Constraint {
    column: Arc<LabelColumn>,
    counts: Counts,
    /// Factor of the number of pods. It grows with the number of domains.
    weight: f64,
    /// `maxSkew` - 1. It reduces the effect of small differences if the constraint allows larger ones.
    slack: f64,
}

/// Numbers of matching pods.
enum Counts {
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
        let spread = self.constraints(&pod.pod, WhenUnsatisfiable::ScheduleAnyway);
        if spread.is_empty() {
            return PreScoreResult::Skip;
        }
        // With the system default constraints, nodes without a zone are still spread by host.
        let needs_all = !pod.pod.spec.topology_spread_constraints.is_empty()
            || self.args.defaulting_type != super::DefaultingType::System;
        let keys: Vec<_> = spread.iter().map(|spread| nodes.label(&spread.topology_key)).collect();
        let feasible_slots: Vec<Slot> = feasible
            .iter()
            .map(|node| node.slot())
            .filter(|slot| !needs_all || keys.iter().all(|key| key.value_of(*slot).is_some()))
            .collect();
        let all = if needs_all { &*keys } else { &[] };
        let constraints = spread
            .iter()
            .zip(&keys)
            .map(|(spread, key)| Constraint::of(spread, key, pod, nodes, &feasible_slots, all))
            .collect();
        state.put(SoftConstraints { constraints, needs_all });
        PreScoreResult::All
    }
}

impl Constraint {
    fn of(
        spread: &SpreadConstraint,
        key: &Arc<LabelColumn>,
        pod: &PodInfo,
        nodes: &NodeTable,
        feasible_slots: &[Slot],
        all: &[Arc<LabelColumn>],
    ) -> Self {
        let (counts, domains) = if *spread.topology_key == *HOSTNAME {
            (count_by_node(spread, pod, nodes), feasible_slots.len())
        } else {
            count_by_domain(spread, key, pod, nodes, feasible_slots, all)
        };
        Self {
            column: Arc::clone(key),
            counts,
            weight: ((domains + 2) as f64).ln(),
            slack: f64::from(spread.max_skew - 1),
        }
    }

    /// Returns the constraint's score of a node, or `None` if the node lacks the topology key.
    fn score(&self, slot: Slot) -> Option<f64> {
        let domain = self.column.value_of(slot)?;
        let count = match &self.counts {
            Counts::ByNode(counts) => i64::from(counts[slot as usize]),
            Counts::ByDomain(counts) => counts[domain as usize].max(0),
        };
        Some(count as f64 * self.weight + self.slack)
    }
}

/// Calls `each` with the slot of each node that has matching pods, and with their number.
fn each_matching(
    spread: &SpreadConstraint,
    pod: &PodInfo,
    nodes: &NodeTable,
    mut each: impl FnMut(Slot, u32),
) {
    if spread.selector.is_everything() {
        return;
    }
    let mut pod_index = nodes.pod_index();
    let scope = pod_index.scope(Scope::within(&pod.pod.meta.namespace, spread.selector.clone()));
    for class in pod_index.members(scope).filter(|class| !class.is_deleting()) {
        class.nodes().iter().for_each(|(slot, count)| each(slot, count));
    }
}

fn count_by_node(spread: &SpreadConstraint, pod: &PodInfo, nodes: &NodeTable) -> Counts {
    let mut counts = vec![0; nodes.n_slots()];
    each_matching(spread, pod, nodes, |slot, count| counts[slot as usize] += count);
    Counts::ByNode(counts)
}

/// Counts matching pods in the domains of the feasible nodes. Returns the counts and the number of these domains.
fn count_by_domain(
    spread: &SpreadConstraint,
    key: &LabelColumn,
    pod: &PodInfo,
    nodes: &NodeTable,
    feasible_slots: &[Slot],
    all: &[Arc<LabelColumn>],
) -> (Counts, usize) {
    // As upstream, nodes without the key share a domain with nodes whose value is empty.
    let unlabelled = key.id("").map_or(key.n_values(), |id| id as usize);
    let domain = |slot| key.value_of(slot).map_or(unlabelled, |id| id as usize);
    let mut counts = vec![NO_FEASIBLE_NODE; key.n_values() + 1];
    let mut domains = 0;
    for slot in feasible_slots {
        let count = &mut counts[domain(*slot)];
        domains += usize::from(*count == NO_FEASIBLE_NODE);
        *count = 0;
    }
    let eligible = Eligible::find(spread, &pod.pod, nodes, all);
    each_matching(spread, pod, nodes, |slot, count| {
        let sum = &mut counts[domain(slot)];
        if *sum != NO_FEASIBLE_NODE && eligible.has(slot) && nodes.has_node(slot) {
            *sum += i64::from(count);
        }
    });
    (Counts::ByDomain(counts), domains)
}

impl SoftConstraints {
    /// Reports whether the node lacks a topology key that it must have.
    fn ignores(&self, slot: Slot) -> bool {
        self.needs_all
            && self.constraints.iter().any(|constraint| constraint.column.value_of(slot).is_none())
    }

    fn score(&self, slot: Slot) -> i64 {
        if self.ignores(slot) {
            return 0;
        }
        self.constraints.iter().filter_map(|constraint| constraint.score(slot)).sum::<f64>().round()
            as i64
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
        let counted = nodes.iter().map(|node| !soft.ignores(node.slot()));
        let counted: Vec<bool> = counted.collect();
        let counted_scores = || {
            scores
                .iter()
                .zip(&counted)
                .filter(|(_, is_counted)| **is_counted)
                .map(|(score, _)| *score)
        };
        let min = counted_scores().min().unwrap_or(0);
        let max = counted_scores().max().unwrap_or(0);
        for (score, counted) in scores.iter_mut().zip(&counted) {
            *score = match (counted, max) {
                (false, _) => 0,
                (true, 0) => MAX_NODE_SCORE,
                (true, _) => MAX_NODE_SCORE * (max + min - *score) / max,
            };
        }
    }
}
