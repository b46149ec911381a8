//! Node selectors, and the node affinity that a pod requires.
//!
//! Upstream: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.

use evenkeel_api::views::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// Returns whether the node matches `spec.nodeSelector` and the required node affinity.
///
/// Upstream: `GetRequiredNodeAffinity`.
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

/// Returns whether a node matches a term. An empty term matches no node.
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
