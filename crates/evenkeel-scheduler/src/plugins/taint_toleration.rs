//! TaintToleration: rejects nodes with taints that the pod does not tolerate.
//!
//! Nodes share a few distinct taint lists. The plugin evaluates each list only once for a pod.
//!
//! Upstream: `plugins/tainttoleration`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | effects `NoSchedule`, `NoExecute` reject pods without toleration | `ToleratedTaintSets`, `pre_filter`, `filter` |
//! | effect `PreferNoSchedule` lowers the score | `IntolerableCounts`, `pre_score`, `score` |

use evenkeel_api::views::{Node, Taint, Toleration};
use evenkeel_component_helpers::scheduling::corev1::{find_untolerated_taint, tolerates};
use std::sync::Arc;

use super::default_normalize_score_reversed;
use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, Delta, EventResource, Filter, MAX_NODE_SCORE,
        Plugin, PreFilter, PreFilterResult, PreScore, PreScoreResult, QueueingHint, Score, Status,
        StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// The TaintToleration plugin.
#[derive(Debug, Clone, Copy)]
pub struct TaintToleration;

/// For each distinct taint list, whether the pod tolerates it.
struct ToleratedTaintSets(Vec<bool>);

/// For each distinct taint list, the number of intolerable `PreferNoSchedule` taints.
struct IntolerableCounts(Vec<i64>);

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::Node, &[ActionType::Add, ActionType::UpdateNodeTaint]),
            ClusterEvent::new(EventResource::TargetPod, &[ActionType::UpdatePodToleration]),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        let tolerates = |node: &Node| {
            find_untolerated_taint(&pod.pod.spec.tolerations, &node.spec.taints).is_none()
        };
        match change {
            Change::Node(Delta::Added(node)) => QueueingHint::when(tolerates(node)),
            Change::Node(Delta::Updated { old, new }) => {
                QueueingHint::when(!tolerates(old) && tolerates(new))
            }
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

impl PreFilter for TaintToleration {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let tolerations = &pod.pod.spec.tolerations;
        let is_tolerated =
            |taints: &Arc<[Taint]>| find_untolerated_taint(tolerations, taints).is_none();
        let tolerated: Vec<bool> = nodes.taint_sets().iter().map(is_tolerated).collect();
        if tolerated.iter().all(|tolerated| *tolerated) {
            return Ok(PreFilterResult::Skip);
        }
        state.put(ToleratedTaintSets(tolerated));
        Ok(PreFilterResult::All)
    }
}

impl Filter for TaintToleration {
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let is_tolerated = match state.get::<ToleratedTaintSets>() {
            Some(ToleratedTaintSets(tolerated)) => tolerated[node.taint_set()],
            None => find_untolerated_taint(&pod.pod.spec.tolerations, node.taints()).is_none(),
        };
        if is_tolerated {
            Ok(())
        } else {
            Err(Status::unresolvable("node(s) had untolerated taint(s)"))
        }
    }
}

impl PreScore for TaintToleration {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        let tolerations = pod.pod.spec.tolerations.iter();
        let soft_tolerations: Vec<&Toleration> = tolerations
            .filter(|toleration| matches!(&*toleration.effect, "" | "PreferNoSchedule"))
            .collect();
        let is_intolerable = |taint: &&Taint| {
            &*taint.effect == "PreferNoSchedule"
                && !soft_tolerations.iter().any(|toleration| tolerates(toleration, taint))
        };
        let count_intolerable =
            |taints: &Arc<[Taint]>| taints.iter().filter(is_intolerable).count() as i64;
        let counts: Vec<i64> = nodes.taint_sets().iter().map(count_intolerable).collect();
        if counts.iter().all(|count| *count == 0) {
            return PreScoreResult::Same(MAX_NODE_SCORE);
        }
        state.put(IntolerableCounts(counts));
        PreScoreResult::All
    }
}

impl Score for TaintToleration {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        state
            .get::<IntolerableCounts>()
            .map_or(0, |IntolerableCounts(counts)| counts[node.taint_set()])
    }

    fn normalize_score(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        default_normalize_score_reversed(scores);
    }
}
