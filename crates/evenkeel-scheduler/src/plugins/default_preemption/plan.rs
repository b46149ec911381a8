//! Selection of the victims of a preemption, without side effects: it restores the pods that it removes from nodes.

use evenkeel_api::{
    time::Timestamp,
    views::{Pod, PodDisruptionBudget},
};
use std::{
    cmp::{Ordering, Reverse},
    sync::Arc,
};

use super::Args;
use crate::{
    framework::{Candidate, Code, CycleState, Status},
    nodes::{NodeRef, Slot},
    pod::PodInfo,
    schedule::{Cycle, FitError, NodeStatus, mix},
};

/// Status of a node without pods of lower priority.
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
/// Status of a node where removing pods cannot help.
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

/// Returns the reason why the pod must not preempt others, or `None` if it may.
///
/// Upstream: `PodEligibleToPreemptOthers`.
pub(super) fn ineligible_to_preempt_others(
    cycle: &Cycle<'_>,
    fit_error: &FitError,
) -> Option<&'static str> {
    let pod = cycle.pod();
    if &*pod.pod.spec.preemption_policy == "Never" {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = cycle.nodes().get(&pod.pod.status.nominated_node_name)?;
    if fit_error.code_of(node.slot()) == Code::UnschedulableAndUnresolvable {
        // The earlier preemption on this node did not make the pod schedulable.
        return None;
    }
    let is_terminating_victim = |other: &PodInfo| {
        other.priority() < pod.priority() && is_terminating_by_preemption(&other.pod)
    };
    let waits_for_victims = node.pods().iter().any(is_terminating_victim);
    waits_for_victims.then_some("not eligible due to a terminating pod on the nominated node.")
}

/// Returns whether the pod is terminating because of a preemption.
///
/// Upstream: `PodTerminatingByPreemption`.
fn is_terminating_by_preemption(pod: &Pod) -> bool {
    pod.meta.deleting() && has_preemption_disruption_target(pod)
}

/// Returns whether an earlier preemption marked the pod as a victim.
fn has_preemption_disruption_target(pod: &Pod) -> bool {
    let mut conditions = pod.status.conditions.iter();
    let target = conditions.find(|condition| &*condition.type_ == "DisruptionTarget");
    target.is_some_and(|target| {
        &*target.status == "True" && &*target.reason == "PreemptionByScheduler"
    })
}

/// Dry-runs preemption on nodes until there are enough candidates. Returns the candidates without PDB violations first.
///
/// # Errors
///
/// Returns the status of each node if there are no candidates.
///
/// Upstream: `findCandidates`, `DryRunPreemption`.
pub(super) fn find_candidates(
    cycle: &mut Cycle<'_>,
    state: &CycleState,
    fit_error: &FitError,
    budgets: &[Arc<PodDisruptionBudget>],
    args: &Args,
) -> Result<Vec<Candidate>, Box<FitError>> {
    let potential_nodes = nodes_where_preemption_might_help(cycle, fit_error);
    let num_candidates = num_candidates(potential_nodes.len(), args);
    // The nodes are tried in turn from a pseudo-random one.
    let offset = match potential_nodes.len() {
        0 => 0,
        len => (mix(cycle.seed()) % len as u64) as usize,
    };
    let mut non_violating = Vec::new();
    let mut violating = Vec::new();
    let mut rejected = Vec::new();
    for index in 0..potential_nodes.len() {
        let slot = potential_nodes[(offset + index) % potential_nodes.len()];
        match select_victims_on_node(cycle, state, slot, budgets) {
            Ok(candidate) if candidate.num_pdb_violations == 0 => non_violating.push(candidate),
            Ok(candidate) => violating.push(candidate),
            // No plugin is known here, and the message does not need one.
            Err(status) => rejected.push(NodeStatus { slot, plugin: 0, status }),
        }
        if !non_violating.is_empty() && non_violating.len() + violating.len() >= num_candidates {
            break;
        }
    }
    violating.truncate(num_candidates);
    non_violating.extend(violating);
    if non_violating.is_empty() {
        Err(Box::new(no_candidates_error(fit_error.n_nodes, rejected)))
    } else {
        Ok(non_violating)
    }
}

