//! Machines of nodes, from the table in the configuration.

use super::{Machine, NAME, Nodes};
use crate::InstanceMetadata;
use evenkeel_api::views::{Node, NodeAddress};

/// Returns whether the node's machine exists. Without a table, every machine exists.
pub(super) fn exists(nodes: Option<&Nodes>, node: &Node) -> bool {
    let Some(nodes) = nodes else { return true };
    // The table has all machines of nodes that this provider initialized, but otherwise only if it is complete.
    let must_be_in_table = nodes.complete || machine_name(node).is_some();
    find(nodes, node).is_some() || !must_be_in_table
}

/// Returns whether the node's machine is shut down.
pub(super) fn is_shut_down(nodes: Option<&Nodes>, node: &Node) -> bool {
    nodes.and_then(|nodes| find(nodes, node)).is_some_and(|machine| machine.shut_down)
}

/// Returns the metadata of the node's machine, or `None` if the table lacks it.
pub(super) fn instance_metadata(nodes: Option<&Nodes>, node: &Node) -> Option<InstanceMetadata> {
    nodes.and_then(|nodes| find(nodes, node)).map(metadata)
}

/// Returns the machine of a node: by the provider id if this provider has set it, otherwise by name.
fn find<'a>(nodes: &'a Nodes, node: &Node) -> Option<&'a Machine> {
    let name = machine_name(node).unwrap_or(&node.meta.name);
    nodes.machines.iter().find(|machine| machine.name == name)
}

/// Returns the name of a node's machine, if this provider has initialized the node.
fn machine_name(node: &Node) -> Option<&str> {
    node.spec.provider_id.strip_prefix(NAME).and_then(|id| id.strip_prefix("://"))
}

fn metadata(machine: &Machine) -> InstanceMetadata {
    let address_of_type = |type_: &'static str| {
        move |address: &String| NodeAddress {
            type_: type_.into(),
            address: address.as_str().into(),
        }
    };
    let internal = machine.internal.iter().map(address_of_type("InternalIP"));
    let external = machine.external.iter().map(address_of_type("ExternalIP"));
    InstanceMetadata {
        provider_id: format!("{NAME}://{}", machine.name),
        instance_type: machine.instance_type.clone(),
        addresses: internal.chain(external).collect(),
        zone: machine.zone.clone(),
        region: machine.region.clone(),
        labels: machine.labels.clone(),
    }
}
