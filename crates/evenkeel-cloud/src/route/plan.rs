//! Decisions of the route controller: routes to create and delete, and the nodes' condition `NetworkUnavailable`.

use crate::{Route, change::target};
use evenkeel_api::{
    Text,
    cidr::Cidr,
    time::{Timestamp, seconds},
    views::{Node, NodeAddress},
};
use evenkeel_runtime::plan::{EventRecord, Patch, PatchType, Plan};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Type of the condition that this controller writes.
const CONDITION: &str = "NetworkUnavailable";

/// Routes to delete, and then routes to create.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) delete: Vec<Route>,
    pub(super) create: Vec<Creation>,
}

/// Missing route with its node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Creation {
    pub(super) node: Arc<Node>,
    pub(super) route: Route,
}

/// Compares the pod CIDRs of nodes with the existing routes. Routes outside of `cluster_cidrs` are not changed.
pub(super) fn plan(nodes: &[Arc<Node>], routes: &[Route], cluster_cidrs: &[Cidr]) -> Changes {
    let nodes_by_name: BTreeMap<&str, &Arc<Node>> =
        nodes.iter().map(|node| (&*node.meta.name, node)).collect();
    let is_matching = |route: &Route| {
        nodes_by_name.get(&*route.target_node).is_some_and(|node| {
            has_pod_cidr(node, &route.destination)
                && !route.blackhole
                && (!route.has_node_addresses
                    || same_addresses(&node.status.addresses, &route.target_node_addresses))
        })
    };
    let (matching, others): (Vec<&Route>, Vec<&Route>) =
        routes.iter().partition(|route| is_matching(route));
    let existing: BTreeSet<(&str, &str)> =
        matching.iter().map(|route| (&*route.target_node, &*route.destination)).collect();
    let create = nodes.iter().flat_map(|node| {
        let ranges = node.spec.pod_cidrs.iter().map(|range| &**range);
        ranges
            .filter(|range| !existing.contains(&(&*node.meta.name, *range)))
            .map(|range| creation(node, range))
    });
    Changes {
        create: create.collect(),
        delete: others
            .into_iter()
            .filter(|route| is_of_cluster(route, cluster_cidrs))
            .cloned()
            .collect(),
    }
}

fn creation(node: &Arc<Node>, range: &str) -> Creation {
    let route = Route {
        target_node: node.meta.name.to_string(),
        target_node_addresses: node.status.addresses.to_vec(),
        destination: range.to_owned(),
        ..Route::default()
    };
    Creation { node: Arc::clone(node), route }
}

fn has_pod_cidr(node: &Node, range: &str) -> bool {
    node.spec.pod_cidrs.iter().any(|present| **present == *range)
}

/// Returns whether the addresses are the same in any order.
fn same_addresses(left: &[NodeAddress], right: &[NodeAddress]) -> bool {
    left.len() == right.len() && left.iter().all(|address| right.contains(address))
}

/// Returns whether a route's destination starts or ends in one of the cluster's CIDRs.
fn is_of_cluster(route: &Route, cluster_cidrs: &[Cidr]) -> bool {
    Cidr::parse(&route.destination).is_some_and(|range| {
        cluster_cidrs.iter().any(|cidr| cidr.contains(range.first()) || cidr.contains(range.last()))
    })
}

/// Returns whether a change of a node triggers a reconciliation.
pub(super) fn needs_sync(old: &Node, new: &Node) -> bool {
    old.spec.pod_cidrs != new.spec.pod_cidrs || old.status.addresses != new.status.addresses
}

/// Plans the condition `NetworkUnavailable`, which is False for a node that has all its routes. `failed` are
/// the nodes that lack a route after this reconciliation. A node with neither pod CIDRs nor routes gets no
/// condition.
///
/// Upstream: `updateNetworkingCondition`.
pub(super) fn networking_conditions(
    nodes: &[Arc<Node>],
    routes: &[Route],
    failed: &BTreeSet<Text>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::nothing();
    for node in nodes {
        let name = &node.meta.name;
        let has_ranges = !node.spec.pod_cidrs.is_empty();
        if !has_ranges && !routes.iter().any(|route| *route.target_node == **name) {
            continue;
        }
        let is_reachable = has_ranges && !failed.contains(name);
        plan.actions.extend(condition_patch(node, is_reachable, now).map(Into::into));
    }
    plan
}

/// Returns the patch of a node's condition, or `None` if the node already has it.
fn condition_patch(node: &Node, reachable: bool, now: Timestamp) -> Option<Patch> {
    let (status, reason, message) = if reachable {
        ("False", "RouteCreated", "RouteController created a route")
    } else {
        ("True", "NoRouteCreated", "RouteController failed to create a route")
    };
    let present = node.status.conditions.iter().find(|condition| &*condition.type_ == CONDITION);
    if present.is_some_and(|present| &*present.status == status && &*present.reason == reason) {
        return None;
    }
    let now = seconds(now);
    let body = json!({"metadata": {"uid": &*node.meta.uid}, "status": {"conditions": [{
        "type": CONDITION, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now, "lastHeartbeatTime": now,
    }]}});
    let patch = Patch::new(target(node), PatchType::Strategic, body.to_string());
    Some(Patch { subresource: "status", ..patch })
}

/// Returns the event about a route that the cloud did not create.
pub(super) fn failed_route_event(creation: &Creation, error: &str) -> EventRecord {
    let Creation { node, route } = creation;
    let message = format!(
        "Could not create route {} {} for node {}: {error}",
        node.meta.uid, route.destination, node.meta.name
    );
    EventRecord::warning(target(&**node), "FailedToCreateRoute", message)
}
