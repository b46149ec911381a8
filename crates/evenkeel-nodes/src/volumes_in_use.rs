//! Reports the attached volumes that pods of a node use (`status.volumesInUse`), so that the attach-detach
//! controller does not detach them.

use evenkeel_api::{
    Text, View,
    views::{Node, Pod},
};
use evenkeel_component_helpers::{scheduling::corev1, storage::claims};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Caches, Index},
    client::{ApiError, Client, Metadata},
    plan::PatchType,
    queue::{Priority, Queue},
    tasks::Tasks,
};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};

use crate::{NodeFaults, NodesOptions, faults, volumes::Volumes};

/// Reporter for all nodes of the process.
struct VolumesInUse {
    client: Client,
    nodes: Cache<Node>,
    by_node: Index<Pod>,
    volumes: Volumes,
    faults: NodeFaults,
    /// Queue of node names.
    queue: Queue<Text>,
}

/// Starts the task that keeps each node's `status.volumesInUse` up to date.
pub(crate) fn start(
    client: &Client,
    caches: &Caches,
    options: &NodesOptions,
    faults: &NodeFaults,
    tasks: &Tasks,
) {
    let pods = caches.of::<Pod>();
    let reporter = Arc::new(VolumesInUse {
        client: client.clone(),
        nodes: caches.of(),
        by_node: pods.index("node", corev1::node_key),
        volumes: Volumes::new(caches, &pods),
        faults: faults.clone(),
        queue: Queue::unnamed(client.clock()),
    });
    let names: BTreeSet<Text> =
        options.nodes.iter().map(|node| node.name.as_str().into()).collect();
    let (queue, node_names, all_names) = (reporter.queue.clone(), names.clone(), names.clone());
    let add = move |pod: &Pod| {
        if node_names.contains(&pod.spec.node_name) && claims::of_pod(pod).next().is_some() {
            queue.add(pod.spec.node_name.clone(), Priority::NORMAL);
        }
    };
    let on_pod = add.clone();
    pods.subscribe(move |event| {
        let is_irrelevant = matches!(event, CacheEvent::Updated { old, new }
            if is_terminal(old) == is_terminal(new) && old.spec.node_name == new.spec.node_name);
        if !is_irrelevant {
            on_pod(event.object());
        }
    });
    reporter.volumes.subscribe(add);
    let (resumed_queue, clock) = (reporter.queue.clone(), client.clock().clone());
    reporter.nodes.subscribe(move |event| {
        if let Some(node) = faults::resumed_node(event, clock.now())
            && names.contains(&node.meta.name)
        {
            resumed_queue.add(node.meta.name.clone(), Priority::NORMAL);
        }
    });
    let changed_queue = reporter.queue.clone();
    faults.subscribe(move || {
        for name in &all_names {
            changed_queue.add(name.clone(), Priority::LOW);
        }
    });
    tasks.spawn_restarting_until_cancelled("volumes in use", move || {
        let reporter = Arc::clone(&reporter);
        async move { reporter.work().await }
    });
}

/// Returns whether a pod has ended.
fn is_terminal(pod: &Pod) -> bool {
    matches!(&*pod.status.phase, "Succeeded" | "Failed")
}

/// Returns the patch of the node's status; `None` if the status lists the used volumes already, or the node is
/// partitioned.
fn status_patch(node: &Node, used: &BTreeSet<String>, is_partitioned: bool) -> Option<String> {
    let reported = &node.status.volumes_in_use;
    let is_current =
        reported.len() == used.len() && reported.iter().all(|name| used.contains(&**name));
    if is_current || is_partitioned {
        return None;
    }
    Some(json!({"status": {"volumesInUse": used}}).to_string())
}

impl VolumesInUse {
    /// Syncs nodes until the queue is shut down.
    async fn work(&self) {
        while let Some(node) = self.queue.next().await {
            let work = async {
                match self.sync_node(&node).await {
                    Ok(()) => self.queue.forget(&node),
                    Err(error) => {
                        tracing::debug!(%node, %error, "Volumes in use not reported");
                        self.queue.add_rate_limited(node.clone());
                    }
                }
            };
            self.queue.process(&node, work).await;
        }
    }

    /// Reports the volumes in use of one node.
    async fn sync_node(&self, name: &str) -> Result<(), ApiError> {
        let Some(node) = self.nodes.get("", name) else { return Ok(()) };
        let pods = self.by_node.get(name);
        let used: BTreeSet<String> = pods
            .iter()
            .filter(|pod| !is_terminal(pod))
            .flat_map(|pod| self.volumes.attachable_volumes(pod))
            .collect();
        let now = self.client.clock().now();
        let partition = self.faults.partition(&node, now);
        if let Some(remaining) = partition.and_then(|end| end.remaining(now)) {
            self.queue.add_after(name.into(), remaining);
        }
        let Some(body) = status_patch(&node, &used, partition.is_some()) else { return Ok(()) };
        let (kind, form) = (Node::kind(), PatchType::Merge);
        self.client.patch::<Metadata>(&kind, "", name, "status", form, body.into()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::Encoding;

    #[test]
    fn the_status_is_patched_unless_it_is_current_or_the_node_is_partitioned() {
        let patch = r#"{"status":{"volumesInUse":["a"]}}"#;
        for (reported, is_partitioned, wanted) in [
            (json!(["a"]), false, None),
            (json!(["a", "b"]), false, Some(patch)),
            (json!(["b"]), false, Some(patch)),
            (json!([]), false, Some(patch)),
            (json!([]), true, None),
        ] {
            let node = json!({"metadata": {"name": "n"}, "status": {"volumesInUse": reported}});
            let node = Node::decode(node.to_string().as_bytes(), Encoding::Json).expect("a node");
            let found = status_patch(&node, &["a".to_owned()].into(), is_partitioned);
            assert_eq!(found.as_deref(), wanted, "{reported} {is_partitioned}");
        }
    }
}
