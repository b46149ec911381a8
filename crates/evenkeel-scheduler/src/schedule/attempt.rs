//! One attempt in steps. A step is either a request to extenders, whose response the caller passes to the next step, or
//! the outcome. An attempt without extenders consists of a single step.

use std::sync::Arc;

use super::{FilterOutcome, NodeStatus, Outcome, ScheduleResult, cycle::Cycle, extenders};
use crate::{
    framework::{Code, CycleState, ExtenderError, ExtenderFiltered, ExtenderScores},
    nodes::Slot,
    queue::PluginSet,
};

/// Next step of an attempt. Extenders are indexes into [`Cycle::extenders`].
pub(super) enum Step {
    /// Call the filter of an extender for these nodes.
    Filter { extender: usize, nodes: Vec<Arc<str>> },
    /// Call the prioritize verb of these extenders for these nodes.
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
    feasible_before: usize,
    /// Whether only the nominated node was evaluated.
    only_nominated: bool,
    next_start: usize,
}

impl Attempt {
    /// Starts the attempt.
    pub(super) fn begin(cycle: &mut Cycle<'_>, state: &mut CycleState) -> (Self, Step) {
        let mut attempt = Self { next_start: cycle.start, ..Self::default() };
        let step = attempt.evaluate(cycle, state);
        (attempt, step)
    }

    /// Runs PreFilter, and then Filter on the nominated node or on all nodes.
    fn evaluate(&mut self, cycle: &mut Cycle<'_>, state: &mut CycleState) -> Step {
        if cycle.nodes().is_empty() {
            return self.without_node(cycle, None, Vec::new());
        }
        if let Err(rejected) = cycle.run_pre_filter_plugins(state) {
            return self.without_node(cycle, Some(rejected), Vec::new());
        }
        let nominated_node = &cycle.pod().pod.status.nominated_node_name;
        if nominated_node.is_empty() {
            return self.evaluate_all(cycle, state);
        }
        // Preemption freed resources on the nominated node, so it is likely to be feasible.
        self.only_nominated = true;
        self.found = cycle.evaluate_nominated_node(state, nominated_node);
        self.feasible_before = self.found.feasible.len();
        self.find_nodes_that_pass_extenders(cycle, state, 0)
    }

    /// Runs Filter on the nodes until enough are feasible, then the extenders.
    fn evaluate_all(&mut self, cycle: &mut Cycle<'_>, state: &mut CycleState) -> Step {
        self.only_nominated = false;
        self.found = cycle.find_nodes_that_pass_filters(state);
        self.next_start = (cycle.start + self.found.evaluated) % cycle.nodes().len();
        self.feasible_before = self.found.feasible.len();
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
        self.found.reduced_by_extenders = feasible.len() < self.feasible_before;
        if self.only_nominated && feasible.is_empty() {
            return self.evaluate_all(cycle, state);
        }
        self.rank(cycle, state)
    }

    /// Continues with the response to [`Step::Filter`].
    pub(super) fn filtered(
        &mut self,
        cycle: &mut Cycle<'_>,
        state: &mut CycleState,
        extender: usize,
        answer: Result<ExtenderFiltered, ExtenderError>,
    ) -> Step {
        match answer {
            Ok(answer) => extenders::apply_filter_result(cycle, &mut self.found, answer),
            Err(_) if cycle.extenders[extender].is_ignorable() => {}
            Err(error) => extenders::reject_all_nodes(&mut self.found, error.as_ref()),
        }
        self.find_nodes_that_pass_extenders(cycle, state, extender + 1)
    }

    /// Selects the only feasible node, or continues with the scores of several.
    fn rank(&mut self, cycle: &mut Cycle<'_>, state: &mut CycleState) -> Step {
        match self.found.feasible.as_slice() {
            [] => {
                let rejected = std::mem::take(&mut self.found.rejected);
                self.without_node(cycle, None, rejected)
            }
            [only] => {
                let only = *only;
                self.select(cycle, only)
            }
            several => {
                let extenders = extenders::prioritizing_extenders(cycle);
                if extenders.is_empty() {
                    return self.prioritized(cycle, state, Vec::new());
                }
                Step::Prioritize { extenders, nodes: extenders::node_names(cycle, several) }
            }
        }
    }

    /// Continues with the responses to [`Step::Prioritize`].
    pub(super) fn prioritized(
        &mut self,
        cycle: &mut Cycle<'_>,
        state: &mut CycleState,
        answers: Vec<Result<ExtenderScores, ExtenderError>>,
    ) -> Step {
        let extender_scores = extenders::sum_scores(answers);
        match cycle.prioritize_and_select_host(state, &self.found.feasible, &extender_scores) {
            Ok(best) => self.select(cycle, best),
            Err((plugin, why)) => {
                self.without_node(cycle, Some(NodeStatus { slot: 0, plugin, why }), Vec::new())
            }
        }
    }

    /// Selects this node and ends the attempt. If a plugin failed on another node, the attempt ends with that error.
    fn select(&mut self, cycle: &Cycle<'_>, slot: Slot) -> Step {
        let failed =
            self.found.rejected.iter().position(|rejected| rejected.why.code == Code::Error);
        if let Some(failed) = failed {
            let failed = self.found.rejected.swap_remove(failed);
            return self.without_node(cycle, Some(failed), Vec::new());
        }
        let suggested_host = Arc::clone(cycle.nodes().at(slot).name());
        let feasible_nodes = self.found.feasible.len();
        self.done(Ok(ScheduleResult { suggested_host, feasible_nodes }))
    }

    /// Ends the attempt without a node.
    fn without_node(
        &self,
        cycle: &Cycle<'_>,
        overall: Option<NodeStatus>,
        rejected: Vec<NodeStatus>,
    ) -> Step {
        let reduced_by_extenders = overall.is_none() && self.found.reduced_by_extenders;
        let mut fit_error = cycle.fit_error(overall, rejected);
        fit_error.pre_filter_plugins.extend(reduced_by_extenders.then_some(PluginSet::EXTENDERS));
        self.done(Err(fit_error))
    }

    /// Returns the final step with the result of the attempt.
    fn done(&self, result: Result<ScheduleResult, super::FitError>) -> Step {
        let (evaluated, next_start) = (self.found.evaluated, self.next_start);
        Step::Done(Outcome { result, evaluated, next_start })
    }
}
