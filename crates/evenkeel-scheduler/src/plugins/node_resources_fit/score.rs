//! Scoring strategies: LeastAllocated, MostAllocated and RequestedToCapacityRatio.

use super::{NodeResourcesFit, Strategy};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, PreScoreResult, Score},
    nodes::{NodeRef, NodeTable},
    plugins::{amounts::Requests, shape::Shape},
    pod::PodInfo,
};

/// The pod's request for each counted resource.
struct PodRequests(Requests);

impl PreScore for NodeResourcesFit {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        state.put(PodRequests(self.counted.requests_with_defaults(pod)));
        PreScoreResult::All
    }
}

impl Score for NodeResourcesFit {
    fn score(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> i64 {
        match state.get::<PodRequests>() {
            Some(PodRequests(requests)) => self.score_node(node, requests),
            None => self.score_node(node, &self.counted.requests_with_defaults(pod)),
        }
    }

    fn score_all(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        let computed;
        let requests = match state.get::<PodRequests>() {
            Some(PodRequests(requests)) => requests,
            None => {
                computed = self.counted.requests_with_defaults(pod);
                &computed
            }
        };
        scores.extend(nodes.iter().map(|node| self.score_node(*node, requests)));
    }
}

impl NodeResourcesFit {
    fn score_node(&self, node: NodeRef<'_>, requests: &[i64]) -> i64 {
        match &self.strategy {
            Strategy::LeastAllocated => {
                self.mean(node, requests, |after, allocatable| match after > allocatable {
                    true => 0,
                    false => percentage(allocatable - after, allocatable),
                })
            }
            Strategy::MostAllocated => self.mean(node, requests, |after, allocatable| {
                percentage(after.min(allocatable), allocatable)
            }),
            Strategy::RequestedToCapacityRatio(shape) => self.by_shape(node, requests, shape),
        }
    }

    /// Returns the weighted mean of the resources' scores. `score` receives the requested and the allocatable amount.
    #[inline]
    fn mean(&self, node: NodeRef<'_>, requests: &[i64], score: impl Fn(i64, i64) -> i64) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for index in 0..self.counted.len() {
            let Some(amount) = self.counted.on(index, node, requests, true) else { continue };
            sum += score(amount.after, amount.allocatable) * amount.weight;
            weights += amount.weight;
        }
        if weights == 0 { 0 } else { sum / weights }
    }

    /// Returns the weighted mean of the resources' scores by the shape, without resources that score 0.
    fn by_shape(&self, node: NodeRef<'_>, requests: &[i64], shape: &Shape) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for index in 0..self.counted.len() {
            let Some(amount) = self.counted.on(index, node, requests, true) else { continue };
            let score = shape.score_for(amount.after, amount.allocatable);
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
