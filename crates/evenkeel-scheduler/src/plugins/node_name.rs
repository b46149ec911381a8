//! NodeName: a pod that names its node runs there or nowhere.

use crate::{
    framework::{Change, Filter, Filtered, Hint, Plugin, Rejection},
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

    fn hint(&self, pod: &PodInfo, change: &Change<'_>) -> Hint {
        Hint::when(
            matches!(change, Change::NodeAdded(node) if **node.name() == *pod.pod.spec.node_name),
        )
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
