//! The nodes that a pod's required affinity names.

use evenkeel_api::views::Pod;

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
