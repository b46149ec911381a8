//! DefaultPreemption: makes a pod schedulable by evicting pods of lower priority.
//!
//! `plan` selects node and victims without side effects. `act` evicts the victims concurrently with other attempts, and
//! gates the preemptor until they are evicted.
//!
//! Upstream: `plugins/defaultpreemption`, `framework/preemption`.
//!
//! | documented | where |
//! |---|---|
//! | `preemptionPolicy: Never`; no preemption while victims of an earlier one terminate | `plan::ineligible_to_preempt_others` |
//! | candidate nodes: those where removing pods may help | `plan`, `plan::nodes_where_preemption_might_help` |
//! | `minCandidateNodesPercentage`, `minCandidateNodesAbsolute` | `Args`, `plan::num_candidates` |
//! | victims: pods of lower priority, as few and as unimportant as possible | `plan::select_victims_on_node`, `plan::more_important_pod` |
//! | PodDisruptionBudget is supported, but not guaranteed | `plan::filter_pods_with_pdb_violation` |
//! | choice between nodes: violated budgets, priorities, number of victims, start times | `plan::pick_one_node_for_preemption`, `plan::selection_key` |
//! | extenders (`preemptVerb`) | `call_extenders`, `convert_to_victims` |
//! | `status.nominatedNodeName` | `post_filter_result`, `act::Executor` |
//! | condition `DisruptionTarget` of the victims | `execute::condition` |

mod act;
mod execute;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use crate::{
    framework::{
        ActionType, Candidate, Change, ClusterEvent, CycleState, EventResource, Handle,
        MetaVictims, Plugin, PluginFuture, PostFilter, PostFilterPlan, PostFilterResult,
        PreEnqueue, QueueingHint, Status, StatusResult,
    },
    nodes::NodeRef,
    pod::PodInfo,
    schedule::{Cycle, FitError},
};
use act::Executor;
pub(crate) use plan::equally_good_candidates;

const NAME: &str = "DefaultPreemption";

/// Arguments of [`DefaultPreemption`].
///
/// Upstream: `DefaultPreemptionArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Minimum number of candidates, as a percentage of all nodes. Default: 10.
    pub min_candidate_nodes_percentage: usize,
    /// Minimum number of candidates. Default: 100.
    pub min_candidate_nodes_absolute: usize,
}

impl Default for Args {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

/// The DefaultPreemption plugin.
#[derive(Default)]
pub struct DefaultPreemption {
    args: Args,
    executor: OnceLock<Arc<Executor>>,
}

impl DefaultPreemption {
    /// Returns the plugin with these arguments.
    pub fn new(args: Args) -> Self {
        Self { args, executor: OnceLock::new() }
    }

