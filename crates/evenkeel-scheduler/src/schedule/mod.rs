//! One attempt to find a node for a pod. Equal nodes, pods, seeds and responses of extenders give equal outcomes. Only
//! two modules have side effects: [`act`] calls the extenders, and [`trace`] measures plugin calls for metrics.

mod act;
mod attempt;
mod cycle;
mod extenders;
mod fit_error;
mod prioritize;
mod trace;

use std::sync::Arc;

pub(crate) use act::schedule_pod;
pub use cycle::Cycle;
pub(crate) use prioritize::mix;
pub(crate) use trace::{CallCount, CallDuration, PointDuration, Trace};

pub use crate::queue::Nominator;
use crate::{
    framework::{CycleState, Profile, Status},
    nodes::{NodeTable, Slot},
    pod::PodInfo,
};
use attempt::{Attempt, Step};

/// Input of an attempt.
///
/// Upstream: `Snapshot`.
#[derive(Debug)]
pub struct View<'a> {
    /// Profile of the pod.
    pub profile: &'a Profile,
    /// The nodes. An attempt may change them, but restores them before it ends.
    pub nodes: &'a mut NodeTable,
    /// The nominated pods.
    pub nominator: &'a Nominator,
    /// Index of the first node to evaluate. It advances with every attempt.
    ///
    /// Upstream: `nextStartNodeIndex`.
    pub start_node_index: usize,
}

/// Outcome of an attempt.
#[derive(Debug)]
pub struct Outcome {
    /// The selected node, or the reasons why no node is feasible.
    pub result: Result<ScheduleResult, FitError>,
    /// Number of evaluated nodes.
    pub evaluated: usize,
    /// Index of the first node that the next attempt evaluates.
    pub next_start_node_index: usize,
}

/// The selected node.
///
/// Upstream: `ScheduleResult`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleResult {
    /// Name of the node.
    pub suggested_host: Arc<str>,
    /// Number of feasible nodes.
    pub feasible_nodes: usize,
}

/// Error of an attempt that found no feasible node.
///
/// Upstream: `FitError`, `Diagnosis`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FitError {
    /// Number of all nodes.
    pub n_nodes: usize,
    /// Status that applies to all nodes, because a PreFilter plugin rejected the pod or a plugin failed.
    pub overall: Option<NodeStatus>,
    /// Statuses of the nodes that were evaluated and rejected.
    ///
    /// Upstream: `NodeToStatus`.
    pub rejected: Vec<NodeStatus>,
    /// Indexes of the PreFilter plugins that restricted the nodes. Includes `PluginSet::EXTENDERS` if an extender did.
    pub pre_filter_plugins: Vec<usize>,
    /// Names of the PreFilter plugins that restricted the nodes.
    pub pre_filter_plugin_names: Vec<&'static str>,
}

/// Status of a node, and the plugin that returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Slot of the node. Meaningless if the status applies to all nodes.
    pub slot: Slot,
    /// Index of the plugin in the profile.
    pub plugin: usize,
    /// Code and reasons.
    pub status: Status,
}

impl NodeStatus {
    /// Returns a status that applies to all nodes. Its slot is meaningless.
    pub(crate) fn without_node(plugin: usize, status: Status) -> Self {
        Self { slot: 0, plugin, status }
    }
}

/// Returns the number of feasible nodes after which an attempt stops its search. The number is `percentage` of all
/// nodes, but at least 100, or all nodes if there are fewer. A percentage of 0 stands for a default that decreases from
/// 50 % to 5 % as the cluster grows.
///
/// Upstream: `numFeasibleNodesToFind`.
pub fn num_feasible_nodes_to_find(n_nodes: usize, percentage: u32) -> usize {
    const MIN_FEASIBLE_NODES_TO_FIND: usize = 100;
    if n_nodes < MIN_FEASIBLE_NODES_TO_FIND || percentage >= 100 {
        return n_nodes;
    }
    let percentage = match percentage {
        // Upstream's formula: one percentage point less for each 125 nodes.
        0 => 50_usize.saturating_sub(n_nodes / 125).max(5),
        percentage => percentage as usize,
    };
    (n_nodes * percentage / 100).max(MIN_FEASIBLE_NODES_TO_FIND)
}

/// Finds a node for `pod` without extenders. `seed` selects among nodes with equal scores.
pub fn schedule(view: View<'_>, pod: &PodInfo, seed: u64, state: &mut CycleState) -> Outcome {
    let mut cycle = Cycle::new(view, pod, seed, &[]);
    let (_, first_step) = Attempt::begin(&mut cycle, state);
    match first_step {
        Step::Done(outcome) => outcome,
        Step::Filter { .. } | Step::Prioritize { .. } => {
            unreachable!("these steps call extenders, and there are none")
        }
    }
}

/// Nodes that the filters of an attempt have accepted and rejected so far.
#[derive(Debug, Default)]
struct FilterOutcome {
    feasible: Vec<Slot>,
    rejected: Vec<NodeStatus>,
    /// Number of evaluated nodes.
    evaluated: usize,
    /// Whether an extender removed feasible nodes.
    reduced_by_extenders: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_nodes_to_find_equals_upstreams() {
        for (nodes, percentage, expected) in [
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
                expected,
                "{nodes} nodes, {percentage} %"
            );
        }
    }
}
