//! Decisions of the cloud node lifecycle controller.

use crate::change::{condition_status, node_patch, taints, target};
use evenkeel_api::views::{Node, Taint};
use evenkeel_runtime::plan::{Delete, EventRecord, OnError, Plan};
use serde_json::json;

/// Key of the taint for nodes whose instance is shut down.
pub(super) const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";
const NO_SCHEDULE: &str = "NoSchedule";

/// State of an instance, as the cloud provider reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstanceState {
    /// The instance exists and is not shut down.
    Running,
    /// The instance exists and is shut down.
    ShutDown,
    /// The instance does not exist.
    Gone,
}

/// Returns whether the node's instance must be checked. A ready node needs no check, because it must have an
/// instance.
pub(super) fn needs_instance_check(node: &Node) -> bool {
    condition_status(node, "Ready") != Some("True")
}

/// Returns whether a change of a node enqueues it.
pub(super) fn needs_sync(old: &Node, new: &Node) -> bool {
    needs_instance_check(old) != needs_instance_check(new)
        || !shutdown_taints(old).eq(shutdown_taints(new))
        || old.spec.provider_id != new.spec.provider_id
}

/// Plans to remove the taint of a node that is ready again.
pub(super) fn plan_ready(node: &Node) -> Plan {
    let mut plan = Plan::nothing();
    if shutdown_taints(node).next().is_some() {
        let other_taints = node.spec.taints.iter().filter(|taint| !is_shutdown(taint));
        plan.push(node_patch(node, json!({"spec": {"taints": taints(other_taints)}})));
    }
    plan
}

/// Plans to delete a node without an instance, or to taint a node whose instance is shut down. A node whose
/// instance runs is not changed.
///
/// Upstream: `MonitorNodes`.
pub(super) fn plan_not_ready(node: &Node, state: InstanceState) -> Plan {
    let mut plan = Plan::nothing();
    match state {
        InstanceState::Running => {}
        InstanceState::ShutDown if has_exact_taint(node) => {}
        InstanceState::ShutDown => {
            let taint = Taint {
                key: SHUTDOWN_TAINT.into(),
                effect: NO_SCHEDULE.into(),
                ..Taint::default()
            };
            let other_taints = node.spec.taints.iter().filter(|taint| !is_shutdown(taint));
            let all_taints = taints(other_taints.chain([&taint]));
            plan.push(node_patch(node, json!({"spec": {"taints": all_taints}})));
        }
        InstanceState::Gone => {
            let (regarding, name) = (target(node), &node.meta.name);
            let message =
                format!("Deleting node {name} because it does not exist in the cloud provider");
            plan.push(EventRecord::normal(regarding.clone(), "DeletingNode", message));
            let failure_message = format!("Failed deleting node {name}: {{error}}");
            plan.push(Delete {
                failed: Some(EventRecord::warning(
                    regarding.clone(),
                    "DeletingNodeFailed",
                    failure_message,
                )),
                on_error: OnError::Continue,
                ..Delete::new(regarding)
            });
        }
    }
    plan
}

/// Returns whether the node has the taint exactly as this controller writes it: `NoSchedule`, without a value.
fn has_exact_taint(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| is_shutdown(taint) && taint.value.is_empty())
}

/// Returns the taints with the key and the effect of this controller's, whatever their values.
fn shutdown_taints(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.taints.iter().filter(|taint| is_shutdown(taint))
}

fn is_shutdown(taint: &Taint) -> bool {
    &*taint.key == SHUTDOWN_TAINT && &*taint.effect == NO_SCHEDULE
}
