//! Scores the feasible nodes and selects one.

use hashbrown::HashMap;

use super::{cycle::Cycle, trace::Trace};
use crate::{
    framework::{CycleState, ExtensionPoint, MAX_NODE_SCORE, PreScoreResult, Status, guarded},
    nodes::{NodeRef, Slot},
};

/// Sums of the extenders' scores, by node name.
pub(super) type ExtenderScoreSums = HashMap<Box<str>, i64>;

impl Cycle<'_> {
    /// Scores the nodes and selects one of those with the highest score.
    ///
    /// # Errors
    ///
    /// If a plugin panics, returns its index and status.
    ///
    /// Upstream: `prioritizeNodes`, `NewSortedScoredNodes`.
    pub(super) fn prioritize_and_select_host(
        &mut self,
        state: &mut CycleState,
        feasible: &[Slot],
        extender_scores: &ExtenderScoreSums,
    ) -> Result<Slot, (usize, Status)> {
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
) -> Result<Vec<i64>, (usize, Status)> {
    let (profile, nodes, pod) = (cycle.profile, cycle.nodes(), cycle.pod);
    let (mut scored, mut same) = (Vec::new(), 0);
    let began = trace.now();
    for (index, plugin) in profile.at(ExtensionPoint::PreScore) {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_pre_score()) else { continue };
        let timed = trace.begin();
        let answer = guarded(|| plugin.pre_score(state, pod, nodes, feasible))
            .map_err(|why| failed(index, "PreScore", name, &why))?;
        match answer {
            PreScoreResult::All => {
                trace.called(ExtensionPoint::PreScore, index, timed, None);
                continue;
            }
            PreScoreResult::Skip => trace.skipped(ExtensionPoint::PreScore, index, timed),
            PreScoreResult::Same(score) => {
                // Every node gets this score.
                trace.scored(index, feasible.len(), timed);
                same += score.clamp(0, MAX_NODE_SCORE) * profile.weight(index);
            }
        }
        scored.push(index);
    }
    trace.ran(ExtensionPoint::PreScore, began, None);
    let began = trace.now();
    let mut total = vec![same; feasible.len()];
    let mut plugin_scores = Vec::with_capacity(feasible.len());
    for (index, plugin) in
        profile.at(ExtensionPoint::Score).filter(|(index, _)| !scored.contains(index))
    {
        let (name, Some(plugin)) = (plugin.name(), plugin.as_score()) else { continue };
        let timed = trace.begin();
        plugin_scores.clear();
        guarded(|| {
            plugin.score_all(state, pod, feasible, &mut plugin_scores);
            plugin.normalize_score(state, feasible, &mut plugin_scores);
        })
        .map_err(|why| failed(index, "Score", name, &why))?;
        trace.scored(index, feasible.len(), timed);
        for (sum, score) in total.iter_mut().zip(&plugin_scores) {
            *sum += score.clamp(&0, &MAX_NODE_SCORE) * profile.weight(index);
        }
    }
    trace.ran(ExtensionPoint::Score, began, None);
    Ok(total)
}

/// Prefixes the message of an error with the extension point and the plugin.
fn failed(index: usize, point: &str, plugin: &str, why: &Status) -> (usize, Status) {
    let reasons = why.reasons.join(", ");
    (index, Status::error(format!("running {point} plugin \"{plugin}\": {reasons}")))
}

/// Selects one of the nodes with the highest score.
///
/// Upstream: `NewSortedScoredNodes`.
fn select_host<'a>(nodes: &[NodeRef<'a>], scores: &[i64], seed: u64) -> NodeRef<'a> {
    let top = scores.iter().copied().max().unwrap_or(0);
    let ties = scores.iter().filter(|score| **score == top).count().max(1);
    let winner = (mix(seed) % ties as u64) as usize;
    let selected = scores
        .iter()
        .enumerate()
        .filter(|(_, score)| **score == top)
        .nth(winner)
        .map_or(0, |(index, _)| index);
    nodes[selected]
}

/// Mixes all bits of a seed (`splitmix64`).
pub(crate) fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
