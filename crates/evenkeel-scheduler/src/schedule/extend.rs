//! What extenders have to say in an attempt. They are asked one after the other, each about what the others left.

use super::{Found, Rejected, choice::Extra, cycle::Cycle};
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

/// Leaves the nodes that every extender finds good.
pub(super) async fn filter(cycle: &Cycle<'_>, found: &mut Found) {
    let before = found.feasible.len();
    ask(cycle, found).await;
    found.extended = found.feasible.len() < before;
}

async fn ask(cycle: &Cycle<'_>, found: &mut Found) {
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
                let rejected = Rejected { slot: 0, plugin: PluginSet::EXTENDERS, why };
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
                found.rejected.push(Rejected { slot, plugin: PluginSet::EXTENDERS, why });
            }
        }
        found.feasible.retain(|slot| {
            let name = cycle.nodes().at(*slot).name();
            answer.feasible.iter().any(|feasible| **feasible == **name)
        });
    }
}

/// What the extenders add to the scores. One that fails adds nothing.
pub(super) async fn prioritize(cycle: &Cycle<'_>, feasible: &[Slot]) -> Extra {
    let asked =
        |extender: &&Arc<dyn Extender>| extender.prioritizes() && extender.is_interested(cycle.pod);
    let mut extra = Extra::default();
    if !cycle.extenders.iter().any(|extender| asked(&extender)) {
        return extra;
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
                    let sum: &mut i64 = extra.entry(node).or_default();
                    *sum = sum.saturating_add(score);
                }
            }
            Err(error) => {
                tracing::debug!(extender = extender.name(), %error, "Extender gave no scores");
            }
        }
    }
    extra
}
