//! How full nodes would be.

use super::{NodeResourcesFit, Strategy};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, PreScored, Score},
    nodes::{NodeRef, NodeTable},
    plugins::amounts::{Amount, Asked},
    pod::PodInfo,
};

/// What the pod asks for, of each resource that counts.
struct Asks(Asked);

impl PreScore for NodeResourcesFit {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScored {
        state.put(Asks(self.counted.asked_with_floor(pod)));
        PreScored::All
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
        let amounts = self.counted.on(node, asked, true);
        match &self.strategy {
            Strategy::LeastAllocated => mean(amounts, |after, has| match after > has {
                true => 0,
                false => share(has - after, has),
            }),
            Strategy::MostAllocated => mean(amounts, |after, has| share(after.min(has), has)),
            Strategy::RequestedToCapacityRatio(shape) => {
                let scores =
                    amounts.map(|one| (shape.of_share(one.after, one.allocatable), one.weight));
                // What scores nothing is not counted at all.
                let (sum, weights) = scores
                    .filter(|(score, _)| *score > 0)
                    .fold((0, 0), |(sum, all), (score, weight)| {
                        (sum + score * weight, all + weight)
                    });
                if weights == 0 { 0 } else { (sum as f64 / weights as f64).round() as i64 }
            }
        }
    }
}

/// The weighted mean of a score of what would be requested of how much there is.
fn mean(amounts: impl Iterator<Item = Amount>, score: impl Fn(i64, i64) -> i64) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for one in amounts {
        sum += score(one.after, one.allocatable) * one.weight;
        weights += one.weight;
    }
    if weights == 0 { 0 } else { sum / weights }
}

/// Hundredths.
fn share(part: i64, whole: i64) -> i64 {
    part.wrapping_mul(MAX_NODE_SCORE) / whole
}
