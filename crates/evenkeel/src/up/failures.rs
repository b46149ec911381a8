//! Failures by plan: takes nodes' connections and gives them back, by the annotation of the simulation.

use super::{config::Step, equip::patch_object};
use evenkeel_nodes::SILENT;
use evenkeel_runtime::client::Client;
use serde_json::json;
use std::time::Duration;

/// Number of attempts to change the connection of a node.
const MAX_ATTEMPTS: u32 = 5;

/// Delay after an attempt that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Carries out the steps. The time counts from now: the cluster is ready.
pub(super) async fn run(client: Client, steps: Vec<Step>) {
    let mut passed = Duration::ZERO;
    for step in steps {
        client.clock().sleep(step.at.saturating_sub(passed)).await;
        passed = step.at;
        for node in &step.lost {
            change(&client, node, true).await;
        }
        for node in &step.restored {
            change(&client, node, false).await;
        }
        tracing::info!(lost = ?step.lost, restored = ?step.restored, "failure by plan");
    }
}

/// Sets or removes the annotation of a node. After some failures, which are logged, the step is left out.
async fn change(client: &Client, node: &str, is_lost: bool) {
    let value = is_lost.then_some("true");
    let patch = json!({"metadata": {"annotations": {SILENT: value}}});
    for attempt in 1..=MAX_ATTEMPTS {
        match patch_object(client, &format!("/api/v1/nodes/{node}"), &patch).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(
                    attempt,
                    "failures: the node {node} cannot be annotated with {SILENT}: {error:#}"
                );
            }
        }
        client.clock().sleep(RETRY_DELAY).await;
    }
}
