//! NodeAffinity: selects nodes by `spec.nodeSelector` and node affinity of the pod, and by the plugin's arguments.
//!
//! Upstream: `plugins/nodeaffinity`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `spec.nodeSelector` | `node_selector::compile_labels`, `filter` |
//! | `requiredDuringSchedulingIgnoredDuringExecution` | `node_selector::RequiredNodeAffinity`, `filter` |
//! | `preferredDuringSchedulingIgnoredDuringExecution`, its `weight` | `node_selector::PreferredTerms`, `pre_score`, `score` |
//! | `nodeSelectorTerms` are ORed, an empty one matches nothing | `node_selector::compile_terms`, `node_selector::is_empty_term` |
//! | `matchExpressions` are ANDed; operators `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt` | `node_selector::compile_term`, `node_selector::compile_expression` |
//! | `matchFields`: `metadata.name` | `node_selector::compile_field`, `node_selector::named_nodes` |
//! | node affinity per scheduling profile (`addedAffinity`) | `Args`, `added_selector`, `added_preferences` |

use std::sync::Arc;

use super::{
    default_normalize_score,
    node_selector::{
        PreferredTerms, RequiredNodeAffinity, named_nodes, preferred_terms, required_selector,
    },
};
use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, EventResource, Filter, Plugin, PreFilter,
        PreFilterResult, PreScore, PreScoreResult, QueueingHint, Score, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};
use evenkeel_api::views::{self, Node};
use evenkeel_component_helpers::scheduling::corev1::nodeaffinity;

/// The NodeAffinity plugin.
#[derive(Debug, Clone, Default)]
pub struct NodeAffinity {
    args: Args,
}

/// Arguments of [`NodeAffinity`].
///
/// Upstream: `NodeAffinityArgs`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args {
    /// Affinity that applies to every pod in addition to its own (`addedAffinity`). Default: none.
    pub added_affinity: Option<views::NodeAffinity>,
}

impl NodeAffinity {
    /// Returns the plugin with these arguments.
    pub fn new(args: Args) -> Self {
        Self { args }
    }

    /// Returns the required terms of the argument `addedAffinity`.
    fn added_selector(&self) -> Option<&views::NodeSelector> {
        let added = self.args.added_affinity.as_ref()?;
        added.required_during_scheduling_ignored_during_execution.as_deref()
    }

    /// Returns the preferred terms of the argument `addedAffinity`.
    fn added_preferences(&self) -> &[views::PreferredSchedulingTerm] {
        let added = self.args.added_affinity.as_ref();
        added.map_or(&[], |added| &added.preferred_during_scheduling_ignored_during_execution)
    }

    /// Compiles the added terms and those of the pod.
    fn compile_preferences(&self, pod: &PodInfo, nodes: &NodeTable) -> [PreferredTerms; 2] {
        let of_pod = PreferredTerms::compile(preferred_terms(&pod.pod.spec), nodes);
        [PreferredTerms::compile(self.added_preferences(), nodes), of_pod]
    }
}

/// Required selectors: the added one and the pod's own.
struct FilterState {
    added: Option<RequiredNodeAffinity>,
    of_pod: RequiredNodeAffinity,
}

/// Preferred terms: the added ones and the pod's own.
struct ScoreState([PreferredTerms; 2]);

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(
            EventResource::Node,
            &[ActionType::Add, ActionType::UpdateNodeLabel],
        )]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        let matches_added_affinity = |node: &Node| {
            self.added_selector().is_none_or(|added| {
                added.node_selector_terms.iter().any(|term| nodeaffinity::matches(term, node))
            })
        };
        let matches_pod = |node: &Node| nodeaffinity::matches_required(&pod.pod.spec, node);
        match change {
            Change::Node(edit) => QueueingHint::when(edit.after().is_some_and(|new| {
                matches_added_affinity(new)
                    && matches_pod(new)
                    && !edit.before().is_some_and(|old| matches_pod(old))
            })),
            _ => QueueingHint::Queue,
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
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let spec = &pod.pod.spec;
        let added = self.added_selector();
        if required_selector(spec).is_none() && spec.node_selector.is_empty() && added.is_none() {
            return Ok(PreFilterResult::Skip);
        }
        let added = added.map(|added| RequiredNodeAffinity::compile_selector(added, nodes));
        state.put(FilterState { added, of_pod: RequiredNodeAffinity::compile(spec, nodes) });
        match named_nodes(&pod.pod) {
            None => Ok(PreFilterResult::All),
            Some(names) if names.is_empty() => {
                Err(Status::unresolvable("pod affinity terms conflict"))
            }
            Some(names) => Ok(PreFilterResult::Only(names.into_iter().map(Arc::from).collect())),
        }
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(required) = state.get::<FilterState>() else { return Ok(()) };
        if required.added.as_ref().is_some_and(|added| !added.matches(node.slot())) {
            return Err(Status::unresolvable(
                "node(s) didn't match scheduler-enforced node affinity",
            ));
        }
        if !required.of_pod.matches(node.slot()) {
            return Err(Status::unresolvable("node(s) didn't match Pod's node affinity/selector"));
        }
        Ok(())
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        if preferred_terms(&pod.pod.spec).is_empty() && self.added_preferences().is_empty() {
            return PreScoreResult::Skip;
        }
        state.put(ScoreState(self.compile_preferences(pod, nodes)));
        PreScoreResult::All
    }
}

impl Score for NodeAffinity {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        let Some(ScoreState(preferred)) = state.get::<ScoreState>() else { return 0 };
        preferred.iter().map(|terms| terms.score(node.slot())).sum()
    }

    fn normalize_score(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        default_normalize_score(scores);
    }
}
