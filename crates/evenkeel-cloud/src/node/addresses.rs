//! Addresses of a node whose kubelet has `--node-ip`.

use evenkeel_api::{
    Text,
    views::{Node, NodeAddress},
};
use std::net::IpAddr;

/// Annotation with the kubelet's `--node-ip`: one address, or a comma-separated address for each family.
const NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

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
    known: Vec<NodeAddress>,
) -> Result<Vec<NodeAddress>, NodeIpError> {
    let Some(text) = node.meta.annotations.get(NODE_IP) else { return Ok(known) };
    let node_ips: Result<Vec<IpAddr>, _> = text.split(',').map(|ip| ip.trim().parse()).collect();
    let node_ips = node_ips.map_err(|_| NodeIpError::Unreadable(text.into()))?;
    let mut chosen: Vec<NodeAddress> = Vec::new();
    for ip in node_ips {
        let before = chosen.len();
        let matches = |address: &&NodeAddress| address.address.parse() == Ok(ip);
        chosen.extend(known.iter().filter(matches).cloned());
        if chosen.len() == before {
            return Err(NodeIpError::Unknown(ip));
        }
    }
    let others: Vec<NodeAddress> =
        known.into_iter().filter(|a| chosen.iter().all(|c| c.type_ != a.type_)).collect();
    chosen.extend(others);
    Ok(chosen)
}
