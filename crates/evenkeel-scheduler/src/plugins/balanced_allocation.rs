//! NodeResourcesBalancedAllocation: rather nodes on which CPU and memory run out together.

use crate::{
    framework::{CycleState, Interest, MAX_NODE_SCORE, Plugin, PreScore, PreScored, Score},
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// Scores how much more (or less) even a node's use of CPU and memory would become.
#[derive(Debug, Clone, Copy)]
pub struct BalancedAllocation;

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn events(&self) -> Vec<Interest> {
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
    /// A pod that asks for nothing is left out, or all of them would go to one node.
    fn pre_score(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScored {
        let asks = &pod.asks.requests;
        if asks.cpu == 0 && asks.memory == 0 { PreScored::Skip } else { PreScored::All }
    }
}

impl Score for BalancedAllocation {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> i64 {
        let asks = &pod.asks.requests;
        let (cpu, memory) = (node.requested_cpu(), node.requested_memory());
        let with = evenness((cpu + asks.cpu, node.cpu()), (memory + asks.memory, node.memory()));
        let without = evenness((cpu, node.cpu()), (memory, node.memory()));
        let half = MAX_NODE_SCORE / 2;
        half + (half + with - without) / 2
    }
}

/// 100 when both are used to the same share, 50 when one is full and the other empty.
fn evenness(cpu: (i64, i64), memory: (i64, i64)) -> i64 {
    let share =
        |(used, most): (i64, i64)| (most != 0).then(|| (used as f64 / most as f64).min(1.0));
    let deviation = match (share(cpu), share(memory)) {
        (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
        _ => 0.0,
    };
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
}
