//! DefaultPreemption: makes a pod schedulable by evicting pods of lower priority.
//!
//! `plan` selects the node and the victims without side effects. `act` evicts the victims concurrently with later
//! scheduling attempts, unless the feature gate `SchedulerAsyncPreemption` is off. Until they are evicted, the plugin's PreEnqueue rejects the preemptor. `victim` builds the
//! requests that evict a victim.
//!
//! Upstream: `plugins/defaultpreemption`, `framework/preemption`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `preemptionPolicy: Never`; no preemption while victims of the pod's earlier preemption terminate | `plan::ineligible_to_preempt_others` |
//! | candidate nodes: those where removing pods may help | `plan`, `plan::nodes_where_preemption_might_help` |
//! | `minCandidateNodesPercentage`, `minCandidateNodesAbsolute` | `Args`, `plan::num_candidates` |
//! | victims: pods of lower priority, as few and as unimportant as possible | `plan::select_victims_on_node`, `plan::more_important_pod` |
//! | PodDisruptionBudget is supported, but not guaranteed | `plan::filter_pods_with_pdb_violation` |
//! | choice between nodes: violated budgets, priorities, number of victims, start times | `plan::pick_one_node_for_preemption`, `plan::selection_key` |
//! | extenders (`preemptVerb`) | `call_extenders`, `convert_to_victims` |
//! | `status.nominatedNodeName` | `post_filter_result`, `act::Executor` |
//! | condition `DisruptionTarget` of the victims | `victim::disruption_target_patch` |

mod act;
mod plan;
#[cfg(test)]
mod tests;
mod victim;

use std::sync::{Arc, OnceLock};

use crate::{
    framework::{
        ActionType, Candidate, Change, ClusterEvent, CycleState, EventResource, Handle,
        MetaVictims, NominatingInfo, Plugin, PluginFuture, PostFilter, PostFilterPlan,
        PostFilterResult, PreEnqueue, QueueingHint, Status, StatusResult,
    },
    nodes::NodeRef,
    pod::PodInfo,
    schedule::{Cycle, FitError},
};
use act::Executor;
pub(crate) use plan::equally_good_candidates;

/// Name of the plugin.
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
    /// Feature gate `SchedulerAsyncPreemption`: evict victims while the scheduler continues with other pods. Default:
    /// true.
    pub async_preemption: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
            async_preemption: true,
        }
    }
}

/// The DefaultPreemption plugin.
#[derive(Default)]
pub struct DefaultPreemption {
    args: Args,
    /// Set by [`Plugin::connect`].
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
    async fn preempt(
        &self,
        cycle: &mut Cycle<'_>,
        PostFilterPlan { result, candidates }: PostFilterPlan,
    ) -> PostFilterResult {
        if candidates.is_empty() {
            return result;
        }
        let candidates = match call_extenders(cycle, candidates).await {
            Ok(candidates) => candidates,
            Err(error) => {
                let result = post_filter_result(NominatingInfo::Keep, &error);
                // An error of an extender ends the PostFilter phase.
                return PostFilterResult { done: true, ..result };
            }
        };
        let Some(best) = plan::pick_one_node_for_preemption(&candidates) else {
            return post_filter_result(NominatingInfo::Keep, "no candidate node for preemption");
        };
        if let Some(executor) = self.executor.get() {
            let pod = cycle.pod();
            let nominated_pods = cycle.nominator().nominated_pods_for_node(&best.node).iter();
            let lower_priority_pods = nominated_pods
                .filter(|other| other.priority() < pod.priority())
                .map(|other| Arc::clone(&other.pod))
                .collect();
            if self.args.async_preemption {
                executor.prepare_candidate_async(pod, best.clone(), lower_priority_pods);
            } else {
                let prepared = executor.prepare_candidate(pod, best.clone(), lower_priority_pods);
                if let Err(error) = prepared.await {
                    let result = post_filter_result(NominatingInfo::Keep, &error.to_string());
                    return PostFilterResult { done: true, ..result };
                }
            }
        }
        result_of_candidate(best)
    }
}

