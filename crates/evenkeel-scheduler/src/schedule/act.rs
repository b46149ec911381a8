//! Calls the extenders for an attempt: filter verbs one after the other, prioritize verbs concurrently.

use futures::future::join_all;

use super::{
    Outcome,
    attempt::{Attempt, Step},
    cycle::Cycle,
};
use crate::{
    framework::{CycleState, ExtenderError, ExtenderFiltered, ExtenderScores},
    metrics::Metrics,
};
use std::sync::Arc;

/// Runs one attempt. The nodes are unchanged afterwards. `metrics` counts running extender calls.
///
/// Upstream: `schedulePod`.
pub(crate) async fn schedule_pod(
    cycle: &mut Cycle<'_>,
    state: &mut CycleState,
    metrics: Option<&Metrics>,
) -> Outcome {
    let (mut attempt, mut step) = Attempt::begin(cycle, state);
    loop {
        step = match step {
            Step::Done(outcome) => return outcome,
            Step::Filter { extender, nodes } => {
                let response = filter(cycle, extender, &nodes).await;
                attempt.resume_after_filter(cycle, state, extender, response)
            }
            Step::Prioritize { extenders, nodes } => {
                let responses = prioritize(cycle, &extenders, &nodes, metrics).await;
                attempt.resume_after_prioritize(cycle, state, responses)
            }
        };
    }
}

/// Calls the filter of an extender, and logs its failure if the attempt ignores it.
async fn filter(
    cycle: &Cycle<'_>,
    extender: usize,
    nodes: &[Arc<str>],
) -> Result<ExtenderFiltered, ExtenderError> {
    let extender = &cycle.extenders[extender];
    let response = extender.filter(cycle.pod, nodes).await;
    if let Err(error) = &response
        && extender.is_ignorable()
    {
        tracing::info!(extender = extender.name(), %error, "Extender left out");
    }
    response
}

/// Calls the prioritize function of extenders concurrently. Returns their results in the same order.
async fn prioritize(
    cycle: &Cycle<'_>,
    extenders: &[usize],
    nodes: &[Arc<str>],
    metrics: Option<&Metrics>,
) -> Vec<Result<ExtenderScores, ExtenderError>> {
    let responses = extenders.iter().map(async |extender| {
        let extender = &cycle.extenders[*extender];
        let _running = metrics.map(|metrics| metrics.count_running("prioritizing_extender"));
        let response = extender.prioritize(cycle.pod, nodes).await;
        if let Err(error) = &response {
            tracing::debug!(extender = extender.name(), %error, "Extender gave no scores");
        }
        response
    });
    join_all(responses).await
}
