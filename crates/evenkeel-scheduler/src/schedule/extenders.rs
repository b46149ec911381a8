//! Extenders in a scheduling cycle: selects those that filter and score, and applies their responses.
//!
//! Upstream: `findNodesThatPassExtenders`, `prioritizeNodes`.

use super::{FilterOutcome, NodeStatus, cycle::Cycle, prioritize::ExtenderScoreSums};
use crate::{
    framework::{ExtenderError, ExtenderFiltered, ExtenderScores, Status},
    nodes::{NodeRef, Slot},
    queue::PluginSet,
};
use std::{fmt::Display, sync::Arc};

pub(super) fn node_names(cycle: &Cycle<'_>, slots: &[Slot]) -> Vec<Arc<str>> {
    slots.iter().map(|slot| Arc::clone(cycle.nodes().at(*slot).name())).collect()
}

/// Returns the next extender, from index `from` on, that filters the feasible nodes.
pub(super) fn next_filtering_extender(
    cycle: &Cycle<'_>,
    feasible: &[Slot],
    from: usize,
) -> Option<usize> {
    if feasible.is_empty() {
        return None;
    }
    let filters_pod = |index: &usize| {
        let extender = &cycle.extenders[*index];
        extender.is_filter() && extender.is_interested(cycle.pod)
    };
    (from..cycle.extenders.len()).find(filters_pod)
}

/// Keeps the nodes that an extender accepts, and records the reasons for the others.
pub(super) fn apply_filter_result(
    cycle: &Cycle<'_>,
    found: &mut FilterOutcome,
    filtered: ExtenderFiltered,
) {
    let unresolvable = filtered
        .unresolvable
        .into_iter()
        .map(|(node, reason)| (node, Status::unresolvable(reason)));
    let failed =
        filtered.failed.into_iter().map(|(node, reason)| (node, Status::unschedulable(reason)));
    for (name, status) in unresolvable.chain(failed) {
        let Some(slot) = cycle.nodes().get(&name).map(NodeRef::slot) else { continue };
        if !found.rejected.iter().any(|rejected| rejected.slot == slot) {
            found.rejected.push(NodeStatus { slot, plugin: PluginSet::EXTENDERS, status });
        }
    }
    found.feasible.retain(|slot| {
        let name = cycle.nodes().at(*slot).name();
        filtered.feasible.iter().any(|feasible| **feasible == **name)
    });
}

/// Rejects all nodes because an extender failed.
pub(super) fn reject_all_nodes(found: &mut FilterOutcome, error: &(impl Display + ?Sized)) {
    let status = Status::error(error.to_string());
    found.feasible.clear();
    // One entry represents all nodes.
    found.rejected.push(NodeStatus::without_node(PluginSet::EXTENDERS, status));
}

/// Returns the extenders that score nodes for the pod.
pub(super) fn prioritizing_extenders(cycle: &Cycle<'_>) -> Vec<usize> {
    let extenders = cycle.extenders.iter().enumerate();
    extenders
        .filter(|(_, extender)| extender.is_prioritizer() && extender.is_interested(cycle.pod))
        .map(|(index, _)| index)
        .collect()
}

/// Returns the sums of the extenders' scores by node. A failed extender adds nothing.
pub(super) fn sum_scores(
    responses: Vec<Result<ExtenderScores, ExtenderError>>,
) -> ExtenderScoreSums {
    let mut sums = ExtenderScoreSums::default();
    for (node, score) in responses.into_iter().flatten().flatten() {
        let sum: &mut i64 = sums.entry(node).or_default();
        *sum = sum.saturating_add(score);
    }
    sums
}
