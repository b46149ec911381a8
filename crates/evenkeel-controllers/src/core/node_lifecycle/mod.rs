//! Keeps the taints of nodes in step with their conditions.
//!
//! Upstream: `pkg/controller/nodelifecycle` (the part of it that taints nodes by condition).

mod plan;

use evenkeel_api::{time::Timestamp, views::Node};
use evenkeel_runtime::{
    cache::Cache,
    controller::{Builder, Controller, Env},
    plan::{Key, Outcomes, Plan, Planner},
};
use std::sync::Arc;

/// Workers of upstream's controller; no flag changes them.
const WORKERS: usize = 8;

/// Builds the controller.
pub fn controller(env: &Env) -> Controller {
    let nodes = env.caches.of::<Node>();
    Builder::new(env, "node-lifecycle-controller", &nodes)
        .queue("node_lifecycle_controller")
        .component("node-controller")
        .workers(WORKERS)
        .planned(NodeTaints { nodes })
}

struct NodeTaints {
    nodes: Cache<Node>,
}

impl Planner for NodeTaints {
    type Seen = Arc<Node>;

    fn observe(&self, key: &Key) -> Option<Arc<Node>> {
        self.nodes.get("", &key.name)
    }

    fn plan(&self, node: &Arc<Node>, now: Timestamp) -> Plan {
        plan::plan(node, now)
    }

    fn status(&self, _: &Arc<Node>, _: &Outcomes, _: Timestamp) -> Plan {
        Plan::nothing()
    }
}
