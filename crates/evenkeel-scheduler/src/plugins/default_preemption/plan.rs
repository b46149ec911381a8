//! Whom to evict, from which node. Pure: what is tried on the nodes is undone.

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
    schedule::{Cycle, Rejected, Unfit, mix},
};

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

/// Why the pod may not have others evicted, if it may not.
pub(super) fn ineligible(cycle: &Cycle<'_>, unfit: &Unfit) -> Option<&'static str> {
    let pod = cycle.pod();
    if &*pod.pod.spec.preemption_policy == "Never" {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = cycle.nodes().get(&pod.pod.status.nominated_node_name)?;
    if unfit.code(node.slot()) == Code::UnschedulableAndUnresolvable {
        // What was evicted for it there was in vain.
        return None;
    }
    let leaving = |other: &PodInfo| other.priority() < pod.priority() && is_leaving(&other.pod);
    let waits = node.pods().iter().any(leaving);
    waits.then_some("not eligible due to a terminating pod on the nominated node.")
}

fn is_leaving(pod: &Pod) -> bool {
    pod.meta.deleting() && was_told(pod)
}

/// Whether the pod says that it leaves for the sake of another.
fn was_told(pod: &Pod) -> bool {
    let mut conditions = pod.status.conditions.iter();
    let target = conditions.find(|condition| &*condition.type_ == "DisruptionTarget");
    target.is_some_and(|target| {
        &*target.status == "True" && &*target.reason == "PreemptionByScheduler"
    })
}

/// Nodes on which the pod would run with some others gone: those that break no budget first. Where there is none, what stands
/// in the way on each.
pub(super) fn candidates(
    cycle: &mut Cycle<'_>,
    state: &CycleState,
    unfit: &Unfit,
    budgets: &[Arc<PodDisruptionBudget>],
    args: &Args,
) -> Result<Vec<Candidate>, Box<Unfit>> {
    let potential = potential(cycle, unfit);
    let enough = enough(potential.len(), args);
    let offset = match potential.len() {
        0 => 0,
        n => (mix(cycle.seed()) % n as u64) as usize,
    };
    let (mut kept, mut broken, mut rejected) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..potential.len() {
        let slot = potential[(offset + n) % potential.len()];
        match victims_on(cycle, state, slot, budgets) {
            Ok(victims) if victims.num_pdb_violations == 0 => kept.push(victims),
            Ok(victims) => broken.push(victims),
            Err(why) => rejected.push(Rejected { slot, plugin: 0, why }),
        }
        if !kept.is_empty() && kept.len() + broken.len() >= enough {
            break;
        }
    }
    broken.truncate(enough);
    kept.extend(broken);
    if kept.is_empty() { Err(Box::new(helpless(unfit.n_nodes, rejected))) } else { Ok(kept) }
}

/// How many candidates are enough.
fn enough(n_nodes: usize, args: &Args) -> usize {
    let share = n_nodes * args.min_candidate_nodes_percentage / 100;
    share.max(args.min_candidate_nodes_absolute).min(n_nodes)
}

/// Nodes where removing pods may help.
fn potential(cycle: &Cycle<'_>, unfit: &Unfit) -> Vec<Slot> {
    let helps = |why: &Status| why.code == Code::Unschedulable;
    match &unfit.overall {
        Some(overall) if helps(&overall.why) => cycle.nodes().iter().map(NodeRef::slot).collect(),
        Some(_) => Vec::new(),
        None => {
            let rejected = unfit.rejected.iter().filter(|rejected| helps(&rejected.why));
            rejected.map(|rejected| rejected.slot).collect()
        }
    }
}

fn helpless(n_nodes: usize, mut rejected: Vec<Rejected>) -> Unfit {
    let absent = n_nodes - rejected.len().min(n_nodes);
    let why = Status::unresolvable(NOT_HELPFUL);
    rejected.extend((0..absent).map(|_| Rejected { slot: 0, plugin: 0, why: why.clone() }));
    Unfit { n_nodes, overall: None, rejected, only_by: Vec::new(), only_named: Vec::new() }
}

/// The pods that must leave a node: of those with lower priority all that cannot stay. Who would break a budget by leaving is
/// spared first, and then whoever is more important.
fn victims_on(
    cycle: &mut Cycle<'_>,
    state: &CycleState,
    slot: Slot,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<Candidate, Status> {
    let priority = cycle.pod().priority();
    let mut potential: Vec<PodInfo> = cycle.nodes().at(slot).pods().to_vec();
    potential.retain(|other| other.priority() < priority);
    if potential.is_empty() {
        return Err(Status::unresolvable(NO_VICTIMS));
    }
    let mut state = state.clone();
    for other in &potential {
        cycle.remove_pod(&mut state, other, slot);
    }
    if let Err(why) = cycle.fits(&state, slot) {
        potential.iter().for_each(|other| cycle.put_back(other, slot));
        return Err(why);
    }
    potential.sort_by(by_importance);
    let (breaking, free) = by_budgets(potential, budgets);
    let n_breaking = breaking.len();
    let (mut victims, mut num_pdb_violations) = (Vec::new(), 0);
    for (n, other) in breaking.into_iter().chain(free).enumerate() {
        cycle.add_pod(&mut state, &other, slot);
        if cycle.fits(&state, slot).is_err() {
            cycle.remove_pod(&mut state, &other, slot);
            num_pdb_violations += usize::from(n < n_breaking);
            victims.push(other);
        }
    }
    victims.iter().for_each(|other| cycle.put_back(other, slot));
    if victims.is_empty() {
        let name = cycle.nodes().at(slot).name();
        let reason = format!("expected at least one victim pod on node \"{name}\"");
        return Err(Status::unresolvable(reason));
    }
    victims.sort_by(by_importance);
    let node = Arc::clone(cycle.nodes().at(slot).name());
    let pods = victims.into_iter().map(|victim| victim.pod).collect();
    Ok(Candidate { node, pods, num_pdb_violations })
}

/// The most important first: by priority, then by how long it has run. Among equals who was told to leave is the first to go, so
/// that an eviction that was begun and not done does not cost another pod its place; beyond that, always the same one.
fn by_importance(one: &PodInfo, other: &PodInfo) -> Ordering {
    let key = |pod: &PodInfo| (Reverse(pod.priority()), started(&pod.pod), was_told(&pod.pod));
    key(one).cmp(&key(other)).then_with(|| one.uid().cmp(other.uid()))
}

/// Who has not started will have started last.
fn started(pod: &Pod) -> Timestamp {
    pod.status.start_time.unwrap_or(Timestamp::MAX)
}

/// Those whose leaving breaks a budget, and the others. What the budgets allow is used up in order of importance.
fn by_budgets(
    pods: Vec<PodInfo>,
    budgets: &[Arc<PodDisruptionBudget>],
) -> (Vec<PodInfo>, Vec<PodInfo>) {
    let mut allowed: Vec<i32> =
        budgets.iter().map(|budget| budget.status.disruptions_allowed).collect();
    let mut breaks = |pod: &PodInfo| {
        let meta = &pod.pod.meta;
        if meta.labels.is_empty() {
            return false;
        }
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let selector = &budget.spec.selector;
            if budget.meta.namespace != meta.namespace
                || selector.is_empty()
                || !selector.matches(&meta.labels)
                // It has been counted already.
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
    pods.into_iter().partition(|pod| breaks(pod))
}

/// The best of some candidates, the first among equals.
pub(super) fn choose(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(cost)
}

/// All candidates that are as good as the best.
pub(super) fn best(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let least = candidates.iter().map(cost).min();
    candidates.retain(|victims| Some(cost(victims)) == least);
    candidates
}

/// What some victims cost, as upstream compares: budgets broken, the highest priority, the sum of all, how many there are, how
/// long the highest have run; beyond that, where an eviction was begun and not done, it is gone on with.
fn cost(victims: &Candidate) -> impl Ord + use<> {
    let priorities = || victims.pods.iter().map(|pod| pod.spec.priority.unwrap_or(0));
    let highest = priorities().max().unwrap_or(i32::MIN);
    // All of them at least 0, so that a few with negative priority are not taken for fewer than one.
    let sum: i64 = priorities().map(|priority| i64::from(priority) + (1_i64 << 31)).sum();
    let first = victims.pods.first().and_then(|pod| pod.spec.priority).unwrap_or(0);
    let of_highest = victims.pods.iter().filter(|pod| pod.spec.priority.unwrap_or(0) == highest);
    let earliest = of_highest.map(|pod| started(pod)).min().unwrap_or(Timestamp::MAX);
    let untold = victims.pods.iter().filter(|pod| !was_told(pod)).count();
    (victims.num_pdb_violations, first, sum, victims.pods.len(), Reverse(earliest), untold)
}