/// Returns the number of candidates to find among this number of nodes.
///
/// Upstream: `calculateNumCandidates`.
fn num_candidates(n_nodes: usize, args: &Args) -> usize {
    let by_percentage = n_nodes * args.min_candidate_nodes_percentage / 100;
    by_percentage.max(args.min_candidate_nodes_absolute).min(n_nodes)
}

/// Returns the nodes where removing pods may help.
///
/// Upstream: `findCandidates`.
fn nodes_where_preemption_might_help(cycle: &Cycle<'_>, fit_error: &FitError) -> Vec<Slot> {
    let might_help = |status: &Status| status.code == Code::Unschedulable;
    match &fit_error.overall {
        // One status rejected all nodes.
        Some(overall) if might_help(&overall.status) => {
            cycle.nodes().iter().map(NodeRef::slot).collect()
        }
        Some(_) => Vec::new(),
        None => {
            let rejected = fit_error.rejected.iter();
            let candidates = rejected.filter(|rejected| might_help(&rejected.status));
            candidates.map(|candidate| candidate.slot).collect()
        }
    }
}

/// Returns the error for a preemption without candidates. Nodes without a status in `rejected` get "not helpful".
fn no_candidates_error(n_nodes: usize, mut rejected: Vec<NodeStatus>) -> FitError {
    let without_status = n_nodes.saturating_sub(rejected.len());
    let not_helpful = NodeStatus::without_node(0, Status::unresolvable(NOT_HELPFUL));
    rejected.extend(std::iter::repeat_n(not_helpful, without_status));
    FitError {
        n_nodes,
        overall: None,
        rejected,
        pre_filter_plugins: Vec::new(),
        pre_filter_plugin_names: Vec::new(),
    }
}

