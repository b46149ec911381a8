//! A topology spread constraint, prepared for counting.

use evenkeel_api::{
    Text,
    selector::{Operator, Requirement, Selector},
    views::{Pod, Taint, TopologySpreadConstraint},
};
use evenkeel_component_helpers::scheduling::corev1::TolerationOperators;
use std::sync::Arc;

use super::{Args, DefaultConstraint};
use crate::{
    nodes::{LabelColumn, NodeTable, Slot},
    plugins::node_selector::RequiredNodeAffinity,
};

/// A topology spread constraint of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpreadConstraint {
    pub(super) max_skew: i32,
    pub(super) topology_key: Text,
    pub(super) selector: Selector,
    pub(super) min_domains: i32,
    /// `nodeAffinityPolicy: Honor`: skip nodes that the pod's node affinity excludes.
    pub(super) honors_affinity: bool,
    /// `nodeTaintsPolicy: Honor`: skip nodes with taints that the pod does not tolerate.
    pub(super) honors_taints: bool,
    /// Operators of the pod's tolerations that match taints.
    pub(super) toleration_operators: TolerationOperators,
}

impl SpreadConstraint {
    /// Converts a constraint of the pod, as the feature gates in `args` say.
    pub(super) fn for_pod(constraint: &TopologySpreadConstraint, pod: &Pod, args: &Args) -> Self {
        let keys = if args.match_label_keys { &constraint.match_label_keys[..] } else { &[][..] };
        Self {
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key.clone(),
            selector: with_match_label_keys(&constraint.label_selector, keys, pod),
            min_domains: constraint.min_domains.unwrap_or(1),
            honors_affinity: &*constraint.node_affinity_policy != "Ignore",
            honors_taints: &*constraint.node_taints_policy == "Honor",
            toleration_operators: args.toleration_operators,
        }
    }

    /// Converts a default constraint for pods that this selector matches.
    pub(super) fn from_default(default: &DefaultConstraint, selector: Selector) -> Self {
        Self {
            max_skew: default.max_skew,
            topology_key: default.topology_key.clone().into(),
            selector,
            min_domains: 1,
            honors_affinity: true,
            honors_taints: false,
            toleration_operators: TolerationOperators::default(),
        }
    }
}

/// Adds the pod's values of the labels in `matchLabelKeys` to the selector (KEP-3243).
fn with_match_label_keys(selector: &Selector, keys: &[Text], pod: &Pod) -> Selector {
    let requirements = keys.iter().filter_map(|key| {
        let value = pod.meta.labels.get(key)?;
        Requirement::new(key, Operator::In, [value.into()].into()).ok()
    });
    let requirements: Vec<Requirement> = requirements.collect();
    // A selector that matches nothing cannot be restricted further.
    if requirements.is_empty() || selector.is_nothing() {
        return selector.clone();
    }
    Selector::all(requirements.into_iter().chain(selector.requirements().iter().cloned()))
}

/// Nodes whose pods the constraint counts.
pub(super) struct EligibleNodes {
    /// Whether each node is eligible, by slot; `None` means all nodes.
    is_eligible: Option<Vec<bool>>,
}

impl EligibleNodes {
    /// Returns the nodes that satisfy the constraint's policies and have the labels of all `keys`.
    pub(super) fn find(
        constraint: &SpreadConstraint,
        pod: &Pod,
        nodes: &NodeTable,
        keys: &[Arc<LabelColumn>],
    ) -> Self {
        // Every node has the other keys.
        let incomplete_keys: Vec<&LabelColumn> =
            keys.iter().map(|key| &**key).filter(|key| key.n_labelled() < nodes.len()).collect();
        let required_affinity = constraint
            .honors_affinity
            .then(|| RequiredNodeAffinity::compile(&pod.spec, nodes))
            .filter(|required| !required.matches_every_node());
        let is_tolerated = |taints: &Arc<[Taint]>| {
            let operators = constraint.toleration_operators;
            operators.find_untolerated_taint(&pod.spec.tolerations, taints).is_none()
        };
        let tolerated_taint_sets: Option<Vec<bool>> = constraint
            .honors_taints
            .then(|| nodes.taint_sets().iter().map(is_tolerated).collect())
            .filter(|tolerated: &Vec<bool>| tolerated.contains(&false));
        if incomplete_keys.is_empty()
            && required_affinity.is_none()
            && tolerated_taint_sets.is_none()
        {
            return Self { is_eligible: None };
        }
        let mut is_eligible = vec![false; nodes.n_slots()];
        for node in nodes.iter() {
            let slot = node.slot();
            is_eligible[slot as usize] =
                incomplete_keys.iter().all(|key| key.value_id_of(slot).is_some())
                    && required_affinity.as_ref().is_none_or(|required| required.matches(slot))
                    && tolerated_taint_sets.as_ref().is_none_or(|sets| sets[node.taint_set()]);
        }
        Self { is_eligible: Some(is_eligible) }
    }

    /// Returns whether all nodes are eligible.
    pub(super) fn are_all(&self) -> bool {
        self.is_eligible.is_none()
    }

    /// Returns whether the constraint counts the pods of this node.
    pub(super) fn contains(&self, slot: Slot) -> bool {
        self.is_eligible.as_ref().is_none_or(|is_eligible| is_eligible[slot as usize])
    }
}
