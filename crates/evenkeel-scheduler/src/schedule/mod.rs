//! One attempt to find a node for a pod. Pure: equal tables, pods and seeds give equal outcomes.

mod choice;
mod cycle;
mod extend;
mod trace;
mod unfit;

use futures::FutureExt;
use std::sync::Arc;

pub(crate) use choice::mix;
pub use cycle::Cycle;
pub(crate) use trace::Trace;

pub use crate::queue::Nominator;
use crate::{
    framework::{CycleState, Profile, Status},
    nodes::{NodeTable, Slot},
    pod::PodInfo,
    queue::PluginSet,
};

/// What an attempt looks at.
#[derive(Debug)]
pub struct View<'a> {
    /// The plugins.
    pub profile: &'a Profile,
    /// The nodes. They are the same afterwards.
    pub nodes: &'a mut NodeTable,
    /// Pods that were promised room.
    pub nominator: &'a Nominator,
    /// Position in the order of nodes at which to begin; it moves on from attempt to attempt.
    pub start: usize,
}

/// How an attempt ended.
#[derive(Debug)]
pub struct Outcome {
    /// The node, or why there is none.
    pub choice: Result<Choice, Unfit>,
    /// How many nodes were looked at.
    pub evaluated: usize,
    /// Where the next attempt should begin.
    pub next_start: usize,
}

/// A node was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub node: Arc<str>,
    /// How many nodes would have done.
    pub feasible: usize,
}

/// No node was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// How many nodes there are.
    pub n_nodes: usize,
    /// Why, where no node had to be looked at to know.
    pub overall: Option<Rejected>,
    /// Why each node was rejected.
    pub rejected: Vec<Rejected>,
    /// Plugins that left only some nodes, extenders among them.
    pub only_by: Vec<usize>,
    /// The same by name.
    pub only_named: Vec<&'static str>,
}

/// Why one node (or all of them) was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Which node; meaningless in [`Unfit::overall`].
    pub slot: Slot,
    /// By which plugin of the profile.
    pub plugin: usize,
    /// Why.
    pub why: Status,
}

/// Nodes that are enough for a choice (`numFeasibleNodesToFind` in `pkg/scheduler/schedule_one.go`): all up to 100; then a share
/// that falls from 50 % to 5 % as the cluster grows, unless one is set.
pub fn enough_nodes(n_nodes: usize, percentage: u32) -> usize {
    const LEAST: usize = 100;
    if n_nodes < LEAST || percentage >= 100 {
        return n_nodes;
    }
    let percentage = match percentage {
        0 => 50_usize.saturating_sub(n_nodes / 125).max(5),
        set => set as usize,
    };
    (n_nodes * percentage / 100).max(LEAST)
}

/// Finds a node for `pod`; ties are broken by `seed`.
pub fn schedule(view: View<'_>, pod: &PodInfo, seed: u64, state: &mut CycleState) -> Outcome {
    let mut cycle = Cycle::new(view, pod, seed, &[]);
    let outcome = attempt(&mut cycle, state).now_or_never();
    outcome.expect("only extenders are waited for, and there are none")
}

/// What was found among the nodes that were looked at.
#[derive(Debug, Default)]
struct Found {
    feasible: Vec<Slot>,
    rejected: Vec<Rejected>,
    evaluated: usize,
    /// Extenders left out some, perhaps without saying why.
    extended: bool,
}

/// The attempt itself. What it changes of the nodes on the way is undone.
pub(crate) async fn attempt(cycle: &mut Cycle<'_>, state: &mut CycleState) -> Outcome {
    let (n_nodes, start) = (cycle.nodes().len(), cycle.start);
    let none = |unfit| Outcome { choice: Err(unfit), evaluated: 0, next_start: start };
    if n_nodes == 0 {
        return none(cycle.unfit(None, Vec::new()));
    }
    if let Err(rejected) = cycle.pre_filter(state) {
        return none(cycle.unfit(Some(rejected), Vec::new()));
    }
    let hinted = &cycle.pod().pod.status.nominated_node_name;
    let mut found = Found::default();
    if !hinted.is_empty() {
        // Room was made there, and hardly anywhere else.
        found = cycle.try_one(state, hinted);
        extend::filter(cycle, &mut found).await;
    }
    let mut next_start = start;
    if found.feasible.is_empty() {
        found = cycle.search(state);
        next_start = (start + found.evaluated) % n_nodes;
        extend::filter(cycle, &mut found).await;
    }
    let outcome = |choice| Outcome { choice, evaluated: found.evaluated, next_start };
    let n_feasible = found.feasible.len();
    let slot = match found.feasible.as_slice() {
        [] => {
            let mut unfit = cycle.unfit(None, found.rejected);
            unfit.only_by.extend(found.extended.then_some(PluginSet::EXTENDERS));
            return outcome(Err(unfit));
        }
        [only] => *only,
        several => {
            let extra = extend::prioritize(cycle, several).await;
            cycle.best(state, several, &extra)
        }
    };
    if let Some(wrong) = found.rejected.iter().position(is_error) {
        let wrong = found.rejected.swap_remove(wrong);
        return outcome(Err(cycle.unfit(Some(wrong), Vec::new())));
    }
    let node = Arc::clone(cycle.nodes().at(slot).name());
    outcome(Ok(Choice { node, feasible: n_feasible }))
}

fn is_error(rejected: &Rejected) -> bool {
    rejected.why.code == crate::framework::Code::Error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_nodes_as_upstream_counts_them() {
        for (nodes, percentage, want) in [
            (10, 0, 10),
            (99, 0, 99),
            (100, 0, 100),
            (1000, 0, 420),
            (5000, 0, 500),
            (6000, 0, 300),
            (15_000, 0, 750),
            (1000, 40, 400),
            (1000, 1, 100),
            (1000, 100, 1000),
        ] {
            assert_eq!(enough_nodes(nodes, percentage), want, "{nodes} nodes, {percentage} %");
        }
    }
}
