//! NodeResourcesBalancedAllocation: prefers nodes whose resources are used evenly.
//!
//! Upstream: `plugins/noderesources/balanced_allocation.go`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `resources`, the resources that count | `Args` |
//! | score: the smaller the standard deviation of the utilizations, the higher | `balance` |
//! | a pod that improves a node's balance gives it a score above 75 | `score_node` |
//! | pods without requests (best effort) are not scored | `pre_score` |

use smallvec::SmallVec;

pub use super::amounts::ResourceWeight;
use super::amounts::{AbsentRequests, Requests, ScoredResources};
use crate::{
    framework::{
        ClusterEvent, CycleState, MAX_NODE_SCORE, Plugin, PreScore, PreScoreResult, Score,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// The NodeResourcesBalancedAllocation plugin.
#[derive(Debug, Clone)]
pub struct BalancedAllocation {
    resources: ScoredResources,
}

/// Arguments of [`BalancedAllocation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Resources to balance. Their weights have no effect.
    pub resources: Vec<ResourceWeight>,
}

impl Default for Args {
    fn default() -> Self {
        Self { resources: ResourceWeight::standard() }
    }
}

impl Default for BalancedAllocation {
    fn default() -> Self {
        Self::new(&Args::default())
    }
}

impl BalancedAllocation {
    /// Returns the plugin with these arguments.
    pub fn new(args: &Args) -> Self {
        Self { resources: ScoredResources::new(&args.resources) }
    }

    /// Returns a score from 50 to 100: 75 if the pod does not change the node's balance, and more if it improves it.
    fn score_node(&self, node: NodeRef<'_>, requests: &[i64]) -> i64 {
        let mut with_pod = Utilizations::new();
        let mut without_pod = Utilizations::new();
        for index in 0..self.resources.len() {
            let amount = self.resources.amount_on(index, node, requests, AbsentRequests::Zero);
            let Some(amount) = amount else { continue };
            let allocatable = amount.allocatable as f64;
            with_pod.push((amount.requested_with_pod as f64 / allocatable).min(1.0));
            without_pod.push((amount.requested as f64 / allocatable).min(1.0));
        }
        let improvement = balance(&with_pod) - balance(&without_pod);
        let half = MAX_NODE_SCORE / 2;
        half + (half + improvement) / 2
    }
}

/// The pod's request for each resource of the plugin.
struct PodRequests(Requests);

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        Vec::new()
    }

    fn as_pre_score(&self) -> Option<&dyn PreScore> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl PreScore for BalancedAllocation {
    /// Skips pods without requests. Otherwise all such pods would be scheduled to the same node.
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        let requests = self.resources.requests(pod);
        if requests.iter().all(|request| *request == 0) {
            return PreScoreResult::Skip;
        }
        state.put(PodRequests(requests));
        PreScoreResult::All
    }
}

impl Score for BalancedAllocation {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        state
            .get::<PodRequests>()
            .map_or(0, |PodRequests(requests)| self.score_node(node, requests))
    }

    fn score_all(
        &self,
        state: &CycleState,
        _: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        let Some(PodRequests(requests)) = state.get::<PodRequests>() else {
            return scores.resize(nodes.len(), 0);
        };
        scores.extend(nodes.iter().map(|node| self.score_node(*node, requests)));
    }
}

/// Utilization of each resource, from 0 to 1.
type Utilizations = SmallVec<[f64; 4]>;

/// Returns 100 minus the standard deviation of the utilizations in percent.
fn balance(utilizations: &[f64]) -> i64 {
    let deviation = match utilizations {
        [] | [_] => 0.0,
        [first, second] => ((first - second) / 2.0).abs(),
        _ => {
            let count = utilizations.len() as f64;
            let mean = utilizations.iter().fold(0.0, |sum, utilization| sum + utilization) / count;
            let squares =
                utilizations.iter().map(|utilization| (utilization - mean) * (utilization - mean));
            (squares.fold(0.0, |sum, square| sum + square) / count).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{info, node, table, with_requests},
        plugins::random_cluster::scores,
    };
    use serde_json::json;

    #[test]
    fn nodes_with_balanced_utilization_score_highest() {
        let mut nodes = table(&[node("a", &json!({})), node("b", &json!({}))]);
        nodes.place(info("first", &with_requests("1m", "4Gi")), "b");
        let check = |resources: &[&str], pod, expected: Option<[i64; 2]>| {
            let weighted = |name: &&str| ResourceWeight { name: (*name).into(), weight: 1 };
            let args = Args { resources: resources.iter().map(weighted).collect() };
            let scores = scores(&BalancedAllocation::new(&args), &nodes, &info("p", &pod));
            assert_eq!(
                scores.map(|scores| scores.into_values().collect::<Vec<_>>()),
                expected.map(Vec::from)
            );
        };
        let cpu_and_memory = &["cpu", "memory"];
        // The pod changes the balance of a from 100 to 75, and that of b from 75 to 99.
        check(cpu_and_memory, with_requests("2", "1Mi"), Some([62, 87]));
        check(cpu_and_memory, json!({}), None);
        check(&["cpu"], with_requests("2", "1Mi"), Some([75, 75]));
        check(&["cpu", "memory", "ephemeral-storage"], with_requests("2", "1Mi"), Some([63, 75]));
    }
}
