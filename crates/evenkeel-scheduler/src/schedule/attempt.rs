//! One attempt in steps. A step is either a request to extenders, whose response the caller passes to the next step, or
//! the outcome. An attempt without extenders consists of a single step.

use std::sync::Arc;

use super::{FilterOutcome, NodeStatus, Outcome, ScheduleResult, cycle::Cycle, extenders};
use crate::{
    framework::{
        Code, CycleState, ExtenderError, ExtenderFiltered, ExtenderScores, PluginRejection,
    },
    nodes::Slot,
    queue::PluginSet,
};

/// Next step of an attempt. Extenders are indexes into [`Cycle::extenders`].
pub(super) enum Step {
    /// Call the filter of an extender for these nodes.
    Filter { extender: usize, nodes: Vec<Arc<str>> },
    /// Score these nodes by these extenders.
    Prioritize { extenders: Vec<usize>, nodes: Vec<Arc<str>> },
    /// The attempt has ended.
    Done(Outcome),
}

/// State of an attempt between two steps.
///
/// Upstream: `schedulePod`, `findNodesThatFitPod`.
#[derive(Default)]
pub(super) struct Attempt {
    found: FilterOutcome,
    /// Number of feasible nodes before extenders filtered them.
    feasible_before_extenders: usize,
    /// Whether only the nominated node was evaluated.
    only_nominated: bool,
    next_start_node_index: usize,
}

impl Attempt {
    /// Starts the attempt.
    pub(super) fn begin(cycle: &mut Cycle<'_>, state: &mut CycleState) -> (Self, Step) {
        let mut attempt = Self { next_start_node_index: cycle.start_node_index, ..Self::default() };
        let step = attempt.evaluate(cycle, state);
        (attempt, step)
    }

    /// Runs PreFilter, and then Filter on the nominated node or on all nodes.
    fn evaluate(&mut self, cycle: &mut Cycle<'_>, state: &mut CycleState) -> Step {
        if cycle.nodes().is_empty() {
            return self.end_without_node(cycle, None, Vec::new());
        }
        if let Err(rejected) = cycle.run_pre_filter_plugins(state) {
            return self.end_without_node(cycle, Some(rejected), Vec::new());
        }
        let nominated_node = &cycle.pod().pod.status.nominated_node_name;
        if nominated_node.is_empty() {
            return self.evaluate_all(cycle, state);
        }
        // Preemption freed resources on the nominated node, so it is likely to be feasible.
        self.only_nominated = true;
        self.found = cycle.evaluate_nominated_node(state, nominated_node);
        self.feasible_before_extenders = self.found.feasible.len();
        self.find_nodes_that_pass_extenders(cycle, state, 0)
    }

    /// Runs Filter on the nodes until enough are feasible, then the extenders.
    fn evaluate_all(&mut self, cycle: &mut Cycle<'_>, state: &mut CycleState) -> Step {
        self.only_nominated = false;
        self.found = cycle.find_nodes_that_pass_filters(state);
        self.next_start_node_index =
            (cycle.start_node_index + self.found.evaluated) % cycle.nodes().len();
        self.feasible_before_extenders = self.found.feasible.len();
        self.find_nodes_that_pass_extenders(cycle, state, 0)
    }

    /// Returns the call of the next filtering extender from index `from` on. After the last one, continues with the
    /// nodes that all extenders accept.
    ///
    /// Upstream: `findNodesThatPassExtenders`.
    fn find_nodes_that_pass_extenders(
        &mut self,
        cycle: &mut Cycle<'_>,
        state: &mut CycleState,
        from: usize,
    ) -> Step {
        let feasible = &self.found.feasible;
        if let Some(extender) = extenders::next_filtering_extender(cycle, feasible, from) {
            return Step::Filter { extender, nodes: extenders::node_names(cycle, feasible) };
        }
        self.found.reduced_by_extenders = feasible.len() < self.feasible_before_extenders;
        if self.only_nominated && feasible.is_empty() {
            return self.evaluate_all(cycle, state);
        }
        self.rank_feasible_nodes(cycle, state)
    }

