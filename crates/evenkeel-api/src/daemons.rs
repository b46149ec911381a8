//! What makes a pod one of a DaemonSet: the node that it is for, and the taints that it bears.
//!
//! Upstream: `pkg/controller/daemon/util`.

use crate::views::Pod;
use serde_json::{Value, json};

/// Taints that every pod of a DaemonSet bears, so that it stays where the node is in trouble, and starts there.
const BORNE: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// One that those bear which share the node's network.
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// Adds the tolerations to a pod's spec; one of the same key, effect and operator that holds for some time only holds for
/// ever then.
pub fn bear(spec: &mut Value) {
    let of_host = spec["hostNetwork"] == true;
    let mut tolerations = match spec["tolerations"].take() {
        Value::Array(given) => given,
        _ => Vec::new(),
    };
    for (key, effect) in BORNE.into_iter().chain(of_host.then_some(NO_NETWORK)) {
        let toleration = json!({ "key": key, "operator": "Exists", "effect": effect });
        let same = tolerations.iter_mut().find(|given| {
            ["key", "operator", "effect"].iter().all(|field| given[*field] == toleration[*field])
                && given["value"].as_str().unwrap_or_default().is_empty()
        });
        match same {
            Some(given) => *given = toleration,
            None => tolerations.push(toleration),
        }
    }
    spec["tolerations"] = tolerations.into();
}

/// Lets a pod of this spec be scheduled only to this node.
pub fn only_on(spec: &mut Value, node: &str) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    spec["affinity"]["nodeAffinity"][required] = json!({
        "nodeSelectorTerms": [{ "matchFields": [
            { "key": "metadata.name", "operator": "In", "values": [node] },
        ] }],
    });
}

/// The node that the pod is on, or is meant for.
pub fn target_node(pod: &Pod) -> Option<&str> {
    if !pod.spec.node_name.is_empty() {
        return Some(&pod.spec.node_name);
    }
    let affinity = pod.spec.affinity.as_deref()?.node_affinity.as_deref()?;
    let selector = affinity.required_during_scheduling_ignored_during_execution.as_deref()?;
    let mut fields = selector.node_selector_terms.iter().flat_map(|term| term.match_fields.iter());
    let named = fields.find(|field| &*field.key == "metadata.name" && &*field.operator == "In")?;
    match &*named.values {
        [name] => Some(name),
        _ => None,
    }
}
