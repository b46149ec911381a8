//! Node selectors, and the node affinity that a pod requires.
//!
//! Upstream: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.

use evenkeel_api::views::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// Returns whether the node matches `spec.nodeSelector` and the required node affinity.
///
/// Upstream: `GetRequiredNodeAffinity`.
pub fn matches_required(spec: &PodSpec, node: &Node) -> bool {
    let labels = &node.meta.labels;
    if !spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_deref().and_then(|affinity| affinity.node_affinity.as_deref());
    let required_selector = affinity.and_then(|affinity| {
        affinity.required_during_scheduling_ignored_during_execution.as_deref()
    });
    match required_selector {
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

/// Returns whether a label or field with this value, or an absent label (`None`), satisfies the requirement.
fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let is_listed = |value: &str| requirement.values.iter().any(|listed| **listed == *value);
    // Compares value and bound as integers. A value that is not an integer does not match.
    let satisfies_bound = |compare: fn(&i64, &i64) -> bool| {
        let bound = requirement.values.first().and_then(|bound| bound.parse().ok());
        let value = value.and_then(|value| value.parse().ok());
        value.zip(bound).is_some_and(|(value, bound)| compare(&value, &bound))
    };
    match &*requirement.operator {
        "In" => value.is_some_and(is_listed),
        "NotIn" => !value.is_some_and(is_listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => satisfies_bound(i64::gt),
        "Lt" => satisfies_bound(i64::lt),
        _ => false,
    }
}
