//! Admission plug-in PodTopologyLabels: copies the zone and region labels of a node to its pods.

use crate::api::{Api, Context};
use crate::loopback;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{object, object_mut, text};
use serde_json::Value;

/// Labels that are copied.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Copies the topology labels of its node to a new pod, if the pod names a node.
pub(super) fn admit(cx: &Context<'_>, pod: &mut Value) -> Result<(), StatusError> {
    let node = text(pod, "spec.nodeName").to_owned();
    label(cx.api, &node, pod)
}

/// Copies the topology labels of `node` to `pod`. Does nothing if the node does not exist.
pub(crate) fn label(api: &Api, node: &str, pod: &mut Value) -> Result<(), StatusError> {
    if node.is_empty() {
        return Ok(());
    }
    if let Ok(Some(node)) = loopback::get(api, "v1", "nodes", "", node) {
        copy_labels(&node, pod);
    }
    Ok(())
}

fn copy_labels(node: &Value, pod: &mut Value) {
    for key in TOPOLOGY_LABELS {
        let Some(value) = object(node, "metadata.labels").and_then(|labels| labels.get(key)) else {
            continue;
        };
        if let Some(labels) = object_mut(pod, "metadata.labels") {
            labels.insert(key.to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_nodes_place_wins() {
        let node = json!({"metadata": {"labels": {
            "topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r", "other": "x"}}});
        let mut pod =
            json!({"metadata": {"labels": {"app": "web", "topology.kubernetes.io/zone": "b"}}});
        copy_labels(&node, &mut pod);
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "web", "topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"})
        );
        let mut bare = json!({"metadata": {}});
        copy_labels(&json!({"metadata": {"labels": {"other": "x"}}}), &mut bare);
        assert_eq!(bare, json!({"metadata": {}}));
    }
}
