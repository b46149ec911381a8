//! Whether a node's machine is gone, or shut down.

use crate::change::{condition, of_node, taints, target};
use evenkeel_api::views::{Node, Taint};
use evenkeel_runtime::plan::{Delete, Note, OnError, Plan};
use serde_json::json;

/// Key of the taint of nodes whose machine is shut down.
pub(super) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const NO_SCHEDULE: &str = "NoSchedule";

/// What the cloud says of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// It is there.
    Running,
    /// It is there, but shut down.
    ShutDown,
    /// It is not there.
    Gone,
}

/// Whether the cloud is to be asked: a node that is ready has a machine.
pub(super) fn in_doubt(node: &Node) -> bool {
    condition(node, "Ready") != Some("True")
}

/// Whether a change of a node is a reason to look at it.
pub(super) fn concerns(old: &Node, new: &Node) -> bool {
    in_doubt(old) != in_doubt(new)
        || is_tainted(old) != is_tainted(new)
        || old.spec.provider_id != new.spec.provider_id
}

/// A node that is ready again loses the taint.
pub(super) fn ready(node: &Node) -> Plan {
    let mut plan = Plan::nothing();
    if is_tainted(node) {
        let kept = node.spec.taints.iter().filter(|taint| !is_shutdown(taint));
        plan.push(of_node(node, json!({"spec": {"taints": taints(kept)}})));
    }
    plan
}

/// A node without a machine is deleted, one whose machine is shut down tainted. One whose machine runs, ready or not, keeps
/// what it has.
pub(super) fn not_ready(node: &Node, machine: Machine) -> Plan {
    let mut plan = Plan::nothing();
    match machine {
        Machine::Running => {}
        Machine::ShutDown if is_tainted(node) => {}
        Machine::ShutDown => {
            let taint =
                Taint { key: SHUTDOWN.into(), effect: NO_SCHEDULE.into(), ..Taint::default() };
            let all = node.spec.taints.iter().filter(|taint| !is_shutdown(taint));
            let all = taints(all.chain([&taint]));
            plan.push(of_node(node, json!({"spec": {"taints": all}})));
        }
        Machine::Gone => {
            let (regarding, name) = (target(node), &node.meta.name);
            let message =
                format!("Deleting node {name} because it does not exist in the cloud provider");
            plan.push(Note::normal(regarding.clone(), "DeletingNode", message));
            let failed = format!("Failed deleting node {name}: {{error}}");
            plan.push(Delete {
                failed: Some(Note::warning(regarding.clone(), "DeletingNodeFailed", failed)),
                on_error: OnError::Continue,
                ..Delete::new(regarding)
            });
        }
    }
    plan
}

/// The taint as this controller writes it, with that value and effect.
fn is_tainted(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| is_shutdown(taint) && taint.value.is_empty())
}

fn is_shutdown(taint: &Taint) -> bool {
    &*taint.key == SHUTDOWN && &*taint.effect == NO_SCHEDULE
}
