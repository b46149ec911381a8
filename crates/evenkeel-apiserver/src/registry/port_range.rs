//! Bitmap of allocated node ports, which all servers of a shared store change in the transactions of their Services, so
//! that two servers never allocate the same port.
//!
//! Upstream: `AllocationBitmap`, and `Etcd` of `registry/core/service/allocator/storage`.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_apimachinery::value::text;
use serde_json::json;

use super::node_ports::NODE_PORTS;
use crate::api::Api;
use crate::etcd_layout::RANGES;
use crate::store::{Encoded, Expect, SelectionAttributes, Transaction};

/// Key of the bitmap.
const KEY: &str = "servicenodeports";

/// Allocated ports. A store that only this process uses needs no bitmap, because its index has the ports of all
/// Services.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PortRange {
    /// Revision of the stored bitmap; `None` if no bitmap is stored.
    revision: Option<u64>,
    ports: BTreeSet<u16>,
}

impl PortRange {
    /// Reads the stored bitmap.
    pub(super) fn read(api: &Api) -> Self {
        if !api.store.is_shared() {
            return Self::default();
        }
        let Some(entry) = api.store.get(RANGES, KEY) else { return Self::default() };
        let object = entry.decode().unwrap_or_default();
        let bitmap = STANDARD.decode(text(&object, "data")).unwrap_or_default();
        Self { revision: Some(entry.revision), ports: ports(&bitmap) }
    }

    /// Returns whether a port is allocated.
    pub(super) fn contains(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }
}

/// Adds to a transaction the allocation and the release of node ports. The Services of the transaction have the ports
/// `allocated` from then on, and no longer the ports `released`.
pub(super) fn change(
    api: &Api,
    allocated: &[u16],
    released: &[u16],
    transaction: &mut Transaction,
) {
    if !api.store.is_shared() || allocated.is_empty() && released.is_empty() {
        return;
    }
    let PortRange { revision, mut ports } = PortRange::read(api);
    if let Some(taken) = allocated.iter().find(|port| ports.contains(port)) {
        return transaction.set_taken(taken.to_string());
    }
    ports.extend(allocated);
    ports.retain(|port| !released.contains(port));
    let object = json!({
        "kind": "RangeAllocation",
        "apiVersion": "v1",
        "metadata": {},
        "range": format!("{}-{}", NODE_PORTS.start(), NODE_PORTS.end()),
        "data": STANDARD.encode(bitmap(&ports)),
    });
    let encoded = Encoded::new(&object, SelectionAttributes::default());
    let expect = revision.map_or(Expect::Absent, Expect::At);
    transaction.put(&RANGES.into(), KEY, expect, encoded);
}

/// Returns the ports of a bitmap: a big-endian number, whose lowest bit is the first port of the range.
fn ports(bitmap: &[u8]) -> BTreeSet<u16> {
    let bytes = bitmap.iter().rev().zip((*NODE_PORTS.start()..=*NODE_PORTS.end()).step_by(8));
    let bits = bytes.flat_map(|(byte, first)| {
        (0..8).filter(move |bit| byte >> bit & 1 == 1).filter_map(move |bit| first.checked_add(bit))
    });
    bits.filter(|port| NODE_PORTS.contains(port)).collect()
}

/// Returns the bitmap of ports without leading zeros.
fn bitmap(ports: &BTreeSet<u16>) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for offset in ports.iter().filter_map(|port| port.checked_sub(*NODE_PORTS.start())) {
        let index = usize::from(offset / 8);
        bytes.resize(bytes.len().max(index + 1), 0);
        if let Some(byte) = bytes.get_mut(index) {
            *byte |= 1 << (offset % 8);
        }
    }
    bytes.reverse();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bitmap_is_the_bytes_of_upstreams_number() {
        for (ports_in, bytes) in [
            (&[] as &[u16], &[] as &[u8]),
            (&[30000], &[1]),
            (&[30001, 30007], &[0b1000_0010]),
            (&[30008], &[1, 0]),
            (&[30000, 30017], &[2, 0, 1]),
        ] {
            let set: BTreeSet<u16> = ports_in.iter().copied().collect();
            assert_eq!(bitmap(&set), bytes);
            assert_eq!(ports(bytes), set);
        }
        let all: BTreeSet<u16> = NODE_PORTS.collect();
        assert_eq!(bitmap(&all).len(), 346);
        assert_eq!(ports(&bitmap(&all)), all);
        assert_eq!(ports(&[255; 400]), all, "bits outside the range");
    }
}
