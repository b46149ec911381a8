//! Admission plug-in `PodResizeValidator`: a resized pod must fit the allocatable resources of its node.

use super::objects::decoded;
use crate::api::Context;
use crate::loopback;
use evenkeel_api::quantity::Quantity;
use evenkeel_api::views::{Node, Pod};
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{int, text};
use evenkeel_component_helpers::resource::pod_requests;
use serde_json::{Value, json};

/// Refuses a resize to more than the allocatable resources of the pod's node, or on a node whose operating system does
/// not support resizes.
///
/// Upstream: `Plugin.Validate` of `podresize`.
pub(super) fn check(cx: &Context<'_>, pod: &Value, old: &Value) -> Result<(), StatusError> {
    let node = text(pod, "spec.nodeName");
    let generation = |pod: &Value| int(pod, "metadata.generation").unwrap_or_default();
    // The generation increases with each change of the spec. An equal generation means that the update resizes nothing.
    if node.is_empty() || generation(pod) == generation(old) {
        return Ok(());
    }
    let forbidden = |why: String| StatusError::forbidden(&cx.resource.name, cx.name, why);
    let Some(node) = loopback::get(cx.api, "v1", "nodes", "", node)? else {
        return Err(forbidden(format!("node {} not found", quote(node))));
    };
    let spec: Pod = decoded(&json!({"spec": pod["spec"]}))?;
    let node: Node = decoded(&node)?;
    match refusal(&spec, &node) {
        None => Ok(()),
        Some((why, cause)) => Err(forbidden(why).cause(cause, "", "")),
    }
}

/// Returns the message of a refusal and the reason of its cause; `None` if the pod fits the node. `pod` has no status.
///
/// Upstream: `validatePodResize`.
fn refusal(pod: &Pod, node: &Node) -> Option<(String, &'static str)> {
    let system = node.meta.labels.get("kubernetes.io/os").unwrap_or("linux");
    if system != "linux" {
        let name = quote(&node.meta.name);
        let why = format!(
            "pod resize is only supported on linux nodes, node {name} is {}",
            quote(system)
        );
        return Some((why, "UnsupportedPlatform"));
    }
    let requests = pod_requests(pod, &[]);
    let requested_amount = |resource: &str| {
        let found = requests.iter().find(|(name, _)| *name == resource);
        found.map_or_else(Quantity::default, |(_, amount)| *amount)
    };
    let allocatable_amount =
        |resource: &str| node.status.allocatable.get(resource).copied().unwrap_or_default();
    let mut exceeded = Vec::new();
    for (resource, to_number) in
        [("cpu", Quantity::milli_value as fn(Quantity) -> i64), ("memory", Quantity::value)]
    {
        let (requested, allocatable) = (requested_amount(resource), allocatable_amount(resource));
        if requested > allocatable {
            let (requested, allocatable) = (to_number(requested), to_number(allocatable));
            exceeded
                .push(format!("{resource}, requested: {requested}, allocatable: {allocatable}"));
        }
    }
    if exceeded.is_empty() {
        return None;
    }
    let why = format!("node didn't have enough allocatable resources: {}", exceeded.join("; "));
    Some((why, "NodeCapacity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resize_must_fit_the_node() {
        let node = |system: &str| -> Node {
            let labels = json!({"kubernetes.io/os": system});
            let allocatable = json!({"cpu": "2", "memory": "1Ki"});
            decoded(&json!({"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": allocatable}}))
                .expect("a node")
        };
        let pod = |cpu: &str, memory: &str| -> Pod {
            let requests = json!({"cpu": cpu, "memory": memory});
            decoded(&json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}))
                .expect("a pod")
        };
        let lacks = "node didn't have enough allocatable resources: ";
        for (system, cpu, memory, expected) in [
            ("linux", "2", "1024", None),
            (
                "linux",
                "2001m",
                "1",
                Some((format!("{lacks}cpu, requested: 2001, allocatable: 2000"), "NodeCapacity")),
            ),
            (
                "linux",
                "3",
                "2Ki",
                Some((
                    format!(
                        "{lacks}cpu, requested: 3000, allocatable: 2000; memory, requested: 2048, allocatable: 1024"
                    ),
                    "NodeCapacity",
                )),
            ),
            (
                "windows",
                "1",
                "1",
                Some((
                    "pod resize is only supported on linux nodes, node \"n\" is \"windows\""
                        .to_owned(),
                    "UnsupportedPlatform",
                )),
            ),
        ] {
            assert_eq!(
                refusal(&pod(cpu, memory), &node(system)),
                expected,
                "{system} {cpu} {memory}"
            );
        }
    }
}
