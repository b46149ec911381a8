//! Decisions of the cloud node controller: provider ID, labels, addresses and taint of a node.

use super::addresses;
use crate::{
    InstanceMetadata,
    change::{node_patch, taints, target},
};
use evenkeel_api::{
    Text,
    views::{Node, NodeAddress},
};
use evenkeel_runtime::plan::{EventRecord, OnError, Patch, PatchType, Plan};
use serde_json::{Map, Value, json};

/// Key of the taint with which a kubelet registers a node that a cloud provider must initialize.
pub(super) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Labels of the instance type: the deprecated (beta) label, then the stable label.
const INSTANCE_TYPE: [&str; 2] =
    ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"];
/// Labels of the zone: the deprecated (beta) label, then the stable label.
const ZONE: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
/// Labels of the region: the deprecated (beta) label, then the stable label.
const REGION: [&str; 2] =
    ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];

/// Reason why a node cannot be initialized.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum InitializeError {
    #[error("cloud provider does not set node provider ID for node {0}")]
    NoProviderId(Text),
    #[error("provided node ip for node {0:?} is not valid: {1}")]
    NodeIp(Text, addresses::NodeIpError),
}

/// Returns whether a node has the taint `uninitialized`, so that it waits for its initialization.
///
/// Upstream: `getCloudTaint`.
pub(super) fn has_cloud_taint(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| &*taint.key == UNINITIALIZED)
}

/// Returns whether a change of a node enqueues it.
pub(super) fn needs_sync(old: &Node, new: &Node) -> bool {
    old.spec.taints != new.spec.taints
        || old.meta.labels != new.meta.labels
        || old.meta.annotations != new.meta.annotations
}

/// Plans the initialization of a node: provider ID, labels and removal of the taint in one patch of the spec and the
/// metadata, then the addresses, which are in the status.
///
/// Upstream: `syncNode`, `getNodeModifiersFromCloudProvider`.
pub(super) fn initialize_node(
    node: &Node,
    metadata: &InstanceMetadata,
) -> Result<Plan, InitializeError> {
    let name = &node.meta.name;
    if node.spec.provider_id.is_empty() && metadata.provider_id.is_empty() {
        return Err(InitializeError::NoProviderId(name.clone()));
    }
    // If the cloud does not know the node's IP, fail before the taint is removed.
    addresses::node_addresses_from_node_ip(node, metadata.addresses.clone())
        .map_err(|error| InitializeError::NodeIp(name.clone(), error))?;
    let mut patch = json!({"spec": {
        "taints": taints(node.spec.taints.iter().filter(|taint| &*taint.key != UNINITIALIZED)),
    }});
    if node.spec.provider_id.is_empty() {
        patch["spec"]["providerID"] = json!(metadata.provider_id);
    }
    let labels = labels(node, metadata);
    if !labels.is_empty() {
        patch["metadata"] = json!({"labels": labels});
    }
    let mut plan = Plan::nothing();
    plan.push(Patch { on_error: OnError::Abort, ..node_patch(node, patch) });
    plan.actions.extend(update_node_address(node, metadata)?.actions);
    plan.push(EventRecord::normal(target(node), "Synced", "Node synced successfully"));
    Ok(plan)
}

/// Returns the labels to set: those of instance type, zone and region, and the provider's additional labels.
fn labels(node: &Node, metadata: &InstanceMetadata) -> Map<String, Value> {
    let topology = [
        (INSTANCE_TYPE, &metadata.instance_type),
        (ZONE, &metadata.zone),
        (REGION, &metadata.region),
    ];
    let topology_labels = topology
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .flat_map(|(keys, value)| keys.map(|key| (key.to_owned(), json!(value))));
    let additional = metadata
        .labels
        .iter()
        .filter(|(key, _)| !is_kubernetes_label(key) && !node.meta.labels.contains(key))
        .map(|(key, value)| (key.clone(), json!(value)));
    // The provider's zone, region and instance type replace its additional labels of the same name.
    additional.chain(topology_labels).collect()
}

/// Returns whether a label belongs to one of Kubernetes' domains.
fn is_kubernetes_label(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"].iter().any(|kubernetes_domain| {
        domain
            .strip_suffix(kubernetes_domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Plans to set the stable labels of zone, region and instance type to the values of the deprecated (beta)
/// labels.
///
/// Upstream: `reconcileNodeLabels`.
pub(super) fn reconcile_labels(node: &Node) -> Plan {
    let labels: Map<String, Value> = [ZONE, REGION, INSTANCE_TYPE]
        .into_iter()
        .filter_map(|[beta, stable]| {
            let value = node.meta.labels.get(beta)?;
            (node.meta.labels.get(stable) != Some(value)).then(|| (stable.to_owned(), json!(value)))
        })
        .collect();
    let mut plan = Plan::nothing();
    if !labels.is_empty() {
        let body = json!({"metadata": {"uid": &*node.meta.uid, "labels": labels}});
        plan.push(Patch::new(target(node), PatchType::Strategic, body.to_string()));
    }
    plan
}

/// Plans to write the instance's addresses if they differ. The kubelet's host name stays if the cloud provides
/// none.
///
/// Upstream: `updateNodeAddress`.
pub(super) fn update_node_address(
    node: &Node,
    metadata: &InstanceMetadata,
) -> Result<Plan, InitializeError> {
    let mut plan = Plan::nothing();
    let mut new_addresses = metadata.addresses.clone();
    if new_addresses.is_empty() {
        return Ok(plan);
    }
    let is_hostname = |address: &NodeAddress| &*address.type_ == "Hostname";
    if !new_addresses.iter().any(is_hostname) {
        new_addresses
            .extend(node.status.addresses.iter().filter(|address| is_hostname(address)).cloned());
    }
    let new_addresses = addresses::node_addresses_from_node_ip(node, new_addresses)
        .map_err(|error| InitializeError::NodeIp(node.meta.name.clone(), error))?;
    if *new_addresses != *node.status.addresses {
        let addresses: Vec<Value> = new_addresses
            .iter()
            .map(|address| json!({"type": &*address.type_, "address": &*address.address}))
            .collect();
        let body =
            json!({"metadata": {"uid": &*node.meta.uid}, "status": {"addresses": addresses}});
        plan.push(Patch {
            subresource: "status",
            ..Patch::new(target(node), PatchType::Merge, body.to_string())
        });
    }
    Ok(plan)
}
