//! NodePorts: rejects nodes where a host port of the pod is in use.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `hostPort`: `hostIP`, `hostPort` and `protocol` must be unique on a node | `filter`, `pod::conflicts_with` |
//! | `hostIP` empty or `0.0.0.0`: all addresses of the node; ports of containers and sidecars | `pod::conflicts_with`, `pod::host_ports` |
//! | a pod with such a port is deleted | `queueing_hint` |

use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, Delta, EventResource, Filter, Plugin,
        PreFilter, PreFilterResult, QueueingHint, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::{HostPort, PodInfo},
};

/// The NodePorts plugin.
#[derive(Debug, Clone, Copy)]
pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::AssignedPod, &[ActionType::Delete]),
            ClusterEvent::new(EventResource::Node, &[ActionType::Add]),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        let Change::AssignedPod(Delta::Deleted(deleted)) = change else {
            return QueueingHint::Queue;
        };
        let was_freed = |port: &HostPort| {
            deleted.requirements.ports.iter().any(|freed| port.conflicts_with(freed))
        };
        QueueingHint::when(pod.requirements.ports.iter().any(was_freed))
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for NodePorts {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        Ok(if pod.requirements.ports.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::All
        })
    }
}

impl Filter for NodePorts {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let is_in_use = |port| node.ports().iter().any(|in_use| in_use.conflicts_with(port));
        if pod.requirements.ports.iter().any(is_in_use) {
            return Err(Status::unschedulable(
                "node(s) didn't have free ports for the requested pod ports",
            ));
        }
        Ok(())
    }
}
