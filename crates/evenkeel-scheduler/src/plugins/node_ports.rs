//! NodePorts: two pods cannot have one port of a node.

use crate::{
    framework::{
        Action, Change, CycleState, Edit, Filter, Filtered, Hint, Interest, Plugin, PreFilter,
        PreFiltered, Rejection, Resource,
    },
    nodes::{NodeRef, NodeTable},
    pod::{HostPort, PodInfo},
};

/// Keeps pods with `hostPort` off nodes where the port is taken.
#[derive(Debug, Clone, Copy)]
pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn events(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::AssignedPod, &[Action::Delete]),
            Interest::new(Resource::Node, &[Action::Add]),
        ]
    }

    fn hint(&self, pod: &PodInfo, change: &Change) -> Hint {
        let Change::AssignedPod(Edit::Deleted(gone)) = change else { return Hint::Queue };
        let freed = |port: &HostPort| gone.asks.ports.iter().any(|freed| port.clashes(freed));
        Hint::when(pod.asks.ports.iter().any(freed))
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
    ) -> Result<PreFiltered, Rejection> {
        Ok(if pod.asks.ports.is_empty() { PreFiltered::Skip } else { PreFiltered::All })
    }
}

impl Filter for NodePorts {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> Filtered {
        let taken = |port| node.ports().iter().any(|taken| taken.clashes(port));
        if pod.asks.ports.iter().any(taken) {
            return Err(Rejection::unschedulable(
                "node(s) didn't have free ports for the requested pod ports",
            ));
        }
        Ok(())
    }
}
