//! NodeUnschedulable: cordoned nodes take no new pods.

use evenkeel_api::{placement::tolerated, views::Taint};

use crate::{
    framework::{Change, CycleState, Filter, Filtered, Hint, Plugin, Rejection},
    nodes::NodeRef,
    pod::PodInfo,
};

/// Keeps pods off nodes with `spec.unschedulable`, unless they tolerate `node.kubernetes.io/unschedulable:NoSchedule`.
#[derive(Debug, Clone, Copy)]
pub struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn hint(&self, pod: &PodInfo, change: &Change<'_>) -> Hint {
        match change {
            Change::NodeAdded(node) | Change::NodeUpdated(node, _) => Hint::when(open(pod, *node)),
            Change::OwnUpdate => Hint::Queue,
            Change::PodAssigned(_) | Change::PodGone(_) | Change::Object(_) => Hint::Skip,
        }
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl Filter for NodeUnschedulable {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> Filtered {
        if open(pod, node) {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) were unschedulable"))
    }
}

fn open(pod: &PodInfo, node: NodeRef<'_>) -> bool {
    if !node.node().spec.unschedulable {
        return true;
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    tolerated(&pod.pod.spec.tolerations, &taint)
}
