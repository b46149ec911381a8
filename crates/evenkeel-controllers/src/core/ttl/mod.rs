//! TTL controller: annotates nodes with the time for which kubelets may cache Secrets and ConfigMaps, by cluster size.
//! Upstream: `pkg/controller/ttl`.

mod plan;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{time::Timestamp, views::Node};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::{Key, Plan, Planner},
};
use plan::Size;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of workers; no flag changes it.
const WORKERS: usize = 5;

/// The TTL controller. Upstream: `newTTLControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "ttl-controller",
    aliases: &["ttl"],
    queue: "ttlcontroller",
    client: "ttl-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let nodes = context.env.caches.of::<Node>();
    let size = Arc::new(Mutex::new(Size::default()));
    let (counted, all) = (size.clone(), nodes.clone());
    let builder = context.builder_watching(&DESCRIPTOR, &nodes, move |event, enqueue| {
        let changed = {
            let mut size = counted.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                CacheEvent::Added { .. } => size.grow(),
                CacheEvent::Updated { .. } => false,
                CacheEvent::Deleted(_) => size.shrink(),
            }
        };
        if changed {
            all.list().iter().for_each(|node| enqueue.add(Key::of(&node.meta)));
        } else if !matches!(event, CacheEvent::Deleted(_)) {
            enqueue.add(Key::of(&event.object().meta));
        }
    });
    context.run(builder.workers(WORKERS).planned(Nodes { nodes, size }));
    Ok(())
}

struct Nodes {
    nodes: Cache<Node>,
    size: Arc<Mutex<Size>>,
}

impl Planner for Nodes {
    type Observed = (Arc<Node>, Size);
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<(Arc<Node>, Size)> {
        let size = *self.size.lock().unwrap_or_else(PoisonError::into_inner);
        Some((self.nodes.get("", &key.name)?, size))
    }

    fn plan(&self, (node, size): &(Arc<Node>, Size), (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(node, *size), ())
    }
}
