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
pub(super) struct RequiredNodeAffinity {
    selector: Vec<CompiledRequirement>,
    /// Compiled terms, one of which must match. An empty list matches no node.
    terms: Option<Vec<Vec<CompiledRequirement>>>,
}

impl RequiredNodeAffinity {
    /// Compiles the selector and affinity of a pod.
    pub(super) fn compile(spec: &PodSpec, nodes: &NodeTable) -> Self {
        let selector = compile_labels(&spec.node_selector, nodes);
        Self {
            selector,
            terms: required_selector(spec).map(|selector| compile_terms(selector, nodes)),
        }
    }

    /// Compiles a node selector.
    pub(super) fn compile_selector(selector: &NodeSelector, nodes: &NodeTable) -> Self {
        Self { selector: Vec::new(), terms: Some(compile_terms(selector, nodes)) }
    }

    /// Returns whether there are no requirements, so that every node matches.
    pub(super) fn matches_every_node(&self) -> bool {
        self.selector.is_empty() && self.terms.is_none()
    }

    /// Returns whether the node matches.
    pub(super) fn matches(&self, slot: Slot) -> bool {
        let match_all = |requirements: &Vec<CompiledRequirement>| {
            requirements.iter().all(|requirement| requirement.matches(slot))
        };
        match_all(&self.selector)
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(match_all))
    }
}

/// Compiled terms of preferred node affinity.
pub(super) struct PreferredTerms(Vec<WeightedTerm>);

/// A compiled term with its weight.
struct WeightedTerm {
    weight: i64,
    requirements: Vec<CompiledRequirement>,
}

impl PreferredTerms {
    /// Compiles the terms that have a weight and requirements.
    pub(super) fn compile(terms: &[PreferredSchedulingTerm], nodes: &NodeTable) -> Self {
        let counted =
            terms.iter().filter(|term| term.weight != 0 && !is_empty_term(&term.preference));
        let compile = |term: &PreferredSchedulingTerm| WeightedTerm {
            weight: i64::from(term.weight),
            requirements: compile_term(&term.preference, nodes),
        };
        Self(counted.map(compile).collect())
    }

    /// Returns the sum of the weights of the terms that match the node.
    pub(super) fn score(&self, slot: Slot) -> i64 {
        let matches = |term: &&WeightedTerm| {
            term.requirements.iter().all(|requirement| requirement.matches(slot))
        };
        self.0.iter().filter(matches).map(|term| term.weight).sum()
    }
}

/// Returns the node selector of the pod's required node affinity.
pub(super) fn required_selector(spec: &PodSpec) -> Option<&NodeSelector> {
    let affinity = spec.affinity.as_deref()?.node_affinity.as_deref()?;
    affinity.required_during_scheduling_ignored_during_execution.as_deref()
}

/// Returns the terms of the pod's preferred node affinity.
pub(super) fn preferred_terms(spec: &PodSpec) -> &[PreferredSchedulingTerm] {
    let affinity = spec.affinity.as_deref().and_then(|affinity| affinity.node_affinity.as_deref());
    affinity.map_or(&[], |affinity| &affinity.preferred_during_scheduling_ignored_during_execution)
}

/// A requirement of a term or selector, compiled for the nodes of a table.
enum CompiledRequirement {
    /// The node's value in the column must pass the check.
    Label { column: Arc<LabelColumn>, check: LabelCheck },
    /// Matches the node in this slot, or every other node if `negated`.
    Name { slot: Option<Slot>, negated: bool },
    /// An invalid requirement, which no node satisfies.
    Never,
}

/// Requirement on the value of a label. Values are ids in the label's column.
enum LabelCheck {
    /// The value is one of these (`In`).
    OneOf(SmallVec<[u32; 4]>),
    /// The value is none of these, or the label is absent (`NotIn`).
    NoneOf(SmallVec<[u32; 4]>),
    /// The label is present (`Exists`).
    Any,
    /// The label is absent (`DoesNotExist`).
    Absent,
    /// The value is an integer above the bound (`Gt`).
    Above(i64),
    /// The value is an integer below the bound (`Lt`).
    Below(i64),
}

impl CompiledRequirement {
    /// Returns whether the node in this slot meets the requirement.
    fn matches(&self, slot: Slot) -> bool {
        match self {
            Self::Label { column, check } => check.matches(column, column.value_id_of(slot)),
            Self::Name { slot: named, negated } => (*named == Some(slot)) != *negated,
            Self::Never => false,
        }
    }
}

