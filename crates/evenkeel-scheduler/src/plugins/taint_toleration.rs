//! TaintToleration: rejects nodes with taints that the pod does not tolerate.
//!
//! Nodes share a few distinct taint lists. The plugin evaluates each list only once for a pod.
//!
//! Upstream: `plugins/tainttoleration`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | effects `NoSchedule`, `NoExecute` reject pods without toleration | `ToleratedTaintSets`, `pre_filter`, `filter` |
//! | operators `Lt` and `Gt` (KEP-5471) | `TaintToleration` |
//! | effect `PreferNoSchedule` lowers the score | `IntolerableCounts`, `pre_score`, `score` |

use evenkeel_api::views::{Node, Taint, Toleration};
use evenkeel_component_helpers::scheduling::corev1::TolerationOperators;
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
#[derive(Debug, Clone, Copy, Default)]
pub struct TaintToleration {
    operators: TolerationOperators,
}

impl TaintToleration {
    /// Returns the plugin with the operators that match taints. The default is without comparison of numbers.
    pub fn new(operators: TolerationOperators) -> Self {
        Self { operators }
    }
}

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
            let tolerations = &pod.pod.spec.tolerations;
            self.operators.find_untolerated_taint(tolerations, &node.spec.taints).is_none()
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
        let is_tolerated = |taints: &Arc<[Taint]>| {
            self.operators.find_untolerated_taint(tolerations, taints).is_none()
        };
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
            None => {
                let tolerations = &pod.pod.spec.tolerations;
                self.operators.find_untolerated_taint(tolerations, node.taints()).is_none()
            }
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
                && !soft_tolerations
                    .iter()
                    .any(|toleration| self.operators.tolerates(toleration, taint))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{info, node, table};
    use serde_json::json;

    /// Returns whether the pod passes the filter on each node, and each node's score.
    fn results(enabled: bool, nodes: &NodeTable, pod: &PodInfo) -> Vec<(bool, i64)> {
        let plugin = TaintToleration::new(TolerationOperators::with_comparison(enabled));
        let mut state = CycleState::default();
        assert!(plugin.pre_filter(&mut state, pod, nodes).is_ok());
        let all: Vec<_> = nodes.iter().collect();
        let _ = plugin.pre_score(&mut state, pod, nodes, &all);
        all.iter()
            .map(|node| {
                (plugin.filter(&state, pod, *node).is_ok(), plugin.score(&state, pod, *node))
            })
            .collect()
    }

    #[test]
    fn numbers_are_compared_with_the_feature_gate() {
        let tainted = |value: &str, effect: &str| json!({ "spec": { "taints": [{ "key": "sla", "value": value, "effect": effect }] } });
        let nodes = table(&[
            node("a", &tainted("950", "NoSchedule")),
            node("b", &tainted("900", "NoSchedule")),
            node("c", &tainted("950", "PreferNoSchedule")),
            node("d", &tainted("900", "PreferNoSchedule")),
            node("e", &tainted("high", "NoExecute")),
        ]);
        let (yes, no) = ((true, 0), (false, 0));
        // Operator and value of the toleration, and the results with the gate.
        let table = [
            ("Gt", "900", [yes, no, yes, (true, 1), no]),
            ("Lt", "950", [no, yes, (true, 1), yes, no]),
            ("Gt", "high", [no, no, (true, 1), (true, 1), no]),
            ("Equal", "950", [yes, no, yes, (true, 1), no]),
            ("Exists", "", [yes; 5]),
        ];
        for (operator, value, expected) in table {
            let toleration = json!({ "key": "sla", "operator": operator, "value": value });
            let pod = info("p", &json!({ "spec": { "tolerations": [toleration] } }));
            assert_eq!(results(true, &nodes, &pod), expected, "{operator} {value}");
            if matches!(operator, "Lt" | "Gt") {
                let none = [no, no, (true, 1), (true, 1), no];
                assert_eq!(results(false, &nodes, &pod), none, "{operator} {value}");
            } else {
                assert_eq!(results(false, &nodes, &pod), expected, "{operator} {value}");
            }
        }
    }

    #[test]
    fn a_node_whose_taint_becomes_comparable_may_take_the_pod() {
        let with_taint = |value: &str| {
            let taint = json!({ "key": "sla", "value": value, "effect": "NoSchedule" });
            node("n", &json!({ "spec": { "taints": [taint] } }))
        };
        let toleration = json!({ "key": "sla", "operator": "Gt", "value": "900" });
        let pod = info("p", &json!({ "spec": { "tolerations": [toleration] } }));
        let change =
            Change::Node(Delta::Updated { old: with_taint("900"), new: with_taint("901") });
        for (enabled, expected) in [(true, QueueingHint::Queue), (false, QueueingHint::Skip)] {
            let plugin = TaintToleration::new(TolerationOperators::with_comparison(enabled));
            assert_eq!(plugin.queueing_hint(&pod, &change), expected, "{enabled}");
        }
    }
}
