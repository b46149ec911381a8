//! NodeResourcesFit: no node is given more than it has; among those with room, the emptiest is best (LeastAllocated).

use smallvec::SmallVec;

use crate::{
    framework::{
        Action, Change, CycleState, Filter, Filtered, Hint, Interest, MAX_NODE_SCORE, Plugin,
        Reason, Rejection, Resource, Score, Severity,
    },
    nodes::NodeRef,
    pod::PodInfo,
    resources::Resources,
};
use evenkeel_api::views::Node;

/// Counts CPU, memory, local storage, extended resources and pods.
#[derive(Debug, Clone, Copy)]
pub struct NodeResourcesFit;

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn events(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::AssignedPod, &[Action::Delete, Action::UpdatePodScaleDown]),
            Interest::new(Resource::TargetPod, &[Action::UpdatePodScaleDown]),
            Interest::new(Resource::Node, &[Action::Add, Action::UpdateNodeAllocatable]),
        ]
    }

    fn hint(&self, pod: &PodInfo, change: &Change) -> Hint {
        match change {
            Change::Node(edit) => {
                Hint::when(edit.now().is_some_and(|node| fits_when_empty(pod, node)))
            }
            _ => Hint::Queue,
        }
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl Filter for NodeResourcesFit {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> Filtered {
        let asks = &pod.asks.requests;
        let mut short = Short::default();
        if node.pods().len() + 1 > node.pods_allowed() {
            short.reasons.push(Reason::Borrowed("Too many pods"));
        }
        short.check("Insufficient cpu", asks.cpu, node.requested_cpu(), node.cpu());
        short.check("Insufficient memory", asks.memory, node.requested_memory(), node.memory());
        let storage = (node.requested_ephemeral_storage(), node.ephemeral_storage());
        short.check("Insufficient ephemeral-storage", asks.ephemeral_storage, storage.0, storage.1);
        for (name, amount) in &asks.scalars {
            let (used, most) = (node.requested_scalar(name), node.scalar(name));
            if *amount > 0 && *amount > most - used {
                short.unresolvable |= *amount > most;
                short.reasons.push(Reason::Owned(format!("Insufficient {name}")));
            }
        }
        short.verdict()
    }
}

/// What a node is short of.
#[derive(Default)]
struct Short {
    reasons: SmallVec<[Reason; 1]>,
    /// Even an empty node would be.
    unresolvable: bool,
}

impl Short {
    fn check(&mut self, reason: &'static str, asked: i64, used: i64, most: i64) {
        if asked > 0 && asked > most - used {
            self.unresolvable |= asked > most;
            self.reasons.push(Reason::Borrowed(reason));
        }
    }

    fn verdict(self) -> Filtered {
        if self.reasons.is_empty() {
            return Ok(());
        }
        let severity =
            if self.unresolvable { Severity::Unresolvable } else { Severity::Unschedulable };
        Err(Rejection { reasons: self.reasons, severity })
    }
}

fn fits_when_empty(pod: &PodInfo, node: &Node) -> bool {
    let asks = &pod.asks.requests;
    let mut has = Resources::default();
    for (name, amount) in node.status.allocatable.iter() {
        has.set(name, *amount);
    }
    node.status.allocatable.get("pods").is_some_and(|pods| pods.value() > 0)
        && asks.cpu <= has.cpu
        && asks.memory <= has.memory
        && asks.ephemeral_storage <= has.ephemeral_storage
        && asks.scalars.iter().all(|(name, amount)| *amount <= has.scalar(name))
}

impl Score for NodeResourcesFit {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> i64 {
        let (used_cpu, used_memory) = node.scored();
        let (cpu, memory) = pod.asks.scored;
        let shares = [
            least_allocated(used_cpu + cpu, node.cpu()),
            least_allocated(used_memory + memory, node.memory()),
        ];
        let counted = shares.iter().flatten();
        let n = counted.clone().count() as i64;
        if n == 0 { 0 } else { counted.sum::<i64>() / n }
    }
}

/// The free share in hundredths; `None` where the node has none of the resource.
fn least_allocated(requested: i64, capacity: i64) -> Option<i64> {
    if capacity == 0 {
        return None;
    }
    if requested > capacity {
        return Some(0);
    }
    // i128: a petabyte times 100 is no problem, but nothing promises that it stays there.
    let share =
        i128::from(capacity - requested) * i128::from(MAX_NODE_SCORE) / i128::from(capacity);
    Some(share as i64)
}
