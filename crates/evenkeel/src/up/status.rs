//! Status of the cluster in this process: its report, and the conditions that a start waits for.

use crate::clusters::LiveStatus;
use evenkeel_api::{
    Kind, condition,
    time::Timestamp,
    views::{Namespace, Node, Pod, ServiceAccount},
};
use evenkeel_nodes::{NodeFaults, SILENT};
use evenkeel_plane::Plane;
use evenkeel_runtime::{
    cache::Caches, client::Client, clock::Clock, discovery::ServerResources, introspect::Inspect,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Interval between reads of the caches until the nodes are Ready.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Interval between discovery requests for the resources of unsynced caches.
const SERVED_INTERVAL: Duration = Duration::from_secs(2);

/// Interval between reads of the cache of service accounts during the start.
const ACCOUNT_INTERVAL: Duration = Duration::from_millis(2);

/// Maximum time for which a start waits for the default service account. Policies and webhooks in an old data folder may refuse
/// it forever.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// Namespace and name of the service account of pods that name none.
const DEFAULT_ACCOUNT: (&str, &str) = ("default", "default");

/// Name of the controller that creates this account.
const ACCOUNT_CONTROLLER: &str = "serviceaccount-controller";

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

/// Waits until discovery shows that the API server does not serve resources of unsynced caches, so that these never sync.
/// Returns these resources.
pub(super) async fn never_served(caches: &Caches, client: &Client) -> Vec<String> {
    loop {
        client.clock().sleep(SERVED_INTERVAL).await;
        if let Ok(served) = client.api_resources().await {
            let missing = unserved(&caches.unsynced(), &served);
            if !missing.is_empty() {
                return missing;
            }
        }
    }
}

/// Returns the resources that the server does not serve, except those of groups whose discovery failed.
fn unserved(needed: &[Kind], served: &ServerResources) -> Vec<String> {
    if !served.failed.is_empty() {
        return Vec::new();
    }
    let is_served = |kind: &Kind| {
        served.resources.iter().any(|resource| {
            resource.kind.plural == kind.plural && resource.kind.api_version() == kind.api_version()
        })
    };
    needed
        .iter()
        .filter(|kind| !is_served(kind))
        .map(|kind| format!("{} ({})", kind.plural, kind.api_version()))
        .collect()
}

/// Returns whether the controller that creates the default service account runs.
pub(super) fn makes_accounts(plane: &Plane) -> bool {
    let makes_accounts = |inspected: &Arc<dyn Inspect>| inspected.name() == ACCOUNT_CONTROLLER;
    plane.introspection().all().iter().any(makes_accounts)
}

/// Waits until the default service account of the namespace `default` exists, because the server refuses pods without it. Does
/// not wait if the controller that creates it does not run.
pub(super) async fn until_pods_are_admitted(plane: &Plane, clock: &Clock) {
    if !makes_accounts(plane) {
        return;
    }
    let exists = async {
        while lacks_default_account(plane.caches()) {
            clock.sleep(ACCOUNT_INTERVAL).await;
        }
    };
    tokio::select! {
        () = exists => {}
        () = clock.sleep(ACCOUNT_TIMEOUT) => tracing::warn!(
            "the service account default/default does not exist yet, so that pods are refused in the namespace default; the log \
             of {ACCOUNT_CONTROLLER} says why"
        ),
    }
}

/// Returns whether the namespace `default` exists without its default service account. In a cluster without controllers, the
/// namespace does not exist.
fn lacks_default_account(caches: &Caches) -> bool {
    let (namespace, name) = DEFAULT_ACCOUNT;
    caches.of::<Namespace>().get("", namespace).is_some()
        && caches.of::<ServiceAccount>().get(namespace, name).is_none()
}

/// Conditions that `--wait` waits for in addition to the caches.
#[derive(Debug, Clone, Default)]
pub(super) struct Awaited {
    /// Names of the simulated nodes, which may not be registered yet.
    pub(super) names: Vec<String>,
    /// Nodes whose partition has been ended. The caches may still have the partition.
    pub(super) reconnected: BTreeSet<String>,
    /// Faults of the simulated nodes.
    pub(super) faults: NodeFaults,
    /// Whether this process creates the default service account. Nodes also become Ready without controllers.
    pub(super) makes_accounts: bool,
}

/// Returns the objects that `--wait` still waits for. It does not wait for a partitioned node, which becomes Ready only when
/// the fault ends.
pub(super) fn pending(caches: &Caches, awaited: &Awaited, now: Timestamp) -> Vec<String> {
    let Awaited { names, reconnected, faults, makes_accounts } = awaited;
    let nodes = caches.of::<Node>();
    let mut pending = unready(&nodes.list(), faults, reconnected, now);
    let unregistered = names.iter().filter(|name| nodes.get("", name).is_none());
    pending.extend(unregistered.map(|name| format!("node {name}")));
    pending.extend(unsynced(caches));
    if *makes_accounts && lacks_default_account(caches) {
        pending.push("the default service account".to_owned());
    }
    pending
}

/// Returns the nodes that are not Ready but can become Ready.
fn unready(
    nodes: &[Arc<Node>],
    faults: &NodeFaults,
    reconnected: &BTreeSet<String>,
    now: Timestamp,
) -> Vec<String> {
    let is_partitioned = |node: &Node| {
        faults.fault(node, SILENT, now).is_some() && !reconnected.contains(&*node.meta.name)
    };
    let awaited = nodes.iter().filter(|node| !is_ready(node) && !is_partitioned(node));
    awaited.map(|node| format!("node {}", node.meta.name)).collect()
}

/// Waits until nothing is pending.
pub(super) async fn until_none_is_pending(pending: impl Fn() -> Vec<String>, clock: &Clock) {
    while !pending().is_empty() {
        clock.sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View as _};
    use evenkeel_runtime::discovery::Resource;
    use serde_json::json;

    #[test]
    fn a_node_that_a_fault_partitions_is_not_awaited() {
        let node = |name: &str, ready: &str, silent: &str| {
            let node = json!({
                "metadata": {"name": name, "annotations": {SILENT: silent}},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            });
            Arc::new(Node::decode(node.to_string().as_bytes(), Encoding::Json).expect("a node"))
        };
        let now = "2026-01-02T03:04:05Z".parse().expect("a time");
        let nodes = [
            node("ready", "True", "false"),
            node("new", "False", "false"),
            node("silent", "Unknown", "true"),
            node("later", "Unknown", "until 2026-01-02T03:04:06Z"),
            node("back", "Unknown", "until 2026-01-02T03:04:05Z"),
            node("ended", "Unknown", "true"),
        ];
        let reconnected = BTreeSet::from(["ended".to_owned()]);
        let faults = NodeFaults::default();
        let unready = |faults| unready(&nodes, faults, &reconnected, now);
        assert_eq!(unready(&faults), ["node new", "node back", "node ended"]);
        let always = json!({
            "metadata": {"name": "b", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeFaults": [
                {"kind": "silent", "meanTimeBetweenFailures": "1s", "meanTimeToRepair": "100000h"},
            ]},
        });
        let by_behavior = NodeFaults::of_objects([&always]);
        let awaited = ["node new", "node ended"];
        assert_eq!(unready(&by_behavior), awaited, "false is an annotation, too");
    }

    #[test]
    fn resources_that_are_not_served_are_found_by_version() {
        let kind =
            |version: &'static str| Kind::new("apps", version, "Deployment", "deployments", true);
        let resource = Resource {
            kind: kind("v1"),
            singular: "deployment".into(),
            verbs: Box::default(),
            short_names: Box::default(),
            categories: Box::default(),
            subresources: Box::default(),
            preferred: true,
        };
        let served = ServerResources { resources: vec![resource], failed: Vec::new() };
        assert_eq!(unserved(&[kind("v1")], &served), [""; 0]);
        assert_eq!(unserved(&[kind("v1"), kind("v2")], &served), ["deployments (apps/v2)"]);
    }
}
