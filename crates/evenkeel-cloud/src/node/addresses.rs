//! Which of a machine's addresses are its node's, where its kubelet was told by `--node-ip`.

use evenkeel_api::{
    Text,
    views::{Node, NodeAddress},
};
use std::net::IpAddr;

/// Annotation by which a kubelet tells its `--node-ip`: one address, or one of each family with a comma between.
const NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// A `--node-ip` that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unmatched {
    #[error("failed to parse node IP {0:?}")]
    Unreadable(Text),
    #[error("failed to get node address from cloud provider that matches ip: {0}")]
    Unknown(IpAddr),
}

/// The addresses in the order that the kubelet asks for. Those that match its `--node-ip` come first, and are the only ones
/// of their type; all others follow as they are.
pub(super) fn for_node_ip(
    node: &Node,
    known: Vec<NodeAddress>,
) -> Result<Vec<NodeAddress>, Unmatched> {
    let Some(text) = node.meta.annotations.get(NODE_IP) else { return Ok(known) };
    let wanted: Result<Vec<IpAddr>, _> = text.split(',').map(|ip| ip.trim().parse()).collect();
    let wanted = wanted.map_err(|_| Unmatched::Unreadable(text.into()))?;
    let mut chosen: Vec<NodeAddress> = Vec::new();
    for ip in wanted {
        let before = chosen.len();
        let matches = |address: &&NodeAddress| address.address.parse() == Ok(ip);
        chosen.extend(known.iter().filter(matches).cloned());
        if chosen.len() == before {
            return Err(Unmatched::Unknown(ip));
        }
    }
    let others: Vec<NodeAddress> =
        known.into_iter().filter(|a| chosen.iter().all(|c| c.type_ != a.type_)).collect();
    chosen.extend(others);
    Ok(chosen)
}