    /// Lets the extenders filter the candidates of a plan, then evicts the victims of the best candidate.
    ///
    /// Upstream: `Evaluator.Preempt`.
    async fn preempt(&self, cycle: &mut Cycle<'_>, plan: PostFilterPlan) -> PostFilterResult {
        if plan.candidates.is_empty() {
            return plan.result;
        }
        let candidates = match call_extenders(cycle, plan.candidates).await {
            Ok(candidates) => candidates,
            Err(error) => {
                return PostFilterResult { done: true, ..post_filter_result(None, &error) };
            }
        };
        let Some(chosen) = plan::pick_one_node_for_preemption(&candidates) else {
            return post_filter_result(None, "no candidate node for preemption");
        };
        if let Some(executor) = self.executor.get() {
            let pod = cycle.pod();
            let nominated = cycle.nominator().nominated_pods_for_node(&chosen.node).iter();
            let lower = nominated.filter(|other| other.priority() < pod.priority());
            let lower = lower.map(|other| Arc::clone(&other.pod)).collect();
            executor.prepare_candidate_async(pod, chosen.clone(), lower);
        }
        placement(chosen)
    }
}

/// Builds the PostFilter result. A nominated node ends the PostFilter phase.
fn post_filter_result(nominated: Option<Arc<str>>, message: &str) -> PostFilterResult {
    PostFilterResult {
        done: nominated.as_ref().is_some_and(|node| !node.is_empty()),
        nominated,
        message: format!("preemption: {message}"),
    }
}

/// Builds the PostFilter result of a chosen candidate.
fn placement(Candidate { node, pods, .. }: &Candidate) -> PostFilterResult {
    let victims = pods.len();
    let message =
        format!("found a potential placement for pod on node {node}, preempting {victims} victims");
    post_filter_result(Some(Arc::clone(node)), &message)
}

/// Lets the extenders filter the candidates.
///
/// Upstream: `callExtenders`.
async fn call_extenders(
    cycle: &Cycle<'_>,
    mut candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>, String> {
    for extender in cycle.extenders() {
        if !extender.preempts() || !extender.is_interested(cycle.pod()) || candidates.is_empty() {
            continue;
        }
        let answer = extender.preempt(cycle.pod(), &candidates).await;
        let answer = answer.map_err(|error| error.to_string()).and_then(|victims| {
            victims
                .iter()
                .map(|candidate| convert_to_victims(cycle, extender.name(), candidate))
                .collect()
        });
        candidates = match answer {
            Ok(accepted) => accepted,
            Err(error) if extender.is_ignorable() => {
                tracing::info!(extender = extender.name(), error, "Extender left out");
                continue;
            }
            Err(error) => return Err(error),
        };
        if extender.is_ignorable() {
            candidates.retain(|candidate| !candidate.pods.is_empty());
        } else if let Some(none) = candidates.iter().find(|candidate| candidate.pods.is_empty()) {
            let node = &none.node;
            return Err(format!("expected at least one victim pod on node \"{node}\""));
        }
    }
    Ok(candidates)
}

/// Looks up the victims that an extender names.
///
/// Upstream: `convertToVictims`.
///
/// # Errors
/// If the scheduler does not know a node or pod that the extender names.
fn convert_to_victims(
    cycle: &Cycle<'_>,
    extender: &str,
    candidate: &MetaVictims,
) -> Result<Candidate, String> {
    let name = &candidate.node;
    let node = cycle.nodes().get(name);
    let node = node.ok_or_else(|| format!("nodeinfo not found for node name \"{name}\""))?;
    let find_victim = |uid: &str| {
        let found = NodeRef::pods(node).iter().find(|pod| pod.uid() == uid);
        found.map(|pod| Arc::clone(&pod.pod)).ok_or_else(|| {
            format!(
                "extender: {extender} claims to preempt pod (UID: &{{{uid}}}) on node: {name}, but the pod is not found on that node"
            )
        })
    };
    let pods = candidate.pods.iter().map(|uid| find_victim(uid)).collect::<Result<_, _>>()?;
    Ok(Candidate {
        node: Arc::clone(node.name()),
        pods,
        num_pdb_violations: candidate.num_pdb_violations,
    })
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn connect(&self, handle: &Handle) {
        self.executor.get_or_init(|| Arc::new(Executor::new(handle)));
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(EventResource::AssignedPod, &[ActionType::Delete])]
    }

    /// Leaves the decision to the other plugins that rejected the pod.
    fn queueing_hint(&self, _: &PodInfo, _: &Change) -> QueueingHint {
        QueueingHint::Skip
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        Some(self)
    }
}

impl PreEnqueue for DefaultPreemption {
    fn pre_enqueue(&self, pod: &PodInfo) -> StatusResult {
        if self.executor.get().is_some_and(|executor| executor.is_running_preemption(pod.uid())) {
            return Err(Status::unresolvable(
                "waiting for the preemption for this pod to be finished",
            ));
        }
        Ok(())
    }
}

impl PostFilter for DefaultPreemption {
    /// Finds the candidates for preemption, or the reason why there are none.
    ///
    /// Upstream: `findCandidates`, `DryRunPreemption`.
    fn plan(
        &self,
        cycle: &mut Cycle<'_>,
        state: &CycleState,
        fit_error: &FitError,
    ) -> PostFilterPlan {
        let without_candidates = |result| PostFilterPlan { result, candidates: Vec::new() };
        if let Some(why) = plan::ineligible_to_preempt_others(cycle, fit_error) {
            return without_candidates(post_filter_result(None, why));
        }
        let executor = self.executor.get();
        let budgets = executor.map(|executor| executor.budgets()).unwrap_or_default();
        match plan::find_candidates(cycle, state, fit_error, &budgets, &self.args) {
            Ok(candidates) => {
                let best = plan::pick_one_node_for_preemption(&candidates);
                PostFilterPlan { result: best.map(placement).unwrap_or_default(), candidates }
            }
            Err(not_helpful) => {
                let why = not_helpful.to_string();
                without_candidates(post_filter_result(Some("".into()), &why))
            }
        }
    }

    fn post_filter<'a>(
        &'a self,
        cycle: &'a mut Cycle<'_>,
        state: &'a CycleState,
        fit_error: &'a FitError,
    ) -> PluginFuture<'a, PostFilterResult> {
        if let Some(executor) = self.executor.get() {
            executor.record_attempt();
        }
        let plan = self.plan(cycle, state, fit_error);
        Box::pin(self.preempt(cycle, plan))
    }
}

impl std::fmt::Debug for DefaultPreemption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(NAME).field("args", &self.args).finish_non_exhaustive()
    }
}
