//! NodeAffinity: `spec.nodeSelector` and node affinity, required and preferred.

use std::sync::Arc;

use super::{node_selector, normalise};
use crate::{
    framework::{
        Action, Change, CycleState, Edit, Filter, Filtered, Hint, Interest, Plugin, PreFilter,
        PreFiltered, PreScore, PreScored, Rejection, Resource, Score,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};
use evenkeel_api::{
    placement,
    views::{Node, Pod, PreferredSchedulingTerm},
};

/// Matches pods' node selectors and node affinities.
#[derive(Debug, Clone, Copy)]
pub struct NodeAffinity;

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn events(&self) -> Vec<Interest> {
        vec![Interest::new(Resource::Node, &[Action::Add, Action::UpdateNodeLabel])]
    }

    fn hint(&self, pod: &PodInfo, change: &Change) -> Hint {
        let matches = |node: &Node| placement::required(&pod.pod.spec, node);
        match change {
            Change::Node(Edit::Updated { old, new }) => Hint::when(!matches(old) && matches(new)),
            Change::Node(Edit::Added(node)) => Hint::when(matches(node)),
            _ => Hint::Queue,
        }
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_pre_score(&self) -> Option<&dyn PreScore> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl PreFilter for NodeAffinity {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFiltered, Rejection> {
        let pod = &pod.pod;
        let required =
            pod.spec.affinity.as_deref().and_then(|affinity| affinity.node_affinity.as_deref());
        let required =
            required.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref());
        if required.is_none() && pod.spec.node_selector.is_empty() {
            return Ok(PreFiltered::Skip);
        }
        match node_selector::named_nodes(pod) {
            None => Ok(PreFiltered::All),
            Some(names) if names.is_empty() => {
                Err(Rejection::unresolvable("pod affinity terms conflict"))
            }
            Some(names) => Ok(PreFiltered::Only(names.into_iter().map(Arc::from).collect())),
        }
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> Filtered {
        if placement::required(&pod.pod.spec, node.node()) {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector"))
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScored {
        if preferred(&pod.pod).is_empty() { PreScored::Skip } else { PreScored::All }
    }
}

impl Score for NodeAffinity {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> i64 {
        let terms = preferred(&pod.pod).iter();
        let matching = terms
            .filter(|term| term.weight != 0 && placement::matches(&term.preference, node.node()));
        matching.map(|term| i64::from(term.weight)).sum()
    }

    fn normalise(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        normalise(scores, false);
    }
}

fn preferred(pod: &Pod) -> &[PreferredSchedulingTerm] {
    let affinity =
        pod.spec.affinity.as_deref().and_then(|affinity| affinity.node_affinity.as_deref());
    affinity.map_or(&[], |affinity| &affinity.preferred_during_scheduling_ignored_during_execution)
}
