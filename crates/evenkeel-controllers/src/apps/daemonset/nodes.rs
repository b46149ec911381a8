//! Which sets a change of a node concerns.

use super::pod_template::PodTemplate;
use evenkeel_api::{
    daemons::target_node,
    views::{DaemonSet, Node, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    plan::Key,
};

/// What is looked at when a node changes.
pub(super) struct Watch {
    sets: Cache<DaemonSet>,
    nodes: Cache<Node>,
    /// Pods by the uid of their set and the node that they are on or meant for.
    pods: Index<Pod>,
}

impl Watch {
    /// Declares the index.
    pub(super) fn new(sets: &Cache<DaemonSet>, nodes: &Cache<Node>, pods: &Cache<Pod>) -> Self {
        let pods = pods.index("daemon", |pod, key| {
            let controller = pod.meta.controller().filter(|owner| &*owner.kind == "DaemonSet");
            if let (Some(controller), Some(node)) = (controller, target_node(pod)) {
                key(&place(&controller.uid, node));
            }
        });
        Self { sets: sets.clone(), nodes: nodes.clone(), pods }
    }

    /// Names the sets that have to make or delete a pod on the node, or to count anew those that are where they should not
    /// be. One that is gone takes its pods along.
    pub(super) fn sets_of(&self, node: &str, mut enqueue: impl FnMut(Key)) {
        let found = self.nodes.get("", node);
        for set in self.sets.list() {
            let scheduled = self.pods.count(&place(&set.meta.uid, node)) > 0;
            let fit = found.as_ref().map(|node| PodTemplate::new(&set).fit(node));
            // A pod that is there and should not be counts as misscheduled, even if it may stay.
            let concerns = match fit {
                Some(fit) if !scheduled => fit.should_run,
                Some(fit) => !fit.should_run || set.status.number_misscheduled > 0,
                None => scheduled,
            };
            if concerns {
                enqueue(Key::of(&set.meta));
            }
        }
    }
}

/// Whether an event of a node may concern sets: only labels and taints matter. Nodes that were there before are seen to with
/// the sets themselves.
pub(super) fn matters(event: &CacheEvent<Node>) -> bool {
    match event {
        CacheEvent::Added { initial, .. } => !initial,
        CacheEvent::Updated { old, new } => {
            old.meta.labels != new.meta.labels || old.spec.taints != new.spec.taints
        }
        CacheEvent::Deleted(_) => true,
    }
}

/// No uid has a slash in it.
fn place(uid: &str, node: &str) -> String {
    format!("{uid}/{node}")
}
