//! Scheduling fields of DaemonSet pods: tolerations and the target node.
//!
//! Upstream: `pkg/controller/daemon/util`.

use evenkeel_api::views::Pod;
use serde_json::{Value, json};

/// Key and effect of the taints that every DaemonSet pod tolerates, so that it starts and stays on nodes with problems.
const TOLERATED_TAINTS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// Taint that only DaemonSet pods with host network tolerate.
const NETWORK_UNAVAILABLE: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// Adds the tolerations of DaemonSet pods to a pod's spec. They replace existing tolerations with the same key, effect
/// and operator, because `tolerationSeconds` may limit those.
///
/// Upstream: `AddOrUpdateDaemonPodTolerations`.
pub fn add_tolerations(spec: &mut Value) {
    let host_network = spec["hostNetwork"] == true;
    let mut tolerations = match spec["tolerations"].take() {
        Value::Array(existing) => existing,
        _ => Vec::new(),
    };
    let network_taint = host_network.then_some(NETWORK_UNAVAILABLE);
    for (key, effect) in TOLERATED_TAINTS.into_iter().chain(network_taint) {
        let toleration = json!({ "key": key, "operator": "Exists", "effect": effect });
        let same = tolerations.iter_mut().find(|existing| {
            ["key", "operator", "effect"].iter().all(|field| existing[*field] == toleration[*field])
                && existing["value"].as_str().unwrap_or_default().is_empty()
        });
        match same {
            Some(existing) => *existing = toleration,
            None => tolerations.push(toleration),
        }
    }
    spec["tolerations"] = tolerations.into();
}

/// Restricts a pod spec to one node, by a required node affinity.
///
/// Upstream: `ReplaceDaemonSetPodNodeNameNodeAffinity`.
pub fn restrict_to_node(spec: &mut Value, node: &str) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    spec["affinity"]["nodeAffinity"][required] = json!({
        "nodeSelectorTerms": [{ "matchFields": [
            { "key": "metadata.name", "operator": "In", "values": [node] },
        ] }],
    });
}

/// Returns the name of the node to which the pod is bound. For an unbound pod, returns the node to which its node affinity
/// restricts it.
///
/// Upstream: `GetTargetNodeName`.
pub fn target_node(pod: &Pod) -> Option<&str> {
    if !pod.spec.node_name.is_empty() {
        return Some(&pod.spec.node_name);
    }
    let affinity = pod.spec.affinity.as_deref()?.node_affinity.as_deref()?;
    let selector = affinity.required_during_scheduling_ignored_during_execution.as_deref()?;
    let mut fields = selector.node_selector_terms.iter().flat_map(|term| term.match_fields.iter());
    let name_requirement =
        fields.find(|field| &*field.key == "metadata.name" && &*field.operator == "In")?;
    match &*name_requirement.values {
        [name] => Some(name),
        _ => None,
    }
}
