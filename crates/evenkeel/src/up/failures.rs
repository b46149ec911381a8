//! Failures by plan: partitions nodes from the API server, as `evenkeel fault` does.

use super::config::Outage;
use crate::fault::{end_after, end_planned_outage, partition_by_plan};
use evenkeel_api::views::Node;
use evenkeel_nodes::FaultEnd;
use evenkeel_runtime::{cache::Caches, client::Client};
use std::{collections::BTreeSet, time::Duration};

/// Maximum number of attempts to begin an outage.
const MAX_ATTEMPTS: u32 = 5;

/// Delay after an attempt that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Begins each outage at its time, which counts from now: the cluster is ready. The kubelets end the outages. All times are
/// those of the client's clock, which is the cluster's.
pub(super) async fn run(client: Client, outages: Vec<Outage>) {
    let ready = client.clock().now();
    let mut passed = Duration::ZERO;
    for outage in outages {
        client.clock().sleep(outage.after.saturating_sub(passed)).await;
        passed = outage.after;
        let end = outage.end.map_or(FaultEnd::Open, |end| end_after(ready, end));
        begin(&client, &outage.node, end).await;
    }
}

/// Ends the outages that the plan of a former run gave some nodes, so that the plan begins anew. Returns the names of the
/// nodes that had one. A refused change is logged: the node stays partitioned.
pub(super) async fn end_former(
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
                "failures: the outage of a former run cannot be ended: {error:#}; end it with: evenkeel fault node/{node_name} --stop"
            ),
        }
    }
    ended
}

/// Begins an outage. After some failures, which are logged, it is left out.
async fn begin(client: &Client, node: &str, end: FaultEnd) {
    for attempt in 1..=MAX_ATTEMPTS {
        match partition_by_plan(client, node, end).await {
            Ok(()) => {
                tracing::info!(node, %end, "failure by plan");
                return;
            }
            Err(error) => tracing::warn!(attempt, "failures: the outage cannot begin: {error:#}"),
        }
        client.clock().sleep(RETRY_DELAY).await;
    }
}
