//! NodeAffinity: selects nodes by `spec.nodeSelector` and node affinity of the pod, and by the plugin's arguments.
//!
//! Upstream: `plugins/nodeaffinity`.
//!
//! | documented | where |
//! |---|---|
//! | `spec.nodeSelector` | `node_selector::labels`, `filter` |
//! | `requiredDuringSchedulingIgnoredDuringExecution` | `node_selector::Required`, `filter` |
//! | `preferredDuringSchedulingIgnoredDuringExecution`, its `weight` | `node_selector::Preferred`, `pre_score`, `score` |
//! | `nodeSelectorTerms` are ORed, an empty one matches nothing | `node_selector::any`, `node_selector::is_empty` |
//! | `matchExpressions` are ANDed; operators `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt` | `node_selector::term_tests`, `node_selector::by_label` |
//! | `matchFields`: `metadata.name` | `node_selector::by_field`, `node_selector::named_nodes` |
//! | node affinity per scheduling profile (`addedAffinity`) | `Args`, `added`, `added_preferences` |

use std::sync::Arc;

use super::{
    default_normalize_score,
    node_selector::{Preferred, Required, named_nodes, preferences_of, selector_of},
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

    fn added(&self) -> Option<&views::NodeSelector> {
        let added = self.args.added_affinity.as_ref()?;
        added.required_during_scheduling_ignored_during_execution.as_deref()
    }

    fn added_preferences(&self) -> &[views::PreferredSchedulingTerm] {
        let added = self.args.added_affinity.as_ref();
        added.map_or(&[], |added| &added.preferred_during_scheduling_ignored_during_execution)
    }

    fn preferences(&self, pod: &PodInfo, nodes: &NodeTable) -> [Preferred; 2] {
        let of_pod = Preferred::compile(preferences_of(&pod.pod.spec), nodes);
        [Preferred::compile(self.added_preferences(), nodes), of_pod]
    }
}

/// Required selectors: the added one and the pod's own.
struct FilterState {
    added: Option<Required>,
    of_pod: Required,
}

/// Preferred terms: the added ones and the pod's own.
struct ScoreState([Preferred; 2]);

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
        let added = |node: &Node| {
            let mut terms = self.added().map(|added| added.node_selector_terms.iter());
            terms.as_mut().is_none_or(|terms| terms.any(|term| nodeaffinity::matches(term, node)))
        };
        let matches = |node: &Node| nodeaffinity::required(&pod.pod.spec, node);
        match change {
            Change::Node(edit) => QueueingHint::when(edit.now().is_some_and(|new| {
                added(new) && matches(new) && !edit.before().is_some_and(|old| matches(old))
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
        let added = self.added();
        if selector_of(spec).is_none() && spec.node_selector.is_empty() && added.is_none() {
            return Ok(PreFilterResult::Skip);
        }
        let added = added.map(|added| Required::compile_selector(added, nodes));
        state.put(FilterState { added, of_pod: Required::compile(spec, nodes) });
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
        if required.added.as_ref().is_some_and(|added| !added.holds(node.slot())) {
            return Err(Status::unresolvable(
                "node(s) didn't match scheduler-enforced node affinity",
            ));
        }
        if !required.of_pod.holds(node.slot()) {
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
        if preferences_of(&pod.pod.spec).is_empty() && self.added_preferences().is_empty() {
            return PreScoreResult::Skip;
        }
        state.put(ScoreState(self.preferences(pod, nodes)));
        PreScoreResult::All
    }
}

impl Score for NodeAffinity {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        let Some(ScoreState(preferred)) = state.get::<ScoreState>() else { return 0 };
        preferred.iter().map(|terms| terms.weight(node.slot())).sum()
    }

    fn normalize_score(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        default_normalize_score(scores, false);
    }
}
