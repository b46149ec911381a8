//! What a cluster in this process reports of itself.

use crate::clusters::LiveStatus;
use evenkeel_api::{
    condition,
    views::{Namespace, Node, Pod, ServiceAccount},
};
use evenkeel_runtime::{cache::Caches, clock::Clock};
use std::time::Duration;

/// Interval at which the caches are read until the nodes are Ready.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Namespace and name of the service account of pods that name none.
const DEFAULT_ACCOUNT: (&str, &str) = ("default", "default");

/// Returns the state of the cluster as JSON.
pub(super) fn report(caches: &Caches) -> String {
    let nodes = caches.of::<Node>().list();
    let status = LiveStatus {
        nodes: nodes.len(),
        ready_nodes: nodes.iter().filter(|node| is_ready(node)).count(),
        pods: caches.of::<Pod>().len(),
        unsynced: unsynced(caches),
    };
    serde_json::to_string(&status).unwrap_or_default()
}

fn is_ready(node: &Node) -> bool {
    condition::is_true(&node.status.conditions, "Ready")
}

/// Returns the resources whose caches have not synced.
pub(super) fn unsynced(caches: &Caches) -> Vec<String> {
    caches.unsynced().iter().map(|kind| kind.plural.clone().into_owned()).collect()
}

/// Returns what `--wait` waits for.
pub(super) fn pending(caches: &Caches) -> Vec<String> {
    let nodes = caches.of::<Node>();
    let mut pending: Vec<String> = nodes
        .list()
        .iter()
        .filter(|node| !is_ready(node))
        .map(|node| format!("node {}", node.meta.name))
        .collect();
    pending.extend(unsynced(caches));
    let (namespace, name) = DEFAULT_ACCOUNT;
    // A cluster without controllers has no such account.
    if caches.of::<Namespace>().get("", namespace).is_some()
        && caches.of::<ServiceAccount>().get(namespace, name).is_none()
    {
        pending.push("the default service account".to_owned());
    }
    pending
}

/// Waits until nothing is pending. Returns the number of nodes.
pub(super) async fn until_nodes_are_ready(caches: &Caches, clock: &Clock) -> usize {
    while !pending(caches).is_empty() {
        clock.sleep(POLL_INTERVAL).await;
    }
    caches.of::<Node>().len()
}
