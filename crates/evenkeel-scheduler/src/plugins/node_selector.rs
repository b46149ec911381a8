//! Node selectors and affinity terms, compiled to label columns so that they evaluate quickly on many nodes.
//!
//! Upstream: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`. No node matches an invalid term.

use evenkeel_api::{
    StrMap,
    views::{
        NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
        PreferredSchedulingTerm,
    },
};
use smallvec::SmallVec;
use std::sync::Arc;

use crate::nodes::{LabelColumn, NodeRef, NodeTable, Slot};

/// Compiled `spec.nodeSelector` and required node affinity.
pub(super) struct Required {
    selector: Vec<CompiledRequirement>,
    /// Compiled terms, one of which must match. An empty list matches no node.
    terms: Option<Vec<Vec<CompiledRequirement>>>,
}

impl Required {
    /// Compiles the selector and affinity of a pod.
    pub(super) fn compile(spec: &PodSpec, nodes: &NodeTable) -> Self {
        let selector = labels(&spec.node_selector, nodes);
        Self { selector, terms: selector_of(spec).map(|selector| any(selector, nodes)) }
    }

    /// Compiles a node selector.
    pub(super) fn compile_selector(selector: &NodeSelector, nodes: &NodeTable) -> Self {
        Self { selector: Vec::new(), terms: Some(any(selector, nodes)) }
    }

    /// Reports whether there are no requirements, so that every node matches.
    pub(super) fn matches_every_node(&self) -> bool {
        self.selector.is_empty() && self.terms.is_none()
    }

    /// Reports whether the node matches.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.selector.iter().all(|test| test.holds(slot))
            && self.terms.as_ref().is_none_or(|terms| {
                terms.iter().any(|term| term.iter().all(|test| test.holds(slot)))
            })
    }
}

/// Compiled terms of preferred node affinity with their weights.
pub(super) struct Preferred(Vec<(i64, Vec<CompiledRequirement>)>);

impl Preferred {
    /// Compiles the terms that have a weight and requirements.
    pub(super) fn compile(terms: &[PreferredSchedulingTerm], nodes: &NodeTable) -> Self {
        let counted = terms.iter().filter(|term| term.weight != 0 && !is_empty(&term.preference));
        Self(
            counted
                .map(|term| (i64::from(term.weight), term_tests(&term.preference, nodes)))
                .collect(),
        )
    }

    /// Returns the sum of the weights of the terms that match the node.
    pub(super) fn weight(&self, slot: Slot) -> i64 {
        let matching_terms =
            self.0.iter().filter(|(_, tests)| tests.iter().all(|test| test.holds(slot)));
        matching_terms.map(|(weight, _)| weight).sum()
    }
}

/// Returns the node selector of the pod's required node affinity.
pub(super) fn selector_of(spec: &PodSpec) -> Option<&NodeSelector> {
    let affinity = spec.affinity.as_deref()?.node_affinity.as_deref()?;
    affinity.required_during_scheduling_ignored_during_execution.as_deref()
}

/// Returns the terms of the pod's preferred node affinity.
pub(super) fn preferences_of(spec: &PodSpec) -> &[PreferredSchedulingTerm] {
    let affinity = spec.affinity.as_deref().and_then(|affinity| affinity.node_affinity.as_deref());
    affinity.map_or(&[], |affinity| &affinity.preferred_during_scheduling_ignored_during_execution)
}

/// A requirement of a term or selector, compiled for the nodes of a table.
enum CompiledRequirement {
    /// The node's value in the column must pass the check.
    Label(Arc<LabelColumn>, Check),
    /// Matches the node in this slot, or every other node if `negated`.
    Name { slot: Option<Slot>, negated: bool },
    /// An invalid requirement, which no node satisfies.
    Never,
}

/// Requirement on a label, by value numbers of its column.
enum Check {
    OneOf(SmallVec<[u32; 4]>),
    NoneOf(SmallVec<[u32; 4]>),
    Any,
    Absent,
    Above(i64),
    Below(i64),
}

impl CompiledRequirement {
    fn holds(&self, slot: Slot) -> bool {
        match self {
            Self::Label(column, check) => check.holds(column, column.value_of(slot)),
            Self::Name { slot: named, negated } => (*named == Some(slot)) != *negated,
            Self::Never => false,
        }
    }
}