impl LabelCheck {
    /// Returns whether a value passes the check. A node without the label has no value.
    fn matches(&self, column: &LabelColumn, value_id: Option<u32>) -> bool {
        let number = || column.value(value_id?).parse::<i64>().ok();
        match self {
            Self::OneOf(ids) => value_id.is_some_and(|id| ids.contains(&id)),
            Self::NoneOf(ids) => value_id.is_none_or(|id| !ids.contains(&id)),
            Self::Any => value_id.is_some(),
            Self::Absent => value_id.is_none(),
            Self::Above(bound) => number().is_some_and(|number| number > *bound),
            Self::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Compiles the requirements of `spec.nodeSelector`.
fn compile_labels(required: &StrMap, nodes: &NodeTable) -> Vec<CompiledRequirement> {
    let compile = |(key, value): (&str, &str)| {
        let column = nodes.label(key);
        let values = column.value_id(value).into_iter().collect();
        CompiledRequirement::Label { column, check: LabelCheck::OneOf(values) }
    };
    required.iter().map(compile).collect()
}

/// Compiles the terms of a node selector, except empty ones, which match nothing.
fn compile_terms(selector: &NodeSelector, nodes: &NodeTable) -> Vec<Vec<CompiledRequirement>> {
    let terms = selector.node_selector_terms.iter().filter(|term| !is_empty_term(term));
    terms.map(|term| compile_term(term, nodes)).collect()
}

/// Returns whether the term has no requirements. Such a term matches no node.
fn is_empty_term(term: &NodeSelectorTerm) -> bool {
    term.match_expressions.is_empty() && term.match_fields.is_empty()
}

/// Compiles the requirements of a term.
fn compile_term(term: &NodeSelectorTerm, nodes: &NodeTable) -> Vec<CompiledRequirement> {
    let expressions =
        term.match_expressions.iter().map(|expression| compile_expression(expression, nodes));
    expressions.chain(term.match_fields.iter().map(|field| compile_field(field, nodes))).collect()
}

/// Compiles a requirement for a label.
fn compile_expression(
    requirement: &NodeSelectorRequirement,
    nodes: &NodeTable,
) -> CompiledRequirement {
    let column = nodes.label(&requirement.key);
    let values = || requirement.values.iter().filter_map(|value| column.value_id(value)).collect();
    let bound = || match &*requirement.values {
        [value] => value.parse().ok(),
        _ => None,
    };
    let check = match (&*requirement.operator, requirement.values.len()) {
        ("In", 1..) => Some(LabelCheck::OneOf(values())),
        ("NotIn", 1..) => Some(LabelCheck::NoneOf(values())),
        ("Exists", 0) => Some(LabelCheck::Any),
        ("DoesNotExist", 0) => Some(LabelCheck::Absent),
        ("Gt", _) => bound().map(LabelCheck::Above),
        ("Lt", _) => bound().map(LabelCheck::Below),
        _ => None,
    };
    check.map_or(CompiledRequirement::Never, |check| CompiledRequirement::Label { column, check })
}

/// Compiles a field requirement. The only valid field is `metadata.name`, with one value.
fn compile_field(requirement: &NodeSelectorRequirement, nodes: &NodeTable) -> CompiledRequirement {
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
    let terms = &required_selector(&pod.spec)?.node_selector_terms;
    if terms.is_empty() {
        return None;
    }
    let mut names = Vec::new();
    for term in terms {
        // The field requirements of one term must all match.
        let mut names_of_term: Option<Vec<&str>> = None;
        for field in &term.match_fields {
            if &*field.key != "metadata.name" || &*field.operator != "In" {
                continue;
            }
            let values = field.values.iter().map(|name| &**name);
            names_of_term = Some(match names_of_term {
                None => values.collect(),
                Some(names) => values.filter(|name| names.contains(name)).collect(),
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
                let requirement = RequiredNodeAffinity::compile(&pod.pod.spec, &cluster.table);
                let preferred = PreferredTerms::compile(preferred_terms(&pod.pod.spec), &cluster.table);
                for node in cluster.table.iter() {
                    let object = node.node();
                    prop_assert_eq!(requirement.matches(node.slot()), nodeaffinity::matches_required(&pod.pod.spec, object), "{}", node.name());
                    let matching = preferred_terms(&pod.pod.spec).iter();
                    let matching = matching.filter(|term| nodeaffinity::matches(&term.preference, object));
                    let weight: i64 = matching.map(|term| i64::from(term.weight)).sum();
                    prop_assert_eq!(preferred.score(node.slot()), weight);
                }
                cluster.apply(&later, |_| json!({}));
            }
        }
    }
}
