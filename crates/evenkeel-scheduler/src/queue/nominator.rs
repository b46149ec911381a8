//! Nominated pods: pods for which a node was selected in advance, usually by preemption.
//!
//! Upstream: `pkg/scheduler/backend/queue/nominator.go`.

use evenkeel_api::views::Pod;
use hashbrown::HashMap;
use std::sync::Arc;

use crate::pod::PodInfo;

/// Index of nominated pods by node. It may contain nominations that `status.nominatedNodeName` does not show yet.
#[derive(Debug, Default)]
pub struct Nominator {
    /// Nominated pods by node.
    pods_by_node: HashMap<Arc<str>, Vec<PodInfo>>,
    /// Node of each nominated pod, by uid.
    node_by_uid: HashMap<Box<str>, Arc<str>>,
}

impl Nominator {
    /// Nominates `node` for the pod and replaces an earlier nomination. An empty `node` clears the nomination.
    pub fn add_nominated_pod(&mut self, pod: &PodInfo, node: &str) {
        self.delete_nominated_pod(pod.uid());
        if node.is_empty() {
            return;
        }
        let node: Arc<str> = node.into();
        self.node_by_uid.insert(pod.uid().into(), Arc::clone(&node));
        self.pods_by_node.entry(node).or_default().push(pod.clone());
    }

    /// Replaces the pod by a newer version. Keeps a nomination that the pod's status does not show yet.
    pub fn update_nominated_pod(&mut self, old: &Pod, new: &PodInfo) {
        let not_in_status = old.status.nominated_node_name.is_empty()
            && new.pod.status.nominated_node_name.is_empty();
        let node = match self.node_by_uid.get(new.uid()) {
            Some(node) if not_in_status => Arc::clone(node),
            _ => Arc::from(&*new.pod.status.nominated_node_name),
        };
        self.add_nominated_pod(new, &node);
    }

    /// Clears the pod's nomination.
    pub fn delete_nominated_pod(&mut self, uid: &str) {
        let Some(node) = self.node_by_uid.remove(uid) else { return };
        let Some(pods) = self.pods_by_node.get_mut(&node) else { return };
        pods.retain(|pod| pod.uid() != uid);
        if pods.is_empty() {
            self.pods_by_node.remove(&node);
        }
    }

    /// Returns the pods for which the node is nominated.
    pub fn nominated_pods_for_node(&self, node: &str) -> &[PodInfo] {
        self.pods_by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// Returns the nodes that have nominated pods.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pods_by_node.keys()
    }

    /// Returns the node that is nominated for the pod.
    pub fn nominated_node(&self, uid: &str) -> Option<&Arc<str>> {
        self.node_by_uid.get(uid)
    }

    /// Returns whether no pod is nominated.
    pub fn is_empty(&self) -> bool {
        self.node_by_uid.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::info;
    use serde_json::json;

    #[test]
    fn updates_without_a_nomination_keep_one_that_the_status_never_showed() {
        let fresh = info("p", &json!({}));
        let nominated = info("p", &json!({ "status": { "nominatedNodeName": "b" } }));
        let mut nominator = Nominator::default();
        nominator.add_nominated_pod(&fresh, "a");
        nominator.update_nominated_pod(&fresh.pod, &fresh);
        assert_eq!(nominator.nominated_pods_for_node("a").len(), 1);
        nominator.update_nominated_pod(&fresh.pod, &nominated);
        assert_eq!(
            (
                nominator.nominated_pods_for_node("a").len(),
                nominator.nominated_pods_for_node("b").len()
            ),
            (0, 1)
        );
        nominator.update_nominated_pod(&nominated.pod, &fresh);
        assert!(nominator.is_empty(), "the status shows a cleared nomination");
    }
}