    /// Continues with the response to [`Step::Filter`].
    pub(super) fn resume_after_filter(
        &mut self,
        cycle: &mut Cycle<'_>,
        state: &mut CycleState,
        extender: usize,
        response: Result<ExtenderFiltered, ExtenderError>,
    ) -> Step {
        match response {
            Ok(filtered) => extenders::apply_filter_result(cycle, &mut self.found, filtered),
            Err(_) if cycle.extenders[extender].is_ignorable() => {}
            Err(error) => extenders::reject_all_nodes(&mut self.found, error.as_ref()),
        }
        self.find_nodes_that_pass_extenders(cycle, state, extender + 1)
    }

    /// Selects the only feasible node, or scores several.
    fn rank_feasible_nodes(&mut self, cycle: &mut Cycle<'_>, state: &mut CycleState) -> Step {
        match self.found.feasible.as_slice() {
            [] => {
                let rejected = std::mem::take(&mut self.found.rejected);
                self.end_without_node(cycle, None, rejected)
            }
            [slot] => {
                let slot = *slot;
                self.select(cycle, slot)
            }
            feasible => {
                let extenders = extenders::prioritizing_extenders(cycle);
                if extenders.is_empty() {
                    return self.resume_after_prioritize(cycle, state, Vec::new());
                }
                Step::Prioritize { extenders, nodes: extenders::node_names(cycle, feasible) }
            }
        }
    }

    /// Adds the responses to [`Step::Prioritize`] to the scores of the plugins, and ends the attempt.
    pub(super) fn resume_after_prioritize(
        &mut self,
        cycle: &mut Cycle<'_>,
        state: &mut CycleState,
        responses: Vec<Result<ExtenderScores, ExtenderError>>,
    ) -> Step {
        let extender_scores = extenders::sum_scores(responses);
        match cycle.prioritize_and_select_host(state, &self.found.feasible, &extender_scores) {
            Ok(best) => self.select(cycle, best),
            Err(PluginRejection { plugin, status }) => {
                let overall = NodeStatus::without_node(plugin, status);
                self.end_without_node(cycle, Some(overall), Vec::new())
            }
        }
    }

    /// Selects this node and ends the attempt. If a plugin failed on another node, the attempt ends with that error.
    fn select(&mut self, cycle: &Cycle<'_>, slot: Slot) -> Step {
        let is_error = |rejected: &NodeStatus| rejected.status.code == Code::Error;
        if let Some(index) = self.found.rejected.iter().position(is_error) {
            let error = self.found.rejected.swap_remove(index);
            return self.end_without_node(cycle, Some(error), Vec::new());
        }
        let suggested_host = Arc::clone(cycle.nodes().at(slot).name());
        let feasible_nodes = self.found.feasible.len();
        self.final_step(Ok(ScheduleResult { suggested_host, feasible_nodes }))
    }

    /// Ends the attempt without a node.
    fn end_without_node(
        &self,
        cycle: &Cycle<'_>,
        overall: Option<NodeStatus>,
        rejected: Vec<NodeStatus>,
    ) -> Step {
        let reduced_by_extenders = overall.is_none() && self.found.reduced_by_extenders;
        let mut fit_error = cycle.fit_error(overall, rejected);
        fit_error.pre_filter_plugins.extend(reduced_by_extenders.then_some(PluginSet::EXTENDERS));
        self.final_step(Err(fit_error))
    }

    /// Returns the final step with the result of the attempt.
    fn final_step(&self, result: Result<ScheduleResult, super::FitError>) -> Step {
        Step::Done(Outcome {
            result,
            evaluated: self.found.evaluated,
            next_start_node_index: self.next_start_node_index,
        })
    }
}
