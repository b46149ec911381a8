//! Calls of extenders in an attempt: filters run one after the other, scores concurrently.

use super::{FilterOutcome, NodeStatus, cycle::Cycle, prioritize::ExtenderScoreSums};
use crate::{
    framework::{Extender, Status},
    nodes::{NodeRef, Slot},
    queue::PluginSet,
};
use futures::future::join_all;
use std::sync::Arc;

fn names(cycle: &Cycle<'_>, slots: &[Slot]) -> Vec<Arc<str>> {
    slots.iter().map(|slot| Arc::clone(cycle.nodes().at(*slot).name())).collect()
}

/// Keeps the nodes that every extender accepts.
///
/// Upstream: `findNodesThatPassExtenders`
pub(super) async fn find_nodes_that_pass_extenders(cycle: &Cycle<'_>, found: &mut FilterOutcome) {
    let before = found.feasible.len();
    filter_with_each(cycle, found).await;
    found.extended = found.feasible.len() < before;
}

async fn filter_with_each(cycle: &Cycle<'_>, found: &mut FilterOutcome) {
    for extender in cycle.extenders {
        if found.feasible.is_empty() {
            return;
        }
        if !extender.filters() || !extender.is_interested(cycle.pod) {
            continue;
        }
        let nodes = names(cycle, &found.feasible);
        let answer = match extender.filter(cycle.pod, &nodes).await {
            Ok(answer) => answer,
            Err(error) if extender.is_ignorable() => {
                tracing::info!(extender = extender.name(), %error, "Extender left out");
                continue;
            }
            Err(error) => {
                let why = Status::error(error.to_string());
                let rejected = NodeStatus { slot: 0, plugin: PluginSet::EXTENDERS, why };
                found.feasible.clear();
                found.rejected.push(rejected);
                return;
            }
        };
        let unresolvable = answer
            .unresolvable
            .into_iter()
            .map(|(node, reason)| (node, Status::unresolvable(reason)));
        let failed =
            answer.failed.into_iter().map(|(node, reason)| (node, Status::unschedulable(reason)));
        for (name, why) in unresolvable.chain(failed) {
            let Some(slot) = cycle.nodes().get(&name).map(NodeRef::slot) else { continue };
            if !found.rejected.iter().any(|rejected| rejected.slot == slot) {
                found.rejected.push(NodeStatus { slot, plugin: PluginSet::EXTENDERS, why });
            }
        }
        found.feasible.retain(|slot| {
            let name = cycle.nodes().at(*slot).name();
            answer.feasible.iter().any(|feasible| **feasible == **name)
        });
    }
}

/// Returns the sums of the extenders' scores. A failed extender adds nothing.
pub(super) async fn prioritize_nodes(cycle: &Cycle<'_>, feasible: &[Slot]) -> ExtenderScoreSums {
    let asked =
        |extender: &&Arc<dyn Extender>| extender.prioritizes() && extender.is_interested(cycle.pod);
    let mut extender_scores = ExtenderScoreSums::default();
    if !cycle.extenders.iter().any(|extender| asked(&extender)) {
        return extender_scores;
    }
    let nodes = names(cycle, feasible);
    let answers = cycle.extenders.iter().filter(asked).map(|extender| {
        let nodes = &nodes;
        async move {
            let _running = cycle.metrics.map(|metrics| metrics.running("prioritizing_extender"));
            (extender, extender.prioritize(cycle.pod, nodes).await)
        }
    });
    for (extender, answer) in join_all(answers).await {
        match answer {
            Ok(scores) => {
                for (node, score) in scores {
                    let sum: &mut i64 = extender_scores.entry(node).or_default();
                    *sum = sum.saturating_add(score);
                }
            }
            Err(error) => {
                tracing::debug!(extender = extender.name(), %error, "Extender gave no scores");
            }
        }
    }
    extender_scores
}
