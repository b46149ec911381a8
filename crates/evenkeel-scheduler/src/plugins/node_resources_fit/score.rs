//! Scoring strategies.

use super::{NodeResourcesFit, Strategy};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, PreScoreResult, Score},
    nodes::{NodeRef, NodeTable},
    plugins::{amounts::Asked, shape::Shape},
    pod::PodInfo,
};

/// Requests of the pod for each counted resource.
struct Asks(Asked);

impl PreScore for NodeResourcesFit {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        state.put(Asks(self.counted.asked_with_floor(pod)));
        PreScoreResult::All
    }
}

impl Score for NodeResourcesFit {
    fn score(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> i64 {
        match state.get::<Asks>() {
            Some(Asks(asked)) => self.of(node, asked),
            None => self.of(node, &self.counted.asked_with_floor(pod)),
        }
    }

    fn score_all(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &[NodeRef<'_>],
        scores: &mut Vec<i64>,
    ) {
        let own;
        let asked = match state.get::<Asks>() {
            Some(Asks(asked)) => asked,
            None => {
                own = self.counted.asked_with_floor(pod);
                &own
            }
        };
        scores.extend(nodes.iter().map(|node| self.of(*node, asked)));
    }
}

impl NodeResourcesFit {
    fn of(&self, node: NodeRef<'_>, asked: &[i64]) -> i64 {
        match &self.strategy {
            Strategy::LeastAllocated => self.mean(node, asked, |after, has| match after > has {
                true => 0,
                false => share(has - after, has),
            }),
            Strategy::MostAllocated => {
                self.mean(node, asked, |after, has| share(after.min(has), has))
            }
            Strategy::RequestedToCapacityRatio(shape) => self.by_shape(node, asked, shape),
        }
    }

    /// Weighted mean of the resources' scores, each from requested and allocatable amount.
    #[inline]
    fn mean(&self, node: NodeRef<'_>, asked: &[i64], score: impl Fn(i64, i64) -> i64) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for n in 0..self.counted.len() {
            let Some(one) = self.counted.on(n, node, asked, true) else { continue };
            sum += score(one.after, one.allocatable) * one.weight;
            weights += one.weight;
        }
        if weights == 0 { 0 } else { sum / weights }
    }

    /// Weighted mean of shape scores; resources that score 0 are ignored.
    fn by_shape(&self, node: NodeRef<'_>, asked: &[i64], shape: &Shape) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for n in 0..self.counted.len() {
            let Some(one) = self.counted.on(n, node, asked, true) else { continue };
            let score = shape.of_share(one.after, one.allocatable);
            if score > 0 {
                sum += score * one.weight;
                weights += one.weight;
            }
        }
        if weights == 0 { 0 } else { (sum as f64 / weights as f64).round() as i64 }
    }
}

/// Returns `part` of `whole` in percent.
fn share(part: i64, whole: i64) -> i64 {
    part.wrapping_mul(MAX_NODE_SCORE) / whole
}
