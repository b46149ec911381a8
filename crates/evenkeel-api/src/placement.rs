//! Matching of pods and nodes: node selectors, node affinity, taints and tolerations.
//!
//! Upstream: `k8s.io/component-helpers/scheduling/corev1`.

use crate::views::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};

/// Calls `key` with the name of the pod's node, once it has one: an index of pods.
pub fn node_key(pod: &Pod, key: &mut dyn FnMut(&str)) {
    if !pod.spec.node_name.is_empty() {
        key(&pod.spec.node_name);
    }
}

/// Whether the node matches `spec.nodeSelector` and the required node affinity.
pub fn required(spec: &PodSpec, node: &Node) -> bool {
    let labels = &node.meta.labels;
    if !spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_deref().and_then(|affinity| affinity.node_affinity.as_deref());
    match affinity.and_then(|affinity| {
        affinity.required_during_scheduling_ignored_during_execution.as_deref()
    }) {
        Some(selector) => selector.node_selector_terms.iter().any(|term| matches(term, node)),
        None => true,
    }
}

/// Whether a node matches a term; an empty term matches none.
pub fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (labels, fields) = (&term.match_expressions, &term.match_fields);
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    labels.iter().all(|requirement| satisfies(requirement, node.meta.labels.get(&requirement.key)))
        && fields.iter().all(|requirement| {
            &*requirement.key == "metadata.name" && satisfies(requirement, Some(&node.meta.name))
        })
}

fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let among = |value: &str| requirement.values.iter().any(|wanted| **wanted == *value);
    let compare = |satisfies: fn(i64, i64) -> bool| {
        let wanted = requirement.values.first().and_then(|wanted| wanted.parse().ok());
        let found = value.and_then(|value| value.parse().ok());
        matches!((found, wanted), (Some(found), Some(wanted)) if satisfies(found, wanted))
    };
    match &*requirement.operator {
        "In" => value.is_some_and(among),
        "NotIn" => !value.is_some_and(among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|found, wanted| found > wanted),
        "Lt" => compare(|found, wanted| found < wanted),
        _ => false,
    }
}

/// Whether the toleration tolerates the taint.
///
/// Upstream: `ToleratesTaint`.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match &*toleration.operator {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            _ => false,
        }
}

/// Whether one of the tolerations tolerates the taint.
pub fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// Returns the first taint that no toleration tolerates.
///
/// Upstream: `FindMatchingUntoleratedTaint`.
pub fn find_untolerated_taint<'a>(
    tolerations: &[Toleration],
    taints: &'a [Taint],
) -> Option<&'a Taint> {
    let hard = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
    taints.iter().filter(hard).find(|taint| !tolerated(tolerations, taint))
}
