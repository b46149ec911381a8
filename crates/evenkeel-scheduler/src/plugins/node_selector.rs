//! Node selector terms, on labels and fields of a node.

use evenkeel_api::views::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod};

/// Whether the node has what `spec.nodeSelector` and the required affinity ask for.
pub(super) fn required(pod: &Pod, node: &Node) -> bool {
    let labels = &node.meta.labels;
    if !pod.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity =
        pod.spec.affinity.as_deref().and_then(|affinity| affinity.node_affinity.as_deref());
    match affinity.and_then(|affinity| {
        affinity.required_during_scheduling_ignored_during_execution.as_deref()
    }) {
        Some(selector) => selector.node_selector_terms.iter().any(|term| matches(term, node)),
        None => true,
    }
}

/// Whether a node satisfies a term; an empty one is satisfied by none.
pub(super) fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (labels, fields) = (&term.match_expressions, &term.match_fields);
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    labels.iter().all(|requirement| holds(requirement, node.meta.labels.get(&requirement.key)))
        && fields.iter().all(|requirement| {
            &*requirement.key == "metadata.name" && holds(requirement, Some(&node.meta.name))
        })
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let among = |value: &str| requirement.values.iter().any(|wanted| **wanted == *value);
    let compare = |holds: fn(i64, i64) -> bool| {
        let wanted = requirement.values.first().and_then(|wanted| wanted.parse().ok());
        let found = value.and_then(|value| value.parse().ok());
        matches!((found, wanted), (Some(found), Some(wanted)) if holds(found, wanted))
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

/// Names of the only nodes that can satisfy the required affinity, where each of its terms names some.
pub(super) fn named_nodes(pod: &Pod) -> Option<Vec<&str>> {
    let affinity = pod.spec.affinity.as_deref()?.node_affinity.as_deref()?;
    let terms = &affinity
        .required_during_scheduling_ignored_during_execution
        .as_deref()?
        .node_selector_terms;
    if terms.is_empty() {
        return None;
    }
    let mut names = Vec::new();
    for term in terms {
        // What fields of one term ask for must hold together.
        let mut of_term: Option<Vec<&str>> = None;
        for field in
            term.match_fields.iter().filter(|f| &*f.key == "metadata.name" && &*f.operator == "In")
        {
            let values = field.values.iter().map(|name| &**name);
            of_term = Some(match of_term {
                None => values.collect(),
                Some(before) => values.filter(|name| before.contains(name)).collect(),
            });
        }
        names.extend(of_term?);
    }
    names.sort_unstable();
    names.dedup();
    Some(names)
}
