//! Keeps the taints of nodes in step with their conditions.
//!
//! Upstream: `pkg/controller/nodelifecycle` (the part of it that taints nodes by condition).

mod plan;

use crate::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{time::Timestamp, views::Node};
use evenkeel_runtime::{
    cache::Cache,
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use std::sync::Arc;

/// Workers of upstream's controller; no flag changes them.
const WORKERS: usize = 8;

/// The controller of nodes' taints.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "node-lifecycle-controller",
    aliases: &["nodelifecycle"],
    queue: "node_lifecycle_controller",
    client: "node-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let nodes = context.env.caches.of::<Node>();
    let builder = context.builder(&DESCRIPTOR, &nodes).workers(WORKERS);
    context.run(builder.planned(NodeTaints { nodes }));
    Ok(())
}

struct NodeTaints {
    nodes: Cache<Node>,
}

impl Planner for NodeTaints {
    type Seen = Arc<Node>;

    fn observe(&self, key: &Key) -> Option<Arc<Node>> {
        self.nodes.get("", &key.name)
    }

    fn describe(&self, node: &Arc<Node>, _: Timestamp) -> Description {
        plan::describe(node)
    }

    fn plan(&self, node: &Arc<Node>, now: Timestamp) -> Plan {
        plan::plan(node, now)
    }
}
