//! DaemonSets to enqueue after an event of a node. Upstream: `syncNodeUpdate`.

use super::pod_template::PodTemplate;
use evenkeel_api::views::{DaemonSet, Node, Pod};
use evenkeel_component_helpers::{
    apps::daemonset::target_node, scheduling::corev1::TolerationOperators,
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    plan::Key,
};

/// Finds the DaemonSets that a changed node affects.
pub(super) struct AffectedSets {
    sets: Cache<DaemonSet>,
    nodes: Cache<Node>,
    /// Operators of tolerations that match taints.
    operators: TolerationOperators,
    /// Pods by DaemonSet uid and node. A pending pod belongs to the node in its affinity.
    pods: Index<Pod>,
}

impl AffectedSets {
    /// Declares the index.
    pub(super) fn new(
        sets: &Cache<DaemonSet>,
        nodes: &Cache<Node>,
        pods: &Cache<Pod>,
        operators: TolerationOperators,
    ) -> Self {
        let pods = pods.index("daemon", |pod, add_key| {
            let controller = pod.meta.controller().filter(|owner| &*owner.kind == "DaemonSet");
            if let (Some(controller), Some(node)) = (controller, target_node(pod)) {
                add_key(&index_key(&controller.uid, node));
            }
        });
        Self { sets: sets.clone(), nodes: nodes.clone(), operators, pods }
    }

    /// Enqueues the DaemonSets that create or delete a pod on the node, or whose counts change. If the node
    /// is deleted, enqueues the DaemonSets with pods on it.
    pub(super) fn enqueue(&self, node_name: &str, mut enqueue: impl FnMut(Key)) {
        let node = self.nodes.get("", node_name);
        for set in self.sets.list() {
            let has_pod = self.pods.count(&index_key(&set.meta.uid, node_name)) > 0;
            let is_affected = match &node {
                None => has_pod,
                Some(node) => {
                    let should_run =
                        PodTemplate::new(&set).matching(self.operators).fit(node).should_run;
                    // A pod on a node that does not fit counts as misscheduled, even if it continues to run.
                    let may_change_counts = !should_run || set.status.number_misscheduled > 0;
                    if has_pod { may_change_counts } else { should_run }
                }
            };
            if is_affected {
                enqueue(Key::of(&set.meta));
            }
        }
    }
}

/// Returns whether an event of a node may affect DaemonSets: labels or taints changed. Upstream:
/// `shouldIgnoreNodeUpdate`.
pub(super) fn may_affect_sets(event: &CacheEvent<Node>) -> bool {
    match event {
        // At the start, all DaemonSets are enqueued anyway.
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
