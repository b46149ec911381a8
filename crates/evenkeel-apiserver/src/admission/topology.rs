//! PodTopologyLabels: copies the node's zone and region labels to its pods.

use crate::api::{Api, Context};
use crate::loopback;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{object, object_mut, text};
use serde_json::Value;

const COPIED: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Labels a new pod whose `nodeName` is set.
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
        copy(&node, pod);
    }
    Ok(())
}

fn copy(node: &Value, pod: &mut Value) {
    for key in COPIED {
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
        copy(&node, &mut pod);
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "web", "topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"})
        );
        let mut bare = json!({"metadata": {}});
        copy(&json!({"metadata": {"labels": {"other": "x"}}}), &mut bare);
        assert_eq!(bare, json!({"metadata": {}}));
    }
}