/// Builds the PostFilter result. A nominated node ends the PostFilter phase.
fn post_filter_result(nominating_info: NominatingInfo, message: &str) -> PostFilterResult {
    PostFilterResult {
        done: matches!(nominating_info, NominatingInfo::Node(_)),
        nominating_info,
        message: format!("preemption: {message}"),
    }
}

/// Builds the PostFilter result that nominates the node of a candidate.
fn result_of_candidate(Candidate { node, pods, .. }: &Candidate) -> PostFilterResult {
    let n_victims = pods.len();
    let message = format!(
        "found a potential placement for pod on node {node}, preempting {n_victims} victims"
    );
    post_filter_result(NominatingInfo::Node(Arc::clone(node)), &message)
}

/// Lets the extenders that support preemption filter the candidates, one after another.
///
/// Upstream: `callExtenders`.
async fn call_extenders(
    cycle: &Cycle<'_>,
    mut candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>, String> {
    for extender in cycle.extenders() {
        if !extender.supports_preemption()
            || !extender.is_interested(cycle.pod())
            || candidates.is_empty()
        {
            continue;
        }
        let response = extender.process_preemption(cycle.pod(), &candidates).await;
        let convert =
            |meta_victims: &MetaVictims| convert_to_victims(cycle, extender.name(), meta_victims);
        let accepted: Result<Vec<Candidate>, String> = match response {
            Ok(accepted) => accepted.iter().map(convert).collect(),
            Err(error) => Err(error.to_string()),
        };
        candidates = match accepted {
            Ok(accepted) => accepted,
            Err(error) if extender.is_ignorable() => {
                tracing::info!(extender = extender.name(), error, "Extender left out");
                continue;
            }
            Err(error) => return Err(error),
        };
        // A candidate without victims is an error of the extender.
        if extender.is_ignorable() {
            candidates.retain(|candidate| !candidate.pods.is_empty());
        } else if let Some(empty) = candidates.iter().find(|candidate| candidate.pods.is_empty()) {
            let node = &empty.node;
            return Err(format!("expected at least one victim pod on node \"{node}\""));
        }
    }
    Ok(candidates)
}

/// Looks up the node and the victims that an extender names.
///
/// Upstream: `convertToVictims`.
///
/// # Errors
/// Fails if the scheduler does not know a node or pod that the extender names.
fn convert_to_victims(
    cycle: &Cycle<'_>,
    extender: &str,
    meta_victims: &MetaVictims,
) -> Result<Candidate, String> {
    let name = &meta_victims.node;
    let Some(node) = cycle.nodes().get(name) else {
        return Err(format!("nodeinfo not found for node name \"{name}\""));
    };
    let find_victim = |uid: &str| match NodeRef::pods(node).iter().find(|pod| pod.uid() == uid) {
        Some(pod) => Ok(Arc::clone(&pod.pod)),
        // Upstream prints a pointer to a struct, as `&{UID}`.
        None => Err(format!(
            "extender: {extender} claims to preempt pod (UID: &{{{uid}}}) on node: {name}, but the pod is not found on that node"
        )),
    };
    let pods = meta_victims.pods.iter().map(|uid| find_victim(uid)).collect::<Result<_, _>>()?;
    Ok(Candidate {
        node: Arc::clone(node.name()),
        pods,
        num_pdb_violations: meta_victims.num_pdb_violations,
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

    /// Returns `Skip`, so that the other plugins that rejected the pod decide.
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
        if let Some(reason) = plan::ineligible_to_preempt_others(cycle, fit_error) {
            return without_candidates(post_filter_result(NominatingInfo::Keep, reason));
        }
        let executor = self.executor.get();
        let budgets = executor.map(|executor| executor.budgets()).unwrap_or_default();
        match plan::find_candidates(cycle, state, fit_error, &budgets, &self.args) {
            Ok(candidates) => {
                let best = plan::pick_one_node_for_preemption(&candidates);
                PostFilterPlan {
                    result: best.map(result_of_candidate).unwrap_or_default(),
                    candidates,
                }
            }
            Err(no_candidates) => {
                let message = no_candidates.to_string();
                without_candidates(post_filter_result(NominatingInfo::Clear, &message))
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
