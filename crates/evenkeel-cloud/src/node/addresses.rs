//! Addresses of a node whose kubelet has `--node-ip`.

use evenkeel_api::{
    Text,
    views::{Node, NodeAddress},
};
use std::net::IpAddr;

/// Annotation with the kubelet's `--node-ip`: one address, or a comma-separated address for each family.
const NODE_IP_ANNOTATION: &str = "alpha.kubernetes.io/provided-node-ip";

/// Mismatch of a `--node-ip` and the instance's addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NodeIpError {
    #[error("failed to parse node IP {0:?}")]
    Unreadable(Text),
    #[error("failed to get node address from cloud provider that matches ip: {0}")]
    Unknown(IpAddr),
}

/// Returns the addresses in the order that the kubelet requires. Addresses that match the kubelet's `--node-ip`
/// come first, and are the only ones of their type. All others follow unchanged.
///
/// Upstream: `GetNodeAddressesFromNodeIP`.
pub(super) fn node_addresses_from_node_ip(
    node: &Node,
    instance_addresses: Vec<NodeAddress>,
) -> Result<Vec<NodeAddress>, NodeIpError> {
    let Some(text) = node.meta.annotations.get(NODE_IP_ANNOTATION) else {
        return Ok(instance_addresses);
    };
    let node_ips: Result<Vec<IpAddr>, _> = text.split(',').map(|ip| ip.trim().parse()).collect();
    let node_ips = node_ips.map_err(|_| NodeIpError::Unreadable(text.into()))?;
    let mut matching: Vec<NodeAddress> = Vec::new();
    for ip in node_ips {
        let has_ip = |address: &&NodeAddress| address.address.parse() == Ok(ip);
        let with_ip = instance_addresses.iter().filter(has_ip).cloned();
        let count = matching.len();
        matching.extend(with_ip);
        if matching.len() == count {
            return Err(NodeIpError::Unknown(ip));
        }
    }
    let others: Vec<NodeAddress> = instance_addresses
        .into_iter()
        .filter(|address| !has_type(&matching, &address.type_))
        .collect();
    matching.extend(others);
    Ok(matching)
}

/// Returns whether a list contains an address of this type.
fn has_type(addresses: &[NodeAddress], type_: &str) -> bool {
    addresses.iter().any(|address| *address.type_ == *type_)
}
