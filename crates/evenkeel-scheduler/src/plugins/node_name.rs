//! NodeName: a pod that names its node runs there or nowhere.

use crate::{
    framework::{Action, Change, Filter, Filtered, Hint, Interest, Plugin, Rejection, Resource},
    nodes::NodeRef,
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

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl Filter for NodeName {
    fn filter(
        &self,
        _: &crate::framework::CycleState,
        pod: &PodInfo,
        node: NodeRef<'_>,
    ) -> Filtered {
        let wanted = &*pod.pod.spec.node_name;
        if wanted.is_empty() || wanted == &**node.name() {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) didn't match the requested node name"))
    }
}
