//! A constraint, as the pod has it and as the table is asked about it.

use evenkeel_api::{
    Text,
    placement::forbidding,
    selector::{Operator, Requirement, Selector},
    views::{Pod, TopologySpreadConstraint},
};
use std::sync::Arc;

use super::DefaultConstraint;
use crate::{
    nodes::{LabelColumn, NodeTable, Slot},
    plugins::node_selector::Required,
};

/// A constraint of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) max_skew: i32,
    pub(super) topology_key: Text,
    pub(super) selector: Selector,
    pub(super) min_domains: i32,
    /// Nodes that the pod's node affinity rules out do not count.
    pub(super) honors_affinity: bool,
    /// Nodes with taints that the pod does not tolerate do not count.
    pub(super) honors_taints: bool,
}

impl Wanted {
    /// One of the pod's own; its `matchLabelKeys` count with `keys`.
    pub(super) fn of(own: &TopologySpreadConstraint, pod: &Pod, keys: bool) -> Self {
        let keys = if keys { &own.match_label_keys[..] } else { &[][..] };
        Self {
            max_skew: own.max_skew,
            topology_key: own.topology_key.clone(),
            selector: narrowed(&own.label_selector, keys, pod),
            min_domains: own.min_domains.unwrap_or(1),
            honors_affinity: &*own.node_affinity_policy != "Ignore",
            honors_taints: &*own.node_taints_policy == "Honor",
        }
    }

    pub(super) fn default_of(default: &DefaultConstraint, selector: Selector) -> Self {
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

/// The selector with the pod's own values of some labels (KEP-3243).
fn narrowed(selector: &Selector, keys: &[Text], pod: &Pod) -> Selector {
    let own = keys.iter().filter_map(|key| {
        let value = pod.meta.labels.get(key)?;
        Requirement::new(key, Operator::In, [value.into()].into()).ok()
    });
    let own: Vec<Requirement> = own.collect();
    // What selects nothing selects nothing with further labels, either.
    if own.is_empty() || selector.is_nothing() {
        return selector.clone();
    }
    Selector::all(own.into_iter().chain(selector.requirements().iter().cloned()))
}

/// The nodes that count.
pub(super) struct Eligible {
    /// `None`: all of them.
    nodes: Option<Vec<bool>>,
}

impl Eligible {
    /// Of those that have all `keys` (where they must), the nodes that a constraint's policies leave.
    pub(super) fn of(
        wanted: &Wanted,
        pod: &Pod,
        nodes: &NodeTable,
        keys: &[Arc<LabelColumn>],
    ) -> Self {
        let keys: Vec<&LabelColumn> =
            keys.iter().map(|key| &**key).filter(|key| key.n_labelled() < nodes.len()).collect();
        let required = wanted
            .honors_affinity
            .then(|| Required::of(&pod.spec, nodes))
            .filter(|r| !r.is_nothing());
        let tolerated = wanted.honors_taints.then(|| {
            let tolerated = |taints| forbidding(&pod.spec.tolerations, taints).is_none();
            nodes.taint_sets().iter().map(|taints| tolerated(taints)).collect::<Vec<bool>>()
        });
        let tolerated = tolerated.filter(|tolerated| tolerated.contains(&false));
        if keys.is_empty() && required.is_none() && tolerated.is_none() {
            return Self { nodes: None };
        }
        let mut eligible = vec![false; nodes.n_slots()];
        for node in nodes.iter() {
            let slot = node.slot();
            eligible[slot as usize] = keys.iter().all(|key| key.of(slot).is_some())
                && required.as_ref().is_none_or(|required| required.holds(slot))
                && tolerated.as_ref().is_none_or(|tolerated| tolerated[node.taint_set()]);
        }
        Self { nodes: Some(eligible) }
    }

    /// Whether all nodes count.
    pub(super) fn is_all(&self) -> bool {
        self.nodes.is_none()
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes[slot as usize])
    }
}
