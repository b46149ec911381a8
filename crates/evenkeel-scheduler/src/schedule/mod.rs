//! One attempt to find a node for a pod. Pure: equal nodes, pods and seeds give equal outcomes.

mod cycle;
mod extenders;
mod fit_error;
mod prioritize;
mod trace;

use futures::FutureExt;
use std::sync::Arc;

pub use cycle::Cycle;
pub(crate) use prioritize::mix;
pub(crate) use trace::Trace;

pub use crate::queue::Nominator;
use crate::{
    framework::{CycleState, Profile, Status},
    nodes::{NodeTable, Slot},
    pod::PodInfo,
    queue::PluginSet,
};

/// Input of an attempt.
///
/// Upstream: `Snapshot`
#[derive(Debug)]
pub struct View<'a> {
    /// Profile of the pod.
    pub profile: &'a Profile,
    /// The nodes. An attempt changes and restores them.
    pub nodes: &'a mut NodeTable,
    /// The nominated pods.
    pub nominator: &'a Nominator,
    /// Index of the first node to evaluate; advances from attempt to attempt.
    ///
    /// Upstream: `nextStartNodeIndex`
    pub start: usize,
}

/// Outcome of an attempt.
#[derive(Debug)]
pub struct Outcome {
    /// The selected node, or why no node is feasible.
    pub result: Result<ScheduleResult, FitError>,
    /// Number of evaluated nodes.
    pub evaluated: usize,
    /// Index of the first node for the next attempt.
    pub next_start: usize,
}

/// The selected node.
///
/// Upstream: `ScheduleResult`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleResult {
    /// Name of the node.
    pub suggested_host: Arc<str>,
    /// Number of feasible nodes.
    pub feasible_nodes: usize,
}

/// No node is feasible.
///
/// Upstream: `FitError`, `Diagnosis`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FitError {
    /// Number of all nodes.
    pub n_nodes: usize,
    /// Status of every node, if a PreFilter plugin rejected the pod or a plugin failed.
    pub overall: Option<NodeStatus>,
    /// Status of each node that was evaluated.
    ///
    /// Upstream: `NodeToStatus`
    pub rejected: Vec<NodeStatus>,
    /// Indexes of the plugins that restricted the nodes; includes extenders.
    pub pre_filter_plugins: Vec<usize>,
    /// Names of the plugins that restricted the nodes.
    pub pre_filter_plugin_names: Vec<&'static str>,
}

/// Status of a node with the plugin that set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Slot of the node; unused in [`FitError::overall`].
    pub slot: Slot,
    /// Index of the plugin in the profile.
    pub plugin: usize,
    /// Code and reasons.
    pub why: Status,
}

/// Returns how many feasible nodes an attempt looks for: all of up to 100; else `percentage` of them, by default 50 % falling
/// to 5 % as the cluster grows.
///
/// Upstream: `numFeasibleNodesToFind`
pub fn num_feasible_nodes_to_find(n_nodes: usize, percentage: u32) -> usize {
    const MIN_FEASIBLE_NODES_TO_FIND: usize = 100;
    if n_nodes < MIN_FEASIBLE_NODES_TO_FIND || percentage >= 100 {
        return n_nodes;
    }
    let percentage = match percentage {
        0 => 50_usize.saturating_sub(n_nodes / 125).max(5),
        set => set as usize,
    };
    (n_nodes * percentage / 100).max(MIN_FEASIBLE_NODES_TO_FIND)
}

/// Finds a node for `pod` without extenders; `seed` breaks ties.
pub fn schedule(view: View<'_>, pod: &PodInfo, seed: u64, state: &mut CycleState) -> Outcome {
    let mut cycle = Cycle::new(view, pod, seed, &[]);
    let outcome = schedule_pod(&mut cycle, state).now_or_never();
    outcome.expect("only extenders are waited for, and there are none")
}

/// Nodes found so far.
#[derive(Debug, Default)]
struct FilterOutcome {
    feasible: Vec<Slot>,
    rejected: Vec<NodeStatus>,
    evaluated: usize,
    /// An extender removed nodes.
    extended: bool,
}

/// Runs one attempt; restores the nodes that it changes.
///
/// Upstream: `schedulePod`, `findNodesThatFitPod`
pub(crate) async fn schedule_pod(cycle: &mut Cycle<'_>, state: &mut CycleState) -> Outcome {
    let (n_nodes, start) = (cycle.nodes().len(), cycle.start);
    let none = |fit_error| Outcome { result: Err(fit_error), evaluated: 0, next_start: start };
    if n_nodes == 0 {
        return none(cycle.fit_error(None, Vec::new()));
    }
    if let Err(rejected) = cycle.run_pre_filter_plugins(state) {
        return none(cycle.fit_error(Some(rejected), Vec::new()));
    }
    let nominated_node = &cycle.pod().pod.status.nominated_node_name;
    let mut found = FilterOutcome::default();
    if !nominated_node.is_empty() {
        // Preemption made room there, so it is likely feasible.
        found = cycle.evaluate_nominated_node(state, nominated_node);
        extenders::find_nodes_that_pass_extenders(cycle, &mut found).await;
    }
    let mut next_start = start;
    if found.feasible.is_empty() {
        found = cycle.find_nodes_that_pass_filters(state);
        next_start = (start + found.evaluated) % n_nodes;
        extenders::find_nodes_that_pass_extenders(cycle, &mut found).await;
    }
    let outcome = |choice| Outcome { result: choice, evaluated: found.evaluated, next_start };
    let n_feasible = found.feasible.len();
    let slot = match found.feasible.as_slice() {
        [] => {
            let mut fit_error = cycle.fit_error(None, found.rejected);
            fit_error.pre_filter_plugins.extend(found.extended.then_some(PluginSet::EXTENDERS));
            return outcome(Err(fit_error));
        }
        [only] => *only,
        several => {
            let extender_scores = extenders::prioritize_nodes(cycle, several).await;
            cycle.prioritize_and_select_host(state, several, &extender_scores)
        }
    };
    if let Some(wrong) = found.rejected.iter().position(is_error) {
        let wrong = found.rejected.swap_remove(wrong);
        return outcome(Err(cycle.fit_error(Some(wrong), Vec::new())));
    }
    let node = Arc::clone(cycle.nodes().at(slot).name());
    outcome(Ok(ScheduleResult { suggested_host: node, feasible_nodes: n_feasible }))
}

fn is_error(rejected: &NodeStatus) -> bool {
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
            assert_eq!(
                num_feasible_nodes_to_find(nodes, percentage),
                want,
                "{nodes} nodes, {percentage} %"
            );
        }
    }
}
