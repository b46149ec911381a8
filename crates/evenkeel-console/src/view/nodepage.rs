//! Faults of a node, its resources, and the requests of its pods.

use super::attention;
use crate::route::{ListQuery, list_href};
use evenkeel_api::{
    quantity::Quantity,
    time::Timestamp,
    views::{Node, Pod},
};
use evenkeel_component_helpers::resource::pod_requests;
use evenkeel_nodes::NodeFaults;
use std::{collections::HashMap, sync::Arc};

/// A resource of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceRow {
    /// Name of the resource, such as `cpu`.
    pub(crate) name: String,
    /// Amount that the node has.
    pub(crate) capacity: String,
    /// Amount that pods can request.
    pub(crate) allocatable: String,
    /// Amount that the node's pods request. Empty if the user may not see them.
    pub(crate) requested: String,
}

/// Part of an object's page that only nodes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    /// Faults of the simulation that are in effect, such as `silent until 2027-01-15T08:00:00Z`.
    pub(crate) faults: Vec<String>,
    /// Resources of the node.
    pub(crate) resources: Vec<ResourceRow>,
    /// List of the node's pods. Empty if the user may not see them.
    pub(crate) pods: String,
}

/// Returns the facts of a node. `pods` may include pods of other nodes. `None` if the user may not see pods.
pub(crate) fn node_facts(
    faults: &NodeFaults,
    now: Timestamp,
    node: &Node,
    pods: Option<&[Arc<Pod>]>,
) -> NodeFacts {
    let mut requested: HashMap<&str, Quantity> = HashMap::new();
    let mut count = 0;
    let of_node = |pod: &&Arc<Pod>| {
        pod.spec.node_name == node.meta.name
            && !matches!(&*pod.status.phase, "Succeeded" | "Failed")
    };
    for pod in pods.into_iter().flatten().filter(of_node) {
        count += 1;
        for (resource, amount) in pod_requests(pod, &[]) {
            requested.entry(resource).and_modify(|sum| *sum = sum.plus(amount)).or_insert(amount);
        }
    }
    requested.insert("pods", Quantity::from_units(count));
    let text =
        |amount: Option<&Quantity>| amount.map_or_else(|| "0".to_owned(), Quantity::to_string);
    let row = |(name, capacity): (&str, &Quantity)| ResourceRow {
        name: name.to_owned(),
        capacity: capacity.to_string(),
        allocatable: text(node.status.allocatable.get(name)),
        requested: pods.map(|_| text(requested.get(name))).unwrap_or_default(),
    };
    let query = ListQuery {
        resource: "pods".to_owned(),
        node: node.meta.name.to_string(),
        ..ListQuery::default()
    };
    let mut resources: Vec<ResourceRow> = node.status.capacity.iter().map(row).collect();
    resources.sort_by(|a, b| a.name.cmp(&b.name));
    let pods = pods.map(|_| list_href(&query)).unwrap_or_default();
    NodeFacts { faults: attention::faults(faults, now, node), resources, pods }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::decoded;
    use serde_json::json;

    #[test]
    fn a_node_has_faults_and_requested_resources() {
        let annotations = json!({
            "sim.evenkeel.dev/silent": "until 2027-01-15T08:05:00Z",
            "sim.evenkeel.dev/not-ready": "until 2027-01-15T07:00:00Z",
        });
        let node = decoded::<Node>(&json!({
            "metadata": {"name": "n", "annotations": annotations},
            "status": {
                "capacity": {"cpu": "4", "pods": "10"},
                "allocatable": {"cpu": "3500m", "pods": "10"},
            },
        }));
        let pod = |node: &str, phase: &str| {
            let requests = json!({"requests": {"cpu": "250m"}});
            Arc::new(decoded::<Pod>(&json!({
                "spec": {"nodeName": node, "containers": [{"name": "c", "resources": requests}]},
                "status": {"phase": phase},
            })))
        };
        let pods =
            [pod("n", "Running"), pod("n", "Running"), pod("m", "Running"), pod("n", "Failed")];
        let now = "2027-01-15T08:00:00Z".parse().expect("a time");
        let facts = node_facts(&NodeFaults::default(), now, &node, Some(&pods));
        assert_eq!(facts.faults, ["silent until 2027-01-15T08:05:00Z"]);
        assert_eq!(facts.pods, "/objects?kind=pods&node=n");
        let rows: Vec<_> = facts
            .resources
            .iter()
            .map(|row| [&*row.name, &*row.capacity, &*row.allocatable, &*row.requested])
            .collect();
        assert_eq!(rows, [["cpu", "4", "3500m", "500m"], ["pods", "10", "10", "2"]]);
        let facts = node_facts(&NodeFaults::default(), now, &node, None);
        assert_eq!((&*facts.pods, &*facts.resources[0].requested), ("", ""));
    }
}
