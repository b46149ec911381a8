//! Pods that wait for room to become free on a node that was named for them.

use evenkeel_api::views::Pod;
use hashbrown::HashMap;
use std::sync::Arc;

use crate::pod::PodInfo;

/// Nominated pods, by node. What is kept here may be ahead of `status.nominatedNodeName`.
#[derive(Debug, Default)]
pub struct Nominated {
    on_node: HashMap<Arc<str>, Vec<PodInfo>>,
    nodes: HashMap<Box<str>, Arc<str>>,
}

impl Nominated {
    /// Names `node` for the pod, in place of an earlier one; none if empty.
    pub fn set(&mut self, pod: &PodInfo, node: &str) {
        self.remove(pod.uid());
        if node.is_empty() {
            return;
        }
        let node: Arc<str> = node.into();
        self.nodes.insert(pod.uid().into(), Arc::clone(&node));
        self.on_node.entry(node).or_default().push(pod.clone());
    }

    /// Takes over a newer version of a pod. What was named here and is not in the status yet stays.
    pub fn update(&mut self, old: &Pod, new: &PodInfo) {
        let silent = old.status.nominated_node_name.is_empty()
            && new.pod.status.nominated_node_name.is_empty();
        let node = match self.nodes.get(new.uid()) {
            Some(node) if silent => Arc::clone(node),
            _ => Arc::from(&*new.pod.status.nominated_node_name),
        };
        self.set(new, &node);
    }

    /// Forgets the pod.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.nodes.remove(uid) else { return };
        let Some(pods) = self.on_node.get_mut(&node) else { return };
        pods.retain(|pod| pod.uid() != uid);
        if pods.is_empty() {
            self.on_node.remove(&node);
        }
    }

    /// The pods that wait for this node.
    pub fn on(&self, node: &str) -> &[PodInfo] {
        self.on_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// The nodes for which pods wait.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.on_node.keys()
    }

    /// The node that is named for a pod.
    pub fn node_of(&self, uid: &str) -> Option<&Arc<str>> {
        self.nodes.get(uid)
    }

    /// Whether no pod waits for a node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::info;
    use serde_json::json;

    #[test]
    fn a_nomination_outlives_updates_that_do_not_know_it_yet() {
        let fresh = info("p", &json!({}));
        let told = info("p", &json!({ "status": { "nominatedNodeName": "b" } }));
        let mut nominated = Nominated::default();
        nominated.set(&fresh, "a");
        nominated.update(&fresh.pod, &fresh);
        assert_eq!(nominated.on("a").len(), 1);
        nominated.update(&fresh.pod, &told);
        assert_eq!((nominated.on("a").len(), nominated.on("b").len()), (0, 1));
        nominated.update(&told.pod, &fresh);
        assert!(nominated.is_empty(), "the status says that it was cleared");
    }
}
