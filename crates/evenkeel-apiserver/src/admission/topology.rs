//! Admission plug-in PodTopologyLabels: copies the zone and region labels of a node to its pods.

use crate::api::{Api, Context};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{object_mut, text};
use serde_json::Value;

/// Labels that are copied.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Copies the topology labels of its node to a new pod, if the pod names a node.
pub(super) fn admit(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    let node = text(pod, "spec.nodeName").to_owned();
    label(cx.api, &node, pod);
    Ok(())
}

/// Copies the topology labels of `node` to `pod`. Does nothing if the node does not exist.
pub(crate) fn label(api: &Api, node: &str, pod: &mut Value) {
    if node.is_empty() {
        return;
    }
    let Some(nodes) = api.table.get("v1", "nodes") else { return };
    // The labels are kept beside the stored node, which need not be decoded.
    if let Some(node) = api.store.get(&nodes.resource_prefix, node) {
        copy_labels(|key| node.selection.label(key), pod);
    }
}

/// Copies the topology labels that `label_of_node` returns.
fn copy_labels<'a>(label_of_node: impl Fn(&str) -> Option<&'a str>, pod: &mut Value) {
    for key in TOPOLOGY_LABELS {
        if let Some(value) = label_of_node(key)
            && let Some(labels) = object_mut(pod, "metadata.labels")
        {
            labels.insert(key.to_owned(), value.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_nodes_place_wins() {
        let node = |key: &str| match key {
            "topology.kubernetes.io/zone" => Some("a"),
            "topology.kubernetes.io/region" => Some("r"),
            _ => Some("x"),
        };
        let mut pod =
            json!({"metadata": {"labels": {"app": "web", "topology.kubernetes.io/zone": "b"}}});
        copy_labels(node, &mut pod);
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "web", "topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"})
        );
        let mut bare = json!({"metadata": {}});
        copy_labels(|_| None, &mut bare);
        assert_eq!(bare, json!({"metadata": {}}));
    }
}
