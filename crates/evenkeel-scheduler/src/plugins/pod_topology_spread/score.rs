//! Soft constraints: the fewer matching pods a node's domains have, the better.

use std::sync::Arc;

use super::{
    PodTopologySpread, WhenUnsatisfiable,
    constraint::{Eligible, Wanted},
};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, PreScoreResult, Score},
    nodes::{LabelColumn, NodeRef, NodeTable, Scope, Slot},
    pod::PodInfo,
};

/// The label by which pods are counted on each node rather than in each domain.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Stands for a domain that none of the feasible nodes is in.
const NOT_ASKED: i64 = -1;

/// The pod's soft constraints.
struct Soft {
    constraints: Vec<Constraint>,
    /// Nodes must have all the labels to be scored.
    needs_all: bool,
}

struct Constraint {
    column: Arc<LabelColumn>,
    counts: Counts,
    /// How much a pod weighs: more where there are more domains.
    weight: f64,
    /// What is added, so that small differences count less where larger ones are allowed.
    slack: f64,
}

/// How many matching pods there are.
enum Counts {
    /// On each node, by slot.
    OfNodes(Vec<u32>),
    /// In each domain; the one after the last is that of nodes without the label.
    OfDomains(Vec<i64>),
}

impl PreScore for PodTopologySpread {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
        feasible: &[NodeRef<'_>],
    ) -> PreScoreResult {
        let wanted = self.wanted(&pod.pod, WhenUnsatisfiable::ScheduleAnyway);
        if wanted.is_empty() {
            return PreScoreResult::Skip;
        }
        // With the system's defaults a node without a zone still takes part in the spreading over hosts.
        let needs_all = !pod.pod.spec.topology_spread_constraints.is_empty()
            || self.args.defaulting_type != super::DefaultingType::System;
        let keys: Vec<_> = wanted.iter().map(|wanted| nodes.label(&wanted.topology_key)).collect();
        let asked: Vec<Slot> = feasible
            .iter()
            .map(|node| node.slot())
            .filter(|slot| !needs_all || keys.iter().all(|key| key.of(*slot).is_some()))
            .collect();
        let all = if needs_all { &*keys } else { &[] };
        let constraints = wanted
            .iter()
            .zip(&keys)
            .map(|(wanted, key)| Constraint::of(wanted, key, pod, nodes, &asked, all))
            .collect();
        state.put(Soft { constraints, needs_all });
        PreScoreResult::All
    }
}

impl Constraint {
    fn of(
        wanted: &Wanted,
        key: &Arc<LabelColumn>,
        pod: &PodInfo,
        nodes: &NodeTable,
        asked: &[Slot],
        all: &[Arc<LabelColumn>],
    ) -> Self {
        let (counts, n_domains) = if *wanted.topology_key == *HOSTNAME {
            (of_nodes(wanted, pod, nodes), asked.len())
        } else {
            of_domains(wanted, key, pod, nodes, asked, all)
        };
        Self {
            column: Arc::clone(key),
            counts,
            weight: ((n_domains + 2) as f64).ln(),
            slack: f64::from(wanted.max_skew - 1),
        }
    }

    /// What the constraint says of a node, if it has the label.
    fn of_node(&self, slot: Slot) -> Option<f64> {
        let domain = self.column.of(slot)?;
        let count = match &self.counts {
            Counts::OfNodes(counts) => i64::from(counts[slot as usize]),
            Counts::OfDomains(counts) => counts[domain as usize].max(0),
        };
        Some(count as f64 * self.weight + self.slack)
    }
}

/// Each node where matching pods are, with how many.
fn each_matching(
    wanted: &Wanted,
    pod: &PodInfo,
    nodes: &NodeTable,
    mut each: impl FnMut(Slot, u32),
) {
    if wanted.selector.is_everything() {
        return;
    }
    let mut census = nodes.census();
    let scope = census.scope(Scope::within(&pod.pod.meta.namespace, wanted.selector.clone()));
    for class in census.members(scope).filter(|class| !class.is_deleting()) {
        class.nodes().iter().for_each(|(slot, count)| each(slot, count));
    }
}

fn of_nodes(wanted: &Wanted, pod: &PodInfo, nodes: &NodeTable) -> Counts {
    let mut counts = vec![0; nodes.n_slots()];
    each_matching(wanted, pod, nodes, |slot, count| counts[slot as usize] += count);
    Counts::OfNodes(counts)
}

/// Counts in the domains of the nodes that are asked about, and how many those are.
fn of_domains(
    wanted: &Wanted,
    key: &LabelColumn,
    pod: &PodInfo,
    nodes: &NodeTable,
    asked: &[Slot],
    all: &[Arc<LabelColumn>],
) -> (Counts, usize) {
    // Nodes without the label are one domain with those that have it empty.
    let unlabelled = key.id("").map_or(key.n_values(), |id| id as usize);
    let domain = |slot| key.of(slot).map_or(unlabelled, |id| id as usize);
    let mut counts = vec![NOT_ASKED; key.n_values() + 1];
    let mut n_domains = 0;
    for slot in asked {
        let count = &mut counts[domain(*slot)];
        n_domains += usize::from(*count == NOT_ASKED);
        *count = 0;
    }
    let eligible = Eligible::of(wanted, &pod.pod, nodes, all);
    each_matching(wanted, pod, nodes, |slot, count| {
        let sum = &mut counts[domain(slot)];
        if *sum != NOT_ASKED && eligible.has(slot) && nodes.has_node(slot) {
            *sum += i64::from(count);
        }
    });
    (Counts::OfDomains(counts), n_domains)
}

impl Soft {
    /// Whether a node lacks a label that it needs to be scored.
    fn ignores(&self, slot: Slot) -> bool {
        self.needs_all && self.constraints.iter().any(|one| one.column.of(slot).is_none())
    }

    fn of_node(&self, slot: Slot) -> i64 {
        if self.ignores(slot) {
            return 0;
        }
        self.constraints.iter().filter_map(|one| one.of_node(slot)).sum::<f64>().round() as i64
    }
}

impl Score for PodTopologySpread {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        state.get::<Soft>().map_or(0, |soft| soft.of_node(node.slot()))
    }

    fn score_all(
        &self,
        state: &CycleState,
        _: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        let Some(soft) = state.get::<Soft>() else { return scores.resize(nodes.len(), 0) };
        scores.extend(nodes.iter().map(|node| soft.of_node(node.slot())));
    }

    fn normalize_score(&self, state: &CycleState, nodes: &[NodeRef<'_>], scores: &mut [i64]) {
        let Some(soft) = state.get::<Soft>() else { return };
        let counted = nodes.iter().map(|node| !soft.ignores(node.slot()));
        let counted: Vec<bool> = counted.collect();
        let of_counted =
            || scores.iter().zip(&counted).filter(|(_, is)| **is).map(|(score, _)| *score);
        let least = of_counted().min().unwrap_or(0);
        let most = of_counted().max().unwrap_or(0);
        for (score, counted) in scores.iter_mut().zip(&counted) {
            *score = match (counted, most) {
                (false, _) => 0,
                (true, 0) => MAX_NODE_SCORE,
                (true, _) => MAX_NODE_SCORE * (most + least - *score) / most,
            };
        }
    }
}
