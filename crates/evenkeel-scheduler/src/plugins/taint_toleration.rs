//! TaintToleration: pods keep off taints they do not tolerate, and rather off those they need not mind.
//!
//! Nodes share a few distinct lists of taints, so that each is judged once for each pod and the rest is looking up.

use evenkeel_api::{
    placement::{forbidding, tolerates},
    views::{Node, Taint, Toleration},
};
use std::sync::Arc;

use super::normalise;
use crate::{
    framework::{
        Action, Change, CycleState, Edit, Filter, Filtered, Hint, Interest, MAX_NODE_SCORE, Plugin,
        PreFilter, PreFiltered, PreScore, PreScored, Rejection, Resource, Score,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// Judges taints against tolerations.
#[derive(Debug, Clone, Copy)]
pub struct TaintToleration;

/// For each distinct list of taints, whether the pod may run under it.
struct Allowed(Vec<bool>);

/// For each distinct list of taints, how many of them the pod would rather avoid.
struct Disliked(Vec<i64>);

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn events(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::Node, &[Action::Add, Action::UpdateNodeTaint]),
            Interest::new(Resource::TargetPod, &[Action::UpdatePodToleration]),
        ]
    }

    fn hint(&self, pod: &PodInfo, change: &Change) -> Hint {
        let tolerates =
            |node: &Node| forbidding(&pod.pod.spec.tolerations, &node.spec.taints).is_none();
        match change {
            Change::Node(Edit::Added(node)) => Hint::when(tolerates(node)),
            Change::Node(Edit::Updated { old, new }) => {
                Hint::when(!tolerates(old) && tolerates(new))
            }
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

impl PreFilter for TaintToleration {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFiltered, Rejection> {
        let tolerations = &pod.pod.spec.tolerations;
        let allowed = |taints: &Arc<[Taint]>| forbidding(tolerations, taints).is_none();
        let allowed: Vec<bool> = nodes.taint_sets().iter().map(allowed).collect();
        if allowed.iter().all(|allowed| *allowed) {
            return Ok(PreFiltered::Skip);
        }
        state.put(Allowed(allowed));
        Ok(PreFiltered::All)
    }
}

impl Filter for TaintToleration {
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> Filtered {
        let allowed = match state.get::<Allowed>() {
            Some(Allowed(allowed)) => allowed[node.taint_set()],
            None => forbidding(&pod.pod.spec.tolerations, node.taints()).is_none(),
        };
        if allowed {
            Ok(())
        } else {
            Err(Rejection::unresolvable("node(s) had untolerated taint(s)"))
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
    ) -> PreScored {
        let soft =
            |toleration: &&Toleration| matches!(&*toleration.effect, "" | "PreferNoSchedule");
        let tolerations: Vec<&Toleration> = pod.pod.spec.tolerations.iter().filter(soft).collect();
        let disliked = |taints: &Arc<[Taint]>| {
            let soft = taints.iter().filter(|taint| &*taint.effect == "PreferNoSchedule");
            soft.filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
                .count() as i64
        };
        let counts: Vec<i64> = nodes.taint_sets().iter().map(disliked).collect();
        if counts.iter().all(|count| *count == 0) {
            return PreScored::Same(MAX_NODE_SCORE);
        }
        state.put(Disliked(counts));
        PreScored::All
    }
}

impl Score for TaintToleration {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        state.get::<Disliked>().map_or(0, |Disliked(counts)| counts[node.taint_set()])
    }

    fn normalise(&self, _: &CycleState, _: &[NodeRef<'_>], scores: &mut [i64]) {
        normalise(scores, true);
    }
}
