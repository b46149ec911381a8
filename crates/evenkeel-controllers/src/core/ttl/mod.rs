//! TTL controller: annotates nodes with the time for which kubelets may cache Secrets and ConfigMaps. The time depends
//! on the number of nodes. Upstream: `pkg/controller/ttl`.

mod plan;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{time::Timestamp, views::Node};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::{Key, Plan, Planner},
};
use plan::ClusterSize;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of workers. No flag changes it.
const WORKERS: usize = 5;

/// The TTL controller. Upstream: `newTTLControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "ttl-controller",
    aliases: &["ttl"],
    queue: "ttlcontroller",
    client: "ttl-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let nodes = context.env.caches.of::<Node>();
    let cluster_size = Arc::new(Mutex::new(ClusterSize::default()));
    let event_cluster_size = cluster_size.clone();
    let event_nodes = nodes.clone();
    let builder = context.builder_watching(&DESCRIPTOR, &nodes, move |event, enqueue| {
        let ttl_changed = {
            let mut cluster_size =
                event_cluster_size.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                CacheEvent::Added { .. } => cluster_size.add_node(),
                CacheEvent::Updated { .. } => false,
                CacheEvent::Deleted(_) => cluster_size.remove_node(),
            }
        };
        if ttl_changed {
            event_nodes.list().iter().for_each(|node| enqueue.add(Key::of(&node.meta)));
        } else if !matches!(event, CacheEvent::Deleted(_)) {
            enqueue.add(Key::of(&event.object().meta));
        }
    });
    context.run(builder.workers(WORKERS).planned(Nodes { nodes, cluster_size }));
    Ok(Started::Yes)
}

/// Decides the TTL annotation of a node.
struct Nodes {
    nodes: Cache<Node>,
    cluster_size: Arc<Mutex<ClusterSize>>,
}

impl Planner for Nodes {
    type Observed = (Arc<Node>, ClusterSize);
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<(Arc<Node>, ClusterSize)> {
        let cluster_size = *self.cluster_size.lock().unwrap_or_else(PoisonError::into_inner);
        Some((self.nodes.get("", &key.name)?, cluster_size))
    }

    fn plan(
        &self,
        (node, cluster_size): &(Arc<Node>, ClusterSize),
        (): &(),
        _: Timestamp,
    ) -> (Plan, ()) {
        (plan::plan(node, *cluster_size), ())
    }
}
