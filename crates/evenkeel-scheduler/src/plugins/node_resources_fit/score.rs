//! Scoring strategies: LeastAllocated, MostAllocated and RequestedToCapacityRatio.

use super::{NodeResourcesFit, Strategy};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, PreScoreResult, Score},
    nodes::{NodeRef, NodeTable},
    plugins::{
        amounts::{AbsentRequests, Amount, Requests},
        shape::Shape,
    },
    pod::PodInfo,
};

/// The pod's request for each scored resource. PreScore stores it in the cycle state.
struct PodRequests(Requests);

impl PreScore for NodeResourcesFit {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        state.put(PodRequests(self.scored_resources.requests_with_defaults(pod)));
        PreScoreResult::All
    }
}

impl Score for NodeResourcesFit {
    fn score(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> i64 {
        match state.get::<PodRequests>() {
            Some(PodRequests(requests)) => self.score_node(node, requests),
            None => self.score_node(node, &self.scored_resources.requests_with_defaults(pod)),
        }
    }

    fn score_all(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        // This holds the requests if PreScore has not stored them.
        let computed;
        let requests = match state.get::<PodRequests>() {
            Some(PodRequests(requests)) => requests,
            None => {
                computed = self.scored_resources.requests_with_defaults(pod);
                &computed
            }
        };
        scores.extend(nodes.iter().map(|node| self.score_node(*node, requests)));
    }
}

impl NodeResourcesFit {
    /// Scores a node by the strategy. `requests` are the pod's requests for the scored resources.
    fn score_node(&self, node: NodeRef<'_>, requests: &[i64]) -> i64 {
        match &self.strategy {
            Strategy::LeastAllocated => {
                self.weighted_mean(node, requests, |requested, allocatable| {
                    if requested > allocatable {
                        0
                    } else {
                        percentage(allocatable - requested, allocatable)
                    }
                })
            }
            Strategy::MostAllocated => {
                self.weighted_mean(node, requests, |requested, allocatable| {
                    percentage(requested.min(allocatable), allocatable)
                })
            }
            Strategy::RequestedToCapacityRatio(shape) => {
                self.weighted_mean_by_shape(node, requests, shape)
            }
        }
    }

    /// Returns the amounts of the scored resource with this index. Pods without a request count with a default request.
    #[inline]
    fn amount_on(&self, index: usize, node: NodeRef<'_>, requests: &[i64]) -> Option<Amount> {
        self.scored_resources.amount_on(index, node, requests, AbsentRequests::Default)
    }

    /// Returns the weighted mean of the resources' scores. `score` receives the requested and the allocatable amount.
    #[inline]
    fn weighted_mean(
        &self,
        node: NodeRef<'_>,
        requests: &[i64],
        score: impl Fn(i64, i64) -> i64,
    ) -> i64 {
        let mut sum = 0;
        let mut weights = 0;
        for index in 0..self.scored_resources.len() {
            let Some(amount) = self.amount_on(index, node, requests) else { continue };
            sum += score(amount.requested_with_pod, amount.allocatable) * amount.weight;
            weights += amount.weight;
        }
        if weights == 0 { 0 } else { sum / weights }
    }

    /// Returns the weighted mean of the resources' scores by the shape. Like upstream, ignores resources that score 0.
    fn weighted_mean_by_shape(&self, node: NodeRef<'_>, requests: &[i64], shape: &Shape) -> i64 {
        let mut sum = 0;
        let mut weights = 0;
        for index in 0..self.scored_resources.len() {
            let Some(amount) = self.amount_on(index, node, requests) else { continue };
            let score = shape.score_for(amount.requested_with_pod, amount.allocatable);
            if score > 0 {
                sum += score * amount.weight;
                weights += amount.weight;
            }
        }
        if weights == 0 { 0 } else { (sum as f64 / weights as f64).round() as i64 }
    }
}

/// Returns `part` as a percentage of `whole`.
fn percentage(part: i64, whole: i64) -> i64 {
    part.wrapping_mul(MAX_NODE_SCORE) / whole
}
