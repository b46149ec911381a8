//! Scores the feasible nodes and selects one.

use hashbrown::HashMap;

use super::{cycle::Cycle, trace::Trace};
use crate::{
    framework::{
        CycleState, ExtensionPoint, MAX_NODE_SCORE, PluginRejection, PreScoreResult,
        catch_plugin_panic,
    },
    nodes::{NodeRef, Slot},
};

/// Sums of the extenders' scores, by node name.
pub(super) type ExtenderScoreSums = HashMap<Box<str>, i64>;

impl Cycle<'_> {
    /// Scores the nodes and selects one of those with the highest score.
    ///
    /// # Errors
    ///
    /// Fails if a plugin panics.
    ///
    /// Upstream: `prioritizeNodes`, `NewSortedScoredNodes`.
    pub(super) fn prioritize_and_select_host(
        &mut self,
        state: &mut CycleState,
        feasible: &[Slot],
        extender_scores: &ExtenderScoreSums,
    ) -> Result<Slot, PluginRejection> {
        let nodes: Vec<NodeRef<'_>> = feasible.iter().map(|slot| self.nodes.at(*slot)).collect();
        let mut trace = std::mem::take(&mut self.trace);
        let scores = prioritize_nodes(self, state, &nodes, &mut trace);
        self.trace = trace;
        let mut scores = scores?;
        if !extender_scores.is_empty() {
            for (score, node) in scores.iter_mut().zip(&nodes) {
                *score += extender_scores.get(&**node.name()).copied().unwrap_or(0);
            }
        }
        Ok(select_host(&nodes, &scores, self.seed).slot())
    }
}

/// Returns the sum of each node's weighted scores.
///
/// Upstream: `prioritizeNodes`.
fn prioritize_nodes(
    cycle: &Cycle<'_>,
    state: &mut CycleState,
    feasible: &[NodeRef<'_>],
    trace: &mut Trace,
) -> Result<Vec<i64>, PluginRejection> {
    let profile = cycle.profile;
    let nodes = cycle.nodes();
    let pod = cycle.pod;
    // Plugins without a call of `score`, and the sum of their weighted scores, which are the same for every node.
    let mut without_score_call = Vec::new();
    let mut same_for_all = 0;
    let point_began = trace.now();
    for (index, plugin) in profile.at(ExtensionPoint::PreScore) {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_pre_score()) else { continue };
        let began = trace.now_if_sampled();
        let result = catch_plugin_panic(|| plugin.pre_score(state, pod, nodes, feasible))
            .map_err(|panic| PluginRejection::new(index, panic, "PreScore", name))?;
        match result {
            PreScoreResult::All => {
                trace.record_call(ExtensionPoint::PreScore, index, began, None);
                continue;
            }
            PreScoreResult::Skip => trace.record_skip(ExtensionPoint::PreScore, index, began),
            PreScoreResult::Same(score) => {
                trace.record_scores(index, feasible.len(), began);
                same_for_all += score.clamp(0, MAX_NODE_SCORE) * profile.weight(index);
            }
        }
        without_score_call.push(index);
    }
    trace.record_point(ExtensionPoint::PreScore, point_began, None);
    let point_began = trace.now();
    let mut totals = vec![same_for_all; feasible.len()];
    let mut plugin_scores = Vec::with_capacity(feasible.len());
    for (index, plugin) in profile.at(ExtensionPoint::Score) {
        if without_score_call.contains(&index) {
            continue;
        }
        let (name, Some(plugin)) = (plugin.name(), plugin.as_score()) else { continue };
        let began = trace.now_if_sampled();
        plugin_scores.clear();
        catch_plugin_panic(|| {
            plugin.score_all(state, pod, feasible, &mut plugin_scores);
            plugin.normalize_score(state, feasible, &mut plugin_scores);
        })
        .map_err(|panic| PluginRejection::new(index, panic, "Score", name))?;
        trace.record_scores(index, feasible.len(), began);
        for (total, score) in totals.iter_mut().zip(&plugin_scores) {
            *total += score.clamp(&0, &MAX_NODE_SCORE) * profile.weight(index);
        }
    }
    trace.record_point(ExtensionPoint::Score, point_began, None);
    Ok(totals)
}

/// Selects one of the nodes with the highest score.
///
/// Upstream: `NewSortedScoredNodes`.
fn select_host<'a>(nodes: &[NodeRef<'a>], scores: &[i64], seed: u64) -> NodeRef<'a> {
    let highest = scores.iter().copied().max().unwrap_or(0);
    let mut best_nodes = nodes.iter().zip(scores).filter(|(_, score)| **score == highest);
    let n_best = best_nodes.clone().count().max(1);
    let winner = (mix(seed) % n_best as u64) as usize;
    best_nodes.nth(winner).map_or(nodes[0], |(node, _)| *node)
}

/// Mixes all bits of a seed (`splitmix64`).
pub(crate) fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