impl Check {
    fn holds(&self, column: &LabelColumn, value: Option<u32>) -> bool {
        let number = || column.text(value?).parse::<i64>().ok();
        match self {
            Self::OneOf(values) => value.is_some_and(|value| values.contains(&value)),
            Self::NoneOf(values) => value.is_none_or(|value| !values.contains(&value)),
            Self::Any => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Above(bound) => number().is_some_and(|number| number > *bound),
            Self::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Compiles the requirements of `spec.nodeSelector`.
fn labels(required: &StrMap, nodes: &NodeTable) -> Vec<CompiledRequirement> {
    let test = |(key, value): (&str, &str)| {
        let column = nodes.label(key);
        let values = column.id(value).into_iter().collect();
        CompiledRequirement::Label(column, Check::OneOf(values))
    };
    required.iter().map(test).collect()
}

/// Compiles the terms of a node selector, without empty ones. One of them must match.
fn any(selector: &NodeSelector, nodes: &NodeTable) -> Vec<Vec<CompiledRequirement>> {
    let terms = selector.node_selector_terms.iter().filter(|term| !is_empty(term));
    terms.map(|term| term_tests(term, nodes)).collect()
}

fn is_empty(term: &NodeSelectorTerm) -> bool {
    term.match_expressions.is_empty() && term.match_fields.is_empty()
}

fn term_tests(term: &NodeSelectorTerm, nodes: &NodeTable) -> Vec<CompiledRequirement> {
    let labels = term.match_expressions.iter().map(|expression| by_label(expression, nodes));
    labels.chain(term.match_fields.iter().map(|field| by_field(field, nodes))).collect()
}

fn by_label(requirement: &NodeSelectorRequirement, nodes: &NodeTable) -> CompiledRequirement {
    let column = nodes.label(&requirement.key);
    let values = || requirement.values.iter().filter_map(|value| column.id(value)).collect();
    let bound = || match &*requirement.values {
        [value] => value.parse().ok(),
        _ => None,
    };
    let check = match (&*requirement.operator, requirement.values.len()) {
        ("In", 1..) => Some(Check::OneOf(values())),
        ("NotIn", 1..) => Some(Check::NoneOf(values())),
        ("Exists", 0) => Some(Check::Any),
        ("DoesNotExist", 0) => Some(Check::Absent),
        ("Gt", _) => bound().map(Check::Above),
        ("Lt", _) => bound().map(Check::Below),
        _ => None,
    };
    check.map_or(CompiledRequirement::Never, |check| CompiledRequirement::Label(column, check))
}

/// Compiles a field requirement. The only valid field is `metadata.name`, with one value.
fn by_field(requirement: &NodeSelectorRequirement, nodes: &NodeTable) -> CompiledRequirement {
    let negated = &*requirement.operator == "NotIn";
    match &*requirement.values {
        [name]
            if &*requirement.key == "metadata.name"
                && (negated || &*requirement.operator == "In") =>
        {
            CompiledRequirement::Name { slot: nodes.get(name).map(NodeRef::slot), negated }
        }
        _ => CompiledRequirement::Never,
    }
}

/// Returns the only node names that can match, if every term restricts `metadata.name` with `In`.
pub(super) fn named_nodes(pod: &Pod) -> Option<Vec<&str>> {
    let terms = &selector_of(&pod.spec)?.node_selector_terms;
    if terms.is_empty() {
        return None;
    }
    let mut names = Vec::new();
    for term in terms {
        // The field requirements of one term must all match.
        let mut names_of_term: Option<Vec<&str>> = None;
        for field in
            term.match_fields.iter().filter(|f| &*f.key == "metadata.name" && &*f.operator == "In")
        {
            let values = field.values.iter().map(|name| &**name);
            names_of_term = Some(match names_of_term {
                None => values.collect(),
                Some(before) => values.filter(|name| before.contains(name)).collect(),
            });
        }
        names.extend(names_of_term?);
    }
    names.sort_unstable();
    names.dedup();
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::info,
        plugins::random_cluster::{RandomCluster, ZONE, steps},
    };
    use evenkeel_component_helpers::scheduling::corev1::nodeaffinity;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Returns a requirement by number. Some are invalid.
    fn requirement(n: u8) -> Value {
        let operator = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"][usize::from(n) % 6];
        let value = ["a", "b", "r0", "zz"][usize::from(n / 6) % 4];
        let values = match operator {
            "In" | "NotIn" => json!([value, "c"]),
            "Gt" | "Lt" => json!(["1"]),
            _ => json!([]),
        };
        let key = [ZONE, "rack", "none"][usize::from(n / 24) % 3];
        json!({ "key": key, "operator": operator, "values": values })
    }

    /// Returns a term by number.
    fn term(n: u8) -> Value {
        let name = format!("n{}", n % 5);
        match n % 4 {
            0 => json!({ "matchExpressions": [requirement(n)] }),
            1 => json!({ "matchExpressions": [requirement(n), requirement(n / 2)] }),
            2 => {
                json!({ "matchFields": [{ "key": "metadata.name", "operator": "NotIn", "values": [name] }],
                         "matchExpressions": [requirement(n / 3)] })
            }
            _ => {
                json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] })
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Compiled selectors give the same result as Node objects, whether they were compiled before or after changes
        /// of the nodes.
        #[test]
        fn compiled_selectors_match_the_same_nodes_as_objects(
            earlier in steps(), later in steps(), terms in proptest::collection::vec(0_u8.., 0..3), zone in 0_usize..4,
        ) {
            let required: Vec<Value> = terms.iter().map(|n| term(*n)).collect();
            let preferred: Vec<Value> =
                terms.iter().map(|n| json!({ "weight": n % 9 + 1, "preference": term(*n) })).collect();
            let mut affinity = json!({ "preferredDuringSchedulingIgnoredDuringExecution": preferred });
            if !required.is_empty() {
                affinity["requiredDuringSchedulingIgnoredDuringExecution"] = json!({ "nodeSelectorTerms": required });
            }
            let mut spec = json!({ "affinity": { "nodeAffinity": affinity } });
            if let Some(zone) = ["a", "b", ""].get(zone) {
                spec["nodeSelector"] = json!({ ZONE: zone });
            }
            let pod = info("p", &json!({ "spec": spec }));
            let mut cluster = RandomCluster::after(&earlier, |_| json!({}));
            for _ in 0..2 {
                let requirement = Required::compile(&pod.pod.spec, &cluster.table);
                let preferred = Preferred::compile(preferences_of(&pod.pod.spec), &cluster.table);
                for node in cluster.table.iter() {
                    let object = node.node();
                    prop_assert_eq!(requirement.holds(node.slot()), nodeaffinity::required(&pod.pod.spec, object), "{}", node.name());
                    let matching = preferences_of(&pod.pod.spec).iter();
                    let matching = matching.filter(|term| nodeaffinity::matches(&term.preference, object));
                    let weight: i64 = matching.map(|term| i64::from(term.weight)).sum();
                    prop_assert_eq!(preferred.weight(node.slot()), weight);
                }
                cluster.apply(&later, |_| json!({}));
            }
        }
    }
}
