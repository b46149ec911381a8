//! NodeName: a pod with `spec.nodeName` only runs on that node.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `spec.nodeName`: only that node is feasible | `pre_filter`, `filter` |
//! | a node with that name is added | `queueing_hint` |

use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, EventResource, Filter, Plugin, PreFilter,
        PreFilterResult, QueueingHint, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// The NodeName plugin.
#[derive(Debug, Clone, Copy)]
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(EventResource::Node, &[ActionType::Add])]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        let node = match change {
            Change::Node(edit) => edit.after(),
            _ => None,
        };
        QueueingHint::when(node.is_some_and(|node| node.meta.name == pod.pod.spec.node_name))
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for NodeName {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let node_name = &*pod.pod.spec.node_name;
        Ok(if node_name.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Only(vec![node_name.into()])
        })
    }
}

impl Filter for NodeName {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let node_name = &*pod.pod.spec.node_name;
        if node_name.is_empty() || node_name == &**node.name() {
            return Ok(());
        }
        Err(Status::unresolvable("node(s) didn't match the requested node name"))
    }
}
