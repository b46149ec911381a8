//! A topology spread constraint, prepared for counting.

use evenkeel_api::{
    Text,
    selector::{Operator, Requirement, Selector},
    views::{Pod, TopologySpreadConstraint},
};
use evenkeel_component_helpers::scheduling::corev1::find_untolerated_taint;
use std::sync::Arc;

use super::DefaultConstraint;
use crate::{
    nodes::{LabelColumn, NodeTable, Slot},
    plugins::node_selector::Required,
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
}

impl SpreadConstraint {
    /// Converts a constraint of the pod. It ignores `matchLabelKeys` unless `match_label_keys`.
    pub(super) fn for_pod(
        constraint: &TopologySpreadConstraint,
        pod: &Pod,
        match_label_keys: bool,
    ) -> Self {
        let keys = if match_label_keys { &constraint.match_label_keys[..] } else { &[][..] };
        Self {
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key.clone(),
            selector: with_match_label_keys(&constraint.label_selector, keys, pod),
            min_domains: constraint.min_domains.unwrap_or(1),
            honors_affinity: &*constraint.node_affinity_policy != "Ignore",
            honors_taints: &*constraint.node_taints_policy == "Honor",
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
pub(super) struct Eligible {
    /// Flag by slot; `None` means all nodes.
    nodes: Option<Vec<bool>>,
}

impl Eligible {
    /// Returns the nodes that satisfy the constraint's policies and have the labels of all `keys`.
    pub(super) fn find(
        constraint: &SpreadConstraint,
        pod: &Pod,
        nodes: &NodeTable,
        keys: &[Arc<LabelColumn>],
    ) -> Self {
        let keys: Vec<&LabelColumn> =
            keys.iter().map(|key| &**key).filter(|key| key.n_labelled() < nodes.len()).collect();
        let required = constraint
            .honors_affinity
            .then(|| Required::compile(&pod.spec, nodes))
            .filter(|r| !r.matches_every_node());
        let tolerated = constraint.honors_taints.then(|| {
            let tolerated =
                |taints| find_untolerated_taint(&pod.spec.tolerations, taints).is_none();
            nodes.taint_sets().iter().map(|taints| tolerated(taints)).collect::<Vec<bool>>()
        });
        let tolerated = tolerated.filter(|tolerated| tolerated.contains(&false));
        if keys.is_empty() && required.is_none() && tolerated.is_none() {
            return Self { nodes: None };
        }
        let mut eligible = vec![false; nodes.n_slots()];
        for node in nodes.iter() {
            let slot = node.slot();
            eligible[slot as usize] = keys.iter().all(|key| key.value_of(slot).is_some())
                && required.as_ref().is_none_or(|required| required.holds(slot))
                && tolerated.as_ref().is_none_or(|tolerated| tolerated[node.taint_set()]);
        }
        Self { nodes: Some(eligible) }
    }

    /// Reports whether all nodes are eligible.
    pub(super) fn is_all(&self) -> bool {
        self.nodes.is_none()
    }

    /// Reports whether the constraint counts the pods of this node.
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes[slot as usize])
    }
}
