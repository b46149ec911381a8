//! Decisions of the cloud node controller: provider ID, labels, addresses and taint of a node.

use super::addresses;
use crate::{
    InstanceMetadata,
    change::{of_node, taints, target},
};
use evenkeel_api::{
    Text,
    views::{Node, NodeAddress},
};
use evenkeel_runtime::plan::{EventRecord, OnError, Patch, PatchForm, Plan};
use serde_json::{Map, Value, json};

/// Key of the taint with which a kubelet registers a node that a cloud provider must initialize.
pub(super) const UNINITIALISED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

const INSTANCE_TYPE: [&str; 2] =
    ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"];
const ZONE: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
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

/// Returns whether a node waits for its initialization.
///
/// Upstream: `getCloudTaint`.
pub(super) fn has_cloud_taint(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| &*taint.key == UNINITIALISED)
}

/// Returns whether a change of a node enqueues it.
pub(super) fn needs_sync(old: &Node, new: &Node) -> bool {
    old.spec.taints != new.spec.taints
        || old.meta.labels != new.meta.labels
        || old.meta.annotations != new.meta.annotations
}

/// Plans the initialization of a node: provider ID, labels and removal of the taint, then addresses.
///
/// Upstream: `syncNode`, `getNodeModifiersFromCloudProvider`.
pub(super) fn initialize_node(
    node: &Node,
    machine: &InstanceMetadata,
) -> Result<Plan, InitializeError> {
    let name = &node.meta.name;
    if node.spec.provider_id.is_empty() && machine.provider_id.is_empty() {
        return Err(InitializeError::NoProviderId(name.clone()));
    }
    // If the cloud does not know the node's IP, fail before the taint is removed.
    addresses::node_addresses_from_node_ip(node, machine.addresses.clone())
        .map_err(|error| InitializeError::NodeIp(name.clone(), error))?;
    let mut change = json!({"spec": {
        "taints": taints(node.spec.taints.iter().filter(|taint| &*taint.key != UNINITIALISED)),
    }});
    if node.spec.provider_id.is_empty() {
        change["spec"]["providerID"] = json!(machine.provider_id);
    }
    let labels = labels(node, machine);
    if !labels.is_empty() {
        change["metadata"] = json!({"labels": labels});
    }
    let mut plan = Plan::nothing();
    plan.push(Patch { on_error: OnError::Abort, ..of_node(node, change) });
    plan.actions.extend(update_node_address(node, machine)?.actions);
    plan.push(EventRecord::normal(target(node), "Synced", "Node synced successfully"));
    Ok(plan)
}

fn labels(node: &Node, machine: &InstanceMetadata) -> Map<String, Value> {
    let known =
        [(INSTANCE_TYPE, &machine.instance_type), (ZONE, &machine.zone), (REGION, &machine.region)];
    let known = known
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .flat_map(|(keys, value)| keys.map(|key| (key.to_owned(), json!(value))));
    let additional = machine
        .labels
        .iter()
        .filter(|(key, _)| !of_kubernetes(key) && !node.meta.labels.contains(key))
        .map(|(key, value)| (key.clone(), json!(value)));
    // The provider's zone, region and instance type replace its additional labels of the same name.
    additional.chain(known).collect()
}

/// Returns whether a label belongs to one of Kubernetes' domains.
fn of_kubernetes(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"].iter().any(|own| {
        domain.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
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
        plan.push(Patch::new(target(node), PatchForm::Strategic, body.to_string()));
    }
    plan
}

/// Plans to write the instance's addresses if they differ. The kubelet's host name stays if the cloud provides
/// none.
///
/// Upstream: `updateNodeAddress`.
pub(super) fn update_node_address(
    node: &Node,
    machine: &InstanceMetadata,
) -> Result<Plan, InitializeError> {
    let mut plan = Plan::nothing();
    let mut addresses_of_node = machine.addresses.clone();
    if addresses_of_node.is_empty() {
        return Ok(plan);
    }
    let is_hostname = |address: &NodeAddress| &*address.type_ == "Hostname";
    if !addresses_of_node.iter().any(is_hostname) {
        addresses_of_node.extend(node.status.addresses.iter().filter(|a| is_hostname(a)).cloned());
    }
    let addresses_of_node = addresses::node_addresses_from_node_ip(node, addresses_of_node)
        .map_err(|error| InitializeError::NodeIp(node.meta.name.clone(), error))?;
    if *addresses_of_node != *node.status.addresses {
        let addresses: Vec<Value> = addresses_of_node
            .iter()
            .map(|address| json!({"type": &*address.type_, "address": &*address.address}))
            .collect();
        let body =
            json!({"metadata": {"uid": &*node.meta.uid}, "status": {"addresses": addresses}});
        plan.push(Patch {
            subresource: "status",
            ..Patch::new(target(node), PatchForm::Merge, body.to_string())
        });
    }
    Ok(plan)
}
