//! NodeUnschedulable: cordoned nodes take no new pods.

use evenkeel_api::{
    placement,
    views::{Node, Taint},
};

use crate::{
    framework::{
        Action, Change, CycleState, Edit, Filter, Filtered, Hint, Interest, Plugin, PreFilter,
        PreFiltered, Rejection, Resource,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// Keeps pods off nodes with `spec.unschedulable`, unless they tolerate `node.kubernetes.io/unschedulable:NoSchedule`.
#[derive(Debug, Clone, Copy)]
pub struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn events(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::Node, &[Action::Add, Action::UpdateNodeTaint]),
            Interest::new(Resource::TargetPod, &[Action::UpdatePodToleration]),
        ]
    }

    fn hint(&self, pod: &PodInfo, change: &Change) -> Hint {
        match change {
            Change::Node(Edit::Updated { old, new }) => {
                Hint::when(!open(pod, old) && open(pod, new))
            }
            Change::Node(Edit::Added(node)) => Hint::when(open(pod, node)),
            Change::OwnUpdate { .. } => Hint::when(tolerated(pod)),
            _ => Hint::Queue,
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
    ) -> Result<PreFiltered, Rejection> {
        let idle = nodes.n_unschedulable() == 0 || tolerated(pod);
        Ok(if idle { PreFiltered::Skip } else { PreFiltered::All })
    }
}

impl Filter for NodeUnschedulable {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> Filtered {
        if open(pod, node.node()) {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) were unschedulable"))
    }
}

fn open(pod: &PodInfo, node: &Node) -> bool {
    !node.spec.unschedulable || tolerated(pod)
}

fn tolerated(pod: &PodInfo) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    placement::tolerated(&pod.pod.spec.tolerations, &taint)
}
