//! Scores nodes by the preferred terms of the pod itself, and by the terms of existing pods that match the pod.
//!
//! Upstream: `plugins/interpodaffinity/scoring.go`.

use super::{InterPodAffinity, counts_of_key};
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
        let has_preferred_terms =
            || terms(&pod.pod).any(|(kind, _)| matches!(kind, RuleKind::Preference(_)));
        if self.args.ignore_preferred_terms_of_existing_pods && !has_preferred_terms() {
            return PreScoreResult::Skip;
        }
        let mut pod_index = nodes.pod_index();
        let class = pod_index.find_or_add_class(&pod.pod);
        let mut topology_scores = Vec::new();
        let mut counted_pods = 0;
        for rule in pod_index.get(class).map_or(&[][..], |class| class.rules()) {
            let RuleKind::Preference(weight) = rule.kind else { continue };
            for class in pod_index.members(rule.scope).filter(|class| !class.nodes().is_empty()) {
                let topology_scores =
                    counts_of_key(&mut topology_scores, &rule.topology_key, nodes);
                counted_pods += topology_scores.add(class.nodes(), weight.into());
            }
        }
        for (rule, pods_with_rule) in pod_index.rules_that_select(class) {
            let weight = match rule.kind {
                RuleKind::AntiAffinity => continue,
                RuleKind::Affinity => self.args.hard_pod_affinity_weight,
                RuleKind::Preference(weight) => weight,
            };
            if rule.kind == RuleKind::Affinity && weight <= 0 {
                continue;
            }
            counted_pods += counts_of_key(&mut topology_scores, &rule.topology_key, nodes)
                .add(pods_with_rule, weight.into());
        }
        if counted_pods == 0 {
            return PreScoreResult::Skip;
        }
        state.put(TopologyScores(topology_scores));
        PreScoreResult::All
    }
}

impl Score for InterPodAffinity {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        state.get::<TopologyScores>().map_or(0, |topology_scores| topology_scores.sum(node))
    }

    fn score_all(
        &self,
        state: &CycleState,
        _: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        let Some(topology_scores) = state.get::<TopologyScores>() else {
            return scores.resize(nodes.len(), 0);
        };
        scores.extend(nodes.iter().map(|node| topology_scores.sum(*node)));
    }

    fn normalize_score(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        let min = scores.iter().copied().min().unwrap_or(0);
        let range = scores.iter().copied().max().unwrap_or(0) - min;
        for score in scores {
            let fraction = if range > 0 { (*score - min) as f64 / range as f64 } else { 0.0 };
            *score = (MAX_NODE_SCORE as f64 * fraction) as i64;
        }
    }
}

impl TopologyScores {
    /// Returns the sum of the weights in the node's domains.
    fn sum(&self, node: NodeRef<'_>) -> i64 {
        let Self(by_key) = self;
        by_key.iter().filter_map(|weights| weights.at(node.slot())).sum()
    }
}
