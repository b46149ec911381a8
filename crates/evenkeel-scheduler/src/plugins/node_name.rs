//! NodeName: a pod that names its node runs there or nowhere.

use crate::{
    framework::{
        Action, Change, CycleState, Filter, Filtered, Hint, Interest, Plugin, PreFilter,
        PreFiltered, Rejection, Resource,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// Keeps a pod to the node in its `spec.nodeName`.
#[derive(Debug, Clone, Copy)]
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn events(&self) -> Vec<Interest> {
        vec![Interest::new(Resource::Node, &[Action::Add])]
    }

    fn hint(&self, pod: &PodInfo, change: &Change) -> Hint {
        let node = match change {
            Change::Node(edit) => edit.now(),
            _ => None,
        };
        Hint::when(node.is_some_and(|node| node.meta.name == pod.pod.spec.node_name))
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
    ) -> Result<PreFiltered, Rejection> {
        let wanted = &*pod.pod.spec.node_name;
        Ok(if wanted.is_empty() {
            PreFiltered::Skip
        } else {
            PreFiltered::Only(vec![wanted.into()])
        })
    }
}

impl Filter for NodeName {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> Filtered {
        let wanted = &*pod.pod.spec.node_name;
        if wanted.is_empty() || wanted == &**node.name() {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) didn't match the requested node name"))
    }
}
