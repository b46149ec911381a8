//! NodeUnschedulable: rejects cordoned nodes.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `spec.unschedulable`, set by `kubectl cordon` and `kubectl drain` | `accepts`, `filter` |
//! | toleration of `node.kubernetes.io/unschedulable:NoSchedule`, as DaemonSet pods have | `tolerates_unschedulable` |
//! | `kubectl uncordon` | `queueing_hint` |

use evenkeel_api::views::{Node, Taint};
use evenkeel_component_helpers::scheduling::corev1::TolerationOperators;

use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, Delta, EventResource, Filter, Plugin,
        PreFilter, PreFilterResult, QueueingHint, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// The NodeUnschedulable plugin.
#[derive(Debug, Clone, Copy)]
pub struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::Node, &[ActionType::Add, ActionType::UpdateNodeTaint]),
            ClusterEvent::new(EventResource::TargetPod, &[ActionType::UpdatePodToleration]),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        match change {
            Change::Node(Delta::Updated { old, new }) => {
                QueueingHint::when(!accepts(pod, old) && accepts(pod, new))
            }
            Change::Node(Delta::Added(node)) => QueueingHint::when(accepts(pod, node)),
            Change::TargetPodUpdate { .. } => QueueingHint::when(tolerates_unschedulable(pod)),
            _ => QueueingHint::Queue,
        }
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for NodeUnschedulable {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let rejects_no_node = nodes.n_unschedulable() == 0 || tolerates_unschedulable(pod);
        Ok(if rejects_no_node { PreFilterResult::Skip } else { PreFilterResult::All })
    }
}

impl Filter for NodeUnschedulable {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        if accepts(pod, node.node()) {
            return Ok(());
        }
        Err(Status::unresolvable("node(s) were unschedulable"))
    }
}

/// Returns whether the node is not cordoned, or the pod tolerates cordoned nodes.
fn accepts(pod: &PodInfo, node: &Node) -> bool {
    !node.spec.unschedulable || tolerates_unschedulable(pod)
}

/// Returns whether the pod tolerates cordoned nodes.
fn tolerates_unschedulable(pod: &PodInfo) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    // The taint has no value, so that no comparison of numbers matches it.
    TolerationOperators::EqualAndExists.is_tolerated(&pod.pod.spec.tolerations, &taint)
}
