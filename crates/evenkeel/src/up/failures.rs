//! Planned failures: partitions nodes from the API server, as `evenkeel fault` does.

use super::config::Outage;
use crate::fault::{end_after, end_planned_outage, start_planned_outage};
use evenkeel_api::views::Node;
use evenkeel_nodes::FaultEnd;
use evenkeel_runtime::{cache::Caches, client::Client};
use std::{collections::BTreeSet, time::Duration};

/// Maximum number of attempts to start an outage.
const MAX_ATTEMPTS: u32 = 5;

/// Delay after an attempt that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Starts each outage at its time, counted from the call, when the cluster is ready. The kubelets end the outages. All
/// times are times of the client's clock, which follows the cluster's clock.
pub(super) async fn run(client: Client, outages: Vec<Outage>) {
    let ready = client.clock().now();
    let mut passed = Duration::ZERO;
    for outage in outages {
        client.clock().sleep(outage.start.saturating_sub(passed)).await;
        passed = outage.start;
        let end = outage.end.map_or(FaultEnd::Open, |end| end_after(ready, end));
        start(&client, &outage.node, end).await;
    }
}

/// Ends the planned outages of the previous run, so that the plan starts again. Returns the names of the nodes that had an
/// outage. A refused change is logged: the node stays partitioned.
pub(super) async fn end_previous(
    client: &Client,
    caches: &Caches,
    names: &[String],
) -> BTreeSet<String> {
    let nodes = caches.of::<Node>();
    let mut ended = BTreeSet::new();
    for node in names.iter().filter_map(|name| nodes.get("", name)) {
        let node_name = node.meta.name.to_string();
        match end_planned_outage(client, &node).await {
            Ok(true) => {
                ended.insert(node_name);
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(
                node = node_name,
                "failures: the outage of the previous run cannot be ended: {error:#}; end it with: evenkeel fault node/{node_name} --stop"
            ),
        }
    }
    ended
}

/// Starts an outage. Logs each failed attempt, and skips the outage after [`MAX_ATTEMPTS`].
async fn start(client: &Client, node: &str, end: FaultEnd) {
    for attempt in 1..=MAX_ATTEMPTS {
        match start_planned_outage(client, node, end).await {
            Ok(()) => {
                tracing::info!(node, %end, "planned failure");
                return;
            }
            Err(error) => tracing::warn!(attempt, "failures: the outage cannot start: {error:#}"),
        }
        client.clock().sleep(RETRY_DELAY).await;
    }
}