/// Selects the victims on a node: removes all pods of lower priority, then reprieves as many as fit. It first reprieves
/// pods whose eviction violates a PDB, then the others, more important pods first.
///
/// Upstream: `SelectVictimsOnNode`.
fn select_victims_on_node(
    cycle: &mut Cycle<'_>,
    state: &CycleState,
    slot: Slot,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<Candidate, Status> {
    let priority = cycle.pod().priority();
    let mut potential_victims: Vec<PodInfo> = cycle.nodes().at(slot).pods().to_vec();
    potential_victims.retain(|other| other.priority() < priority);
    if potential_victims.is_empty() {
        return Err(Status::unresolvable(NO_VICTIMS));
    }
    let mut state = state.clone();
    for other in &potential_victims {
        cycle.remove_pod(&mut state, other, slot);
    }
    if let Err(status) = cycle.check_fit(&state, slot) {
        potential_victims.iter().for_each(|other| cycle.restore_pod(other, slot));
        return Err(status);
    }
    potential_victims.sort_by(more_important_pod);
    let PodsByPdbViolation { violating, non_violating } =
        filter_pods_with_pdb_violation(potential_victims, budgets);
    let violating_count = violating.len();
    let mut victims = Vec::new();
    let mut num_pdb_violations = 0;
    for (index, other) in violating.into_iter().chain(non_violating).enumerate() {
        // Reprieve the pod. If the preemptor then no longer fits, the pod is a victim after all.
        cycle.add_pod(&mut state, &other, slot);
        if cycle.check_fit(&state, slot).is_err() {
            cycle.remove_pod(&mut state, &other, slot);
            num_pdb_violations += usize::from(index < violating_count);
            victims.push(other);
        }
    }
    victims.iter().for_each(|other| cycle.restore_pod(other, slot));
    if victims.is_empty() {
        let name = cycle.nodes().at(slot).name();
        // All pods were reprieved: the preemptor fits without an eviction.
        let reason = format!("expected at least one victim pod on node \"{name}\"");
        return Err(Status::unresolvable(reason));
    }
    victims.sort_by(more_important_pod);
    let node = Arc::clone(cycle.nodes().at(slot).name());
    let pods = victims.into_iter().map(|victim| victim.pod).collect();
    Ok(Candidate { node, pods, num_pdb_violations })
}

/// Orders pods by importance: higher priority first, then earlier start. Among equals, victims of an earlier preemption
/// are less important, so that no other pod is preempted instead. Equal pods are ordered by uid.
///
/// Upstream: `MoreImportantPod`.
fn more_important_pod(a: &PodInfo, b: &PodInfo) -> Ordering {
    let key = |pod: &PodInfo| {
        (
            Reverse(pod.priority()),
            pod_start_time(&pod.pod),
            has_preemption_disruption_target(&pod.pod),
        )
    };
    key(a).cmp(&key(b)).then_with(|| a.uid().cmp(b.uid()))
}

/// Returns the pod's start time. A pod that has not started counts as the latest.
///
/// Upstream: `GetPodStartTime`.
fn pod_start_time(pod: &Pod) -> Timestamp {
    pod.status.start_time.unwrap_or(Timestamp::MAX)
}

/// Pods whose eviction violates a PDB, and the others.
struct PodsByPdbViolation {
    violating: Vec<PodInfo>,
    non_violating: Vec<PodInfo>,
}

/// Splits pods into those whose eviction violates a PDB and the others. The pods use up the allowed disruptions in
/// order of importance.
///
/// Upstream: `FilterVictimsWithPDBViolation`.
fn filter_pods_with_pdb_violation(
    pods: Vec<PodInfo>,
    budgets: &[Arc<PodDisruptionBudget>],
) -> PodsByPdbViolation {
    let mut allowed_disruptions: Vec<i32> =
        budgets.iter().map(|budget| budget.status.disruptions_allowed).collect();
    let mut violates = |pod: &PodInfo| {
        let meta = &pod.pod.meta;
        // As upstream, no budget covers a pod without labels.
        if meta.labels.is_empty() {
            return false;
        }
        for (budget, allowed) in budgets.iter().zip(&mut allowed_disruptions) {
            let selector = &budget.spec.selector;
            if budget.meta.namespace != meta.namespace
                || selector.is_empty()
                || !selector.matches(&meta.labels)
                // The budget has already counted this disruption.
                || budget.status.disrupted_pods.get(&meta.name).is_some()
            {
                continue;
            }
            *allowed -= 1;
            if *allowed < 0 {
                return true;
            }
        }
        false
    };
    let (violating, non_violating) = pods.into_iter().partition(|pod| violates(pod));
    PodsByPdbViolation { violating, non_violating }
}

/// Returns the best candidate, or the first of several equally good ones.
///
/// Upstream: `pickOneNodeForPreemption`.
pub(super) fn pick_one_node_for_preemption(candidates: &[Candidate]) -> Option<&Candidate> {
    candidates.iter().min_by_key(|candidate| selection_key(candidate))
}

/// Returns all candidates that are as good as the best one.
pub(crate) fn equally_good_candidates(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let best_key = candidates.iter().map(selection_key).min();
    candidates.retain(|candidate| Some(selection_key(candidate)) == best_key);
    candidates
}

/// Returns the key that orders candidates. The lowest is the best. Each criterion decides only between candidates that
/// are equal in all criteria before it:
///
/// 1. fewer victims whose eviction violates a PodDisruptionBudget;
/// 2. lower priority of the first victim, which is the most important one unless an extender changed the order;
/// 3. lower sum of the victims' priorities;
/// 4. fewer victims;
/// 5. later start of the longest-running victim of the highest priority;
/// 6. fewer victims without the condition `DisruptionTarget` of an earlier preemption.
///
/// Upstream: the score functions of `pickOneNodeForPreemption`.
fn selection_key(candidate: &Candidate) -> impl Ord + use<> {
    let victims = &candidate.pods;
    let priorities = || victims.iter().map(|pod| pod.spec.priority.unwrap_or(0));
    // As upstream, criterion 2 reads the first victim, and criterion 5 the highest priority. They differ if an extender
    // returned the victims in another order.
    let max_priority = priorities().max().unwrap_or(i32::MIN);
    // Each priority is shifted to be non-negative. Otherwise more victims with negative priorities would have a lower
    // sum.
    let priority_sum: i64 = priorities().map(|priority| i64::from(priority) + (1_i64 << 31)).sum();
    let first_priority = victims.first().and_then(|pod| pod.spec.priority).unwrap_or(0);
    let most_important =
        victims.iter().filter(|pod| pod.spec.priority.unwrap_or(0) == max_priority);
    let earliest_start =
        most_important.map(|pod| pod_start_time(pod)).min().unwrap_or(Timestamp::MAX);
    let new_victims = victims.iter().filter(|pod| !has_preemption_disruption_target(pod)).count();
    (
        candidate.num_pdb_violations,
        first_priority,
        priority_sum,
        victims.len(),
        Reverse(earliest_start),
        new_victims,
    )
}
