//! Canonical form of subsets: each port occurs in one subset, ports with equal addresses share a subset, and
//! everything is sorted. Upstream: `RepackSubsets` in `pkg/api/v1/endpoints/util.go`.

use super::{order, pod::same_reference};
use evenkeel_api::views::{EndpointAddress, EndpointPort, EndpointSubset};
use std::collections::{BTreeMap, HashMap};

/// An address with its readiness and ports, before it is assigned to a subset.
pub(super) struct EndpointCandidate<'a> {
    pub(super) address: EndpointAddress,
    pub(super) ready: bool,
    pub(super) ports: &'a [EndpointPort],
}

/// Addresses as indexes into the sorted list, each with its readiness.
type Group = Vec<(usize, bool)>;

/// Returns the canonical subsets. An address that is both ready and unready for the same port counts as unready.
/// Upstream: `RepackSubsets`.
pub(super) fn repack_subsets(mut candidates: Vec<EndpointCandidate<'_>>) -> Box<[EndpointSubset]> {
    candidates.sort_by(|a, b| sort_key(&a.address).cmp(&sort_key(&b.address)));
    let mut addresses: Vec<EndpointAddress> = Vec::with_capacity(candidates.len());
    let mut by_port: HashMap<Option<&EndpointPort>, Group> = HashMap::new();
    for EndpointCandidate { address, ready, ports } in candidates {
        if addresses.last().is_none_or(|last| sort_key(last) != sort_key(&address)) {
            addresses.push(address);
        }
        let index = addresses.len() - 1;
        let none = [None];
        let ports = ports.iter().map(Some).chain(none.into_iter().filter(|_| ports.is_empty()));
        for port in ports {
            let group = by_port.entry(port).or_default();
            match group.last_mut() {
                Some((last, all_ready)) if *last == index => *all_ready &= ready,
                _ => group.push((index, ready)),
            }
        }
    }
    let mut by_group: BTreeMap<Group, Vec<EndpointPort>> = BTreeMap::new();
    for (port, group) in by_port {
        by_group.entry(group).or_default().extend(port.cloned());
    }
    let mut subsets: Vec<EndpointSubset> =
        by_group.into_iter().map(|(group, ports)| subset(&addresses, &group, ports)).collect();
    order::subsets(&mut subsets);
    subsets.into()
}

/// Returns the canonical form of existing subsets.
pub(super) fn repack(subsets: &[EndpointSubset]) -> Box<[EndpointSubset]> {
    let candidates = subsets.iter().flat_map(|subset| {
        let all = |addresses: &'_ [EndpointAddress], ready| {
            let candidate = |address: &EndpointAddress| EndpointCandidate {
                address: address.clone(),
                ready,
                ports: &subset.ports,
            };
            addresses.iter().map(candidate).collect::<Vec<_>>()
        };
        all(&subset.addresses, true).into_iter().chain(all(&subset.not_ready_addresses, false))
    });
    repack_subsets(candidates.collect())
}

/// Returns the sort key of an address: IP and pod uid, because pods on the host network share an IP.
fn sort_key(address: &EndpointAddress) -> (&str, &str) {
    (&address.ip, address.target_ref.as_ref().map_or("", |target| &target.uid))
}

fn subset(
    addresses: &[EndpointAddress],
    group: &Group,
    mut ports: Vec<EndpointPort>,
) -> EndpointSubset {
    order::ports(&mut ports);
    let with_readiness = |wanted: bool| {
        let members = group.iter().filter(|(_, ready)| *ready == wanted);
        members.map(|(index, _)| addresses[*index].clone()).collect()
    };
    EndpointSubset {
        addresses: with_readiness(true),
        not_ready_addresses: with_readiness(false),
        ports: ports.into(),
    }
}

/// Reports whether subsets are equal except for resource versions in references. Upstream:
/// `endpointSubsetsEqualIgnoreResourceVersion`.
pub(super) fn same(a: &[EndpointSubset], b: &[EndpointSubset]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.ports == b.ports
                && same_addresses(&a.addresses, &b.addresses)
                && same_addresses(&a.not_ready_addresses, &b.not_ready_addresses)
        })
}

fn same_addresses(a: &[EndpointAddress], b: &[EndpointAddress]) -> bool {
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
        let given = subsets(&json!([
            {"addresses": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}], "ports": [http]},
            {"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [dns]},
            {"notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [http]},
            {"ports": [{"port": 1}]},
        ]));
        let want = subsets(&json!([
            {"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [http, dns]},
        ]));
        let packed = repack(&given);
        assert_eq!(packed.len(), 1, "{packed:#?}");
        assert!(same(&packed, &want) || same(&packed, &repack(&want)), "{packed:#?}");
        let portless = subsets(&json!([{"addresses": [{"ip": "10.0.0.1"}]}]));
        assert_eq!(repack(&portless), portless);
    }

    /// Strategy for subsets: for each, the last octets of its ready and unready addresses, and its ports above 80.
    fn address_sets() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>> {
        let few = || proptest::collection::vec(0u8..4, 0..4);
        proptest::collection::vec((few(), few(), few()), 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn repacking_is_idempotent_and_independent_of_order(parts in address_sets()) {
            let part = |(ready, unready, ports): &(Vec<u8>, Vec<u8>, Vec<u8>)| json!({
                "addresses": ready.iter().map(|n| json!({"ip": format!("10.0.0.{n}")})).collect::<Vec<_>>(),
                "notReadyAddresses": unready.iter().map(|n| json!({"ip": format!("10.0.0.{n}")})).collect::<Vec<_>>(),
                "ports": ports.iter().map(|n| json!({"port": 80 + i32::from(*n), "protocol": "TCP"})).collect::<Vec<_>>(),
            });
            let forward = repack(&subsets(&parts.iter().map(part).collect()));
            let backward = repack(&subsets(&parts.iter().rev().map(part).collect()));
            prop_assert_eq!(&forward, &backward);
            prop_assert_eq!(&repack(&forward), &forward);
        }
    }
}
