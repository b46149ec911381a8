//! Limits on open connections, in total and per peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Limits on connections that are open at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections of all peers together; 10,000 by default.
    pub total: usize,
    /// Connections of one IPv4 address, or of one IPv6 network of 64 bits; 2,500 by default.
    pub per_peer: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { total: 10_000, per_peer: 2_500 }
    }
}

/// Slot of an open connection within the limits. Dropping it frees the slot.
#[derive(Debug)]
pub struct ConnectionSlot {
    peers: Arc<Mutex<Peers>>,
    peer: IpAddr,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).remove(self.peer);
    }
}

/// Limit that a new connection would exceed, with the number of open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitExceeded {
    /// The limit [`ConnectionLimits::total`].
    Total(usize),
    /// The limit [`ConnectionLimits::per_peer`].
    PerPeer(usize),
}

/// Counts of open connections, by peer and in total.
#[derive(Debug)]
pub(crate) struct Peers {
    limits: ConnectionLimits,
    total: usize,
    by_peer: HashMap<IpAddr, usize>,
}

impl Peers {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, total: 0, by_peer: HashMap::new() }
    }

    fn add(&mut self, peer: IpAddr) -> Result<(), LimitExceeded> {
        if self.total >= self.limits.total {
            return Err(LimitExceeded::Total(self.total));
        }
        let count = self.by_peer.get(&peer).copied().unwrap_or_default();
        if count >= self.limits.per_peer {
            return Err(LimitExceeded::PerPeer(count));
        }
        self.by_peer.insert(peer, count + 1);
        self.total += 1;
        Ok(())
    }

    fn remove(&mut self, peer: IpAddr) {
        self.total = self.total.saturating_sub(1);
        if let Some(count) = self.by_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}

/// Counts a new connection, or returns the limit that it would exceed.
pub(crate) fn admit(
    peers: &Arc<Mutex<Peers>>,
    address: IpAddr,
) -> Result<ConnectionSlot, LimitExceeded> {
    let peer = peer_address(address);
    peers.lock().unwrap_or_else(PoisonError::into_inner).add(peer)?;
    Ok(ConnectionSlot { peers: peers.clone(), peer })
}

/// Returns the address under which a peer's connections are counted. An IPv6 address loses its last 64 bits: a
/// host can use any address of its /64 network, so a limit per address would not hold.
fn peer_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_peer_and_in_total() {
        let peers = Arc::new(Mutex::new(Peers::new(ConnectionLimits { total: 4, per_peer: 2 })));
        let admit = |address: &str| admit(&peers, address.parse().expect("an address"));
        let first = admit("10.0.0.1").expect("a slot");
        let _mapped = admit("::ffff:10.0.0.1").expect("a slot");
        assert_eq!(admit("10.0.0.1").err(), Some(LimitExceeded::PerPeer(2)));
        let _network = admit("2001:db8::1").expect("a slot");
        let _same = admit("2001:db8::ffff").expect("a slot");
        assert_eq!(admit("10.0.0.2").err(), Some(LimitExceeded::Total(4)));
        drop(first);
        assert_eq!(admit("2001:db8::2").err(), Some(LimitExceeded::PerPeer(2)));
        let _again = admit("10.0.0.1").expect("a slot");
        assert_eq!(peers.lock().expect("a lock").by_peer.len(), 2);
    }
}
