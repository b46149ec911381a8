//! Which sets a change of a node concerns.

use super::mold::{Mold, target_node};
use evenkeel_api::views::{DaemonSet, Node, Pod};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    plan::Key,
};

/// What is looked at when a node changes.
pub(super) struct Watch {
    sets: Cache<DaemonSet>,
    /// Pods by the uid of their set and the node that they are on or meant for.
    pods: Index<Pod>,
}

impl Watch {
    /// Declares the index.
    pub(super) fn new(sets: &Cache<DaemonSet>, pods: &Cache<Pod>) -> Self {
        let pods = pods.index("daemon", |pod, key| {
            let controller = pod.meta.controller().filter(|owner| &*owner.kind == "DaemonSet");
            if let (Some(controller), Some(node)) = (controller, target_node(pod)) {
                key(&place(&controller.uid, node));
            }
        });
        Self { sets: sets.clone(), pods }
    }

    /// Names the sets that have to make or delete a pod there, or to count anew those that are where they should not be.
    /// Only labels and taints matter. Nodes that were there before are seen to with the sets themselves; one that goes
    /// takes its pods along.
    pub(super) fn on_node(&self, event: &CacheEvent<Node>, mut enqueue: impl FnMut(Key)) {
        let (node, gone) = match event {
            CacheEvent::Added { object: node, initial: false } => (node, false),
            CacheEvent::Updated { old, new }
                if old.meta.labels != new.meta.labels || old.spec.taints != new.spec.taints =>
            {
                (new, false)
            }
            CacheEvent::Deleted(node) => (node, true),
            CacheEvent::Added { .. } | CacheEvent::Updated { .. } => return,
        };
        for set in self.sets.list() {
            let scheduled = self.pods.count(&place(&set.meta.uid, &node.meta.name)) > 0;
            let fit = Mold::new(&set).fit(node);
            // A pod that is there and should not be counts as misscheduled, even if it may stay.
            let concerns = if scheduled {
                gone || !fit.runs || set.status.number_misscheduled > 0
            } else {
                fit.runs
            };
            if concerns {
                enqueue(Key::of(&set.meta));
            }
        }
    }
}

/// No uid has a slash in it.
fn place(uid: &str, node: &str) -> String {
    format!("{uid}/{node}")
}
