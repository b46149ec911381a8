//! Canonical form of subsets: each port occurs in one subset, ports with equal addresses share a subset, and
//! everything is sorted. Upstream: `RepackSubsets` in `pkg/api/v1/endpoints/util.go`.

use super::{order, pod::same_reference};
use evenkeel_api::views::{EndpointAddress, EndpointPort, EndpointSubset};
use std::collections::{BTreeMap, HashMap};

/// An address with its readiness and ports, to be assigned to a subset.
pub(super) struct EndpointCandidate<'a> {
    pub(super) address: EndpointAddress,
    pub(super) ready: bool,
    pub(super) ports: &'a [EndpointPort],
}

/// An address of a port: its index in the sorted list of [`build_subsets`], and its readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    index: usize,
    ready: bool,
}

/// Returns the canonical subsets. An address that is both ready and unready for the same port counts as unready.
pub(super) fn build_subsets(mut candidates: Vec<EndpointCandidate<'_>>) -> Box<[EndpointSubset]> {
    candidates.sort_by(|a, b| sort_key(&a.address).cmp(&sort_key(&b.address)));
    let mut addresses: Vec<EndpointAddress> = Vec::with_capacity(candidates.len());
    let mut addresses_by_port: HashMap<Option<&EndpointPort>, Vec<Member>> = HashMap::new();
    for EndpointCandidate { address, ready, ports } in candidates {
        if addresses.last().is_none_or(|last| sort_key(last) != sort_key(&address)) {
            addresses.push(address);
        }
        let member = Member { index: addresses.len() - 1, ready };
        for port in ports {
            add_member(addresses_by_port.entry(Some(port)).or_default(), member);
        }
        if ports.is_empty() {
            // Addresses without ports share a subset without ports.
            add_member(addresses_by_port.entry(None).or_default(), member);
        }
    }
    let mut ports_by_addresses: BTreeMap<Vec<Member>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, members) in addresses_by_port {
        ports_by_addresses.entry(members).or_default().extend(port.cloned());
    }
    let mut subsets: Vec<EndpointSubset> = ports_by_addresses
        .into_iter()
        .map(|(members, ports)| subset(&addresses, &members, ports))
        .collect();
    order::sort_subsets(&mut subsets);
    subsets.into()
}

/// Adds an address to those of a port. Candidates are sorted by address, so an earlier one with this address is last.
fn add_member(members: &mut Vec<Member>, member: Member) {
    match members.last_mut() {
        Some(last) if last.index == member.index => last.ready &= member.ready,
        _ => members.push(member),
    }
}

/// Returns the canonical form of existing subsets. Upstream: `RepackSubsets`.
pub(super) fn repack_subsets(subsets: &[EndpointSubset]) -> Box<[EndpointSubset]> {
    let mut candidates = Vec::new();
    for subset in subsets {
        let candidate = |address: &EndpointAddress, ready| EndpointCandidate {
            address: address.clone(),
            ready,
            ports: &subset.ports,
        };
        candidates.extend(subset.addresses.iter().map(|address| candidate(address, true)));
        candidates
            .extend(subset.not_ready_addresses.iter().map(|address| candidate(address, false)));
    }
    build_subsets(candidates)
}

/// Returns the sort key of an address: IP and pod uid, because pods on the host network share an IP.
fn sort_key(address: &EndpointAddress) -> (&str, &str) {
    (&address.ip, address.target_ref.as_ref().map_or("", |target| &target.uid))
}

/// Returns the subset of these addresses, ready and unready, and ports.
fn subset(
    addresses: &[EndpointAddress],
    members: &[Member],
    mut ports: Vec<EndpointPort>,
) -> EndpointSubset {
    order::sort_ports(&mut ports);
    let ready = members.iter().filter(|member| member.ready);
    let unready = members.iter().filter(|member| !member.ready);
    EndpointSubset {
        addresses: ready.map(|member| addresses[member.index].clone()).collect(),
        not_ready_addresses: unready.map(|member| addresses[member.index].clone()).collect(),
        ports: ports.into(),
    }
}

/// Returns whether subsets are equal except for resource versions in references. Upstream:
/// `endpointSubsetsEqualIgnoreResourceVersion`.
pub(super) fn equal_ignore_resource_version(a: &[EndpointSubset], b: &[EndpointSubset]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.ports == b.ports
                && addresses_equal(&a.addresses, &b.addresses)
                && addresses_equal(&a.not_ready_addresses, &b.not_ready_addresses)
        })
}

/// Returns whether both lists contain equal addresses in the same order.
fn addresses_equal(a: &[EndpointAddress], b: &[EndpointAddress]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.ip == b.ip
                && a.hostname == b.hostname
                && a.node_name == b.node_name
                && same_reference(a.target_ref.as_deref(), b.target_ref.as_deref())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_api::views::Endpoints;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn subsets(json: &Value) -> Box<[EndpointSubset]> {
        object::<Endpoints>(&json!({ "subsets": json })).subsets
    }

    #[test]
    fn ports_with_equal_addresses_share_a_subset() {
        let http = json!({"name": "http", "port": 80, "protocol": "TCP"});
        let dns = json!({"name": "dns", "port": 53, "protocol": "UDP"});
        let unpacked = subsets(&json!([
            {"addresses": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}], "ports": [http]},
            {"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [dns]},
            {"notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [http]},
            {"ports": [{"port": 1}]},
        ]));
        let want = subsets(&json!([
            {"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [http, dns]},
        ]));
        let packed = repack_subsets(&unpacked);
        assert_eq!(packed.len(), 1, "{packed:#?}");
        // Repacking sorts the ports, by their hashes.
        assert!(equal_ignore_resource_version(&packed, &repack_subsets(&want)), "{packed:#?}");
        let portless = subsets(&json!([{"addresses": [{"ip": "10.0.0.1"}]}]));
        assert_eq!(repack_subsets(&portless), portless);
    }

    /// Strategy for subsets: the last octets of the ready and of the unready addresses, and the ports less 80.
    fn subset_numbers() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>> {
        let few = || proptest::collection::vec(0u8..4, 0..4);
        proptest::collection::vec((few(), few(), few()), 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn repacking_is_idempotent_and_independent_of_order(numbers in subset_numbers()) {
            let subset = |(ready, unready, ports): &(Vec<u8>, Vec<u8>, Vec<u8>)| json!({
                "addresses": ready.iter().map(|n| json!({"ip": format!("10.0.0.{n}")})).collect::<Vec<_>>(),
                "notReadyAddresses": unready.iter().map(|n| json!({"ip": format!("10.0.0.{n}")})).collect::<Vec<_>>(),
                "ports": ports.iter().map(|n| json!({"port": 80 + i32::from(*n), "protocol": "TCP"})).collect::<Vec<_>>(),
            });
            let forward = repack_subsets(&subsets(&numbers.iter().map(subset).collect()));
            let backward = repack_subsets(&subsets(&numbers.iter().rev().map(subset).collect()));
            prop_assert_eq!(&forward, &backward);
            prop_assert_eq!(&repack_subsets(&forward), &forward);
        }
    }
}
