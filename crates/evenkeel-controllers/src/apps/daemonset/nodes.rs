//! Maps events of nodes to the DaemonSets to enqueue. Upstream: `syncNodeUpdate`.

use super::pod_template::PodTemplate;
use evenkeel_api::views::{DaemonSet, Node, Pod};
use evenkeel_component_helpers::apps::daemonset::target_node;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    plan::Key,
};

/// Caches and index that find the DaemonSets of a node.
pub(super) struct Watch {
    sets: Cache<DaemonSet>,
    nodes: Cache<Node>,
    /// Pods by DaemonSet uid and node, scheduled or intended.
    pods: Index<Pod>,
}

impl Watch {
    /// Declares the index.
    pub(super) fn new(sets: &Cache<DaemonSet>, nodes: &Cache<Node>, pods: &Cache<Pod>) -> Self {
        let pods = pods.index("daemon", |pod, key| {
            let controller = pod.meta.controller().filter(|owner| &*owner.kind == "DaemonSet");
            if let (Some(controller), Some(node)) = (controller, target_node(pod)) {
                key(&index_key(&controller.uid, node));
            }
        });
        Self { sets: sets.clone(), nodes: nodes.clone(), pods }
    }

    /// Enqueues the DaemonSets that create or delete a pod on the node, or whose counts change. If the node
    /// is deleted, these are the DaemonSets with pods on it.
    pub(super) fn sets_of(&self, node: &str, mut enqueue: impl FnMut(Key)) {
        let found = self.nodes.get("", node);
        for set in self.sets.list() {
            let scheduled = self.pods.count(&index_key(&set.meta.uid, node)) > 0;
            let fit = found.as_ref().map(|node| PodTemplate::new(&set).fit(node));
            // A pod on a node that does not fit counts as misscheduled, even if it continues to run.
            let affected = match fit {
                Some(fit) if !scheduled => fit.should_run,
                Some(fit) => !fit.should_run || set.status.number_misscheduled > 0,
                None => scheduled,
            };
            if affected {
                enqueue(Key::of(&set.meta));
            }
        }
    }
}

/// Whether an event of a node may affect DaemonSets: labels or taints changed. At the start, all DaemonSets are
/// enqueued anyway. Upstream: `shouldIgnoreNodeUpdate`.
pub(super) fn matters(event: &CacheEvent<Node>) -> bool {
    match event {
        CacheEvent::Added { initial, .. } => !initial,
        CacheEvent::Updated { old, new } => {
            old.meta.labels != new.meta.labels || old.spec.taints != new.spec.taints
        }
        CacheEvent::Deleted(_) => true,
    }
}

/// Returns the index key of a DaemonSet's pods on a node. Uids contain no slash, so no two keys are equal.
fn index_key(uid: &str, node: &str) -> String {
    format!("{uid}/{node}")
}
