//! Preferred terms: the weights of the pod's own terms, and of existing pods' terms that match the
//! pod.
//!
//! Upstream: `plugins/interpodaffinity/scoring.go`.

use super::{InterPodAffinity, by_label};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, PreScoreResult, Score},
    nodes::{NodeRef, NodeTable, RuleKind, terms},
    plugins::per_domain::PerDomain,
    pod::PodInfo,
};

/// Sums of weights by topology key and value.
///
/// Upstream: `topologyScore`.
struct TopologyScores(Vec<PerDomain>);

impl PreScore for InterPodAffinity {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        let prefers = || terms(&pod.pod).any(|(kind, _)| matches!(kind, RuleKind::Preference(_)));
        if self.args.ignore_preferred_terms_of_existing_pods && !prefers() {
            return PreScoreResult::Skip;
        }
        let mut pod_index = nodes.pod_index();
        let class = pod_index.class(&pod.pod);
        let (mut liked, mut counted) = (Vec::new(), 0);
        for rule in pod_index.get(class).map_or(&[][..], |class| class.rules()) {
            let RuleKind::Preference(weight) = rule.kind else { continue };
            for class in pod_index.members(rule.scope).filter(|class| !class.nodes().is_empty()) {
                let liked = by_label(&mut liked, &rule.key, nodes);
                counted += liked.add(class.nodes(), weight.into());
            }
        }
        for (rule, holders) in pod_index.rules_about(class) {
            let weight = match rule.kind {
                RuleKind::AntiAffinity => continue,
                RuleKind::Affinity => self.args.hard_pod_affinity_weight,
                RuleKind::Preference(weight) => weight,
            };
            if rule.kind == RuleKind::Affinity && weight <= 0 {
                continue;
            }
            counted += by_label(&mut liked, &rule.key, nodes).add(holders, weight.into());
        }
        if counted == 0 {
            return PreScoreResult::Skip;
        }
        state.put(TopologyScores(liked));
        PreScoreResult::All
    }
}

impl Score for InterPodAffinity {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        state.get::<TopologyScores>().map_or(0, |liked| liked.sum(node))
    }

    fn score_all(
        &self,
        state: &CycleState,
        _: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        let Some(liked) = state.get::<TopologyScores>() else {
            return scores.resize(nodes.len(), 0);
        };
        scores.extend(nodes.iter().map(|node| liked.sum(*node)));
    }

    fn normalize_score(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        let least = scores.iter().copied().min().unwrap_or(0);
        let range = scores.iter().copied().max().unwrap_or(0) - least;
        for score in scores {
            let share = if range > 0 { (*score - least) as f64 / range as f64 } else { 0.0 };
            *score = (MAX_NODE_SCORE as f64 * share) as i64;
        }
    }
}

impl TopologyScores {
    fn sum(&self, node: NodeRef<'_>) -> i64 {
        self.0.iter().filter_map(|liked| liked.at(node.slot())).sum()
    }
}
