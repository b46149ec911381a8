//! Sorts ports and subsets by upstream's hash of Go's text dump, so that their order equals upstream's. Upstream:
//! `pkg/api/v1/endpoints/util.go`, `endpointslice/util/controller_utils.go`, `k8s.io/utils/dump`.

use evenkeel_api::views::{EndpointAddress, EndpointPort, EndpointSubset, SlicePort};
use std::fmt::{self, Write};

/// 128-bit FNV-1a hash of the bytes written to it.
struct Fnv128a(u128);

impl Fnv128a {
    /// Returns the hash of a formatted value.
    fn of(text: fmt::Arguments<'_>) -> u128 {
        // The offset basis of FNV-1a.
        let mut hash = Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        // Writing to the hash cannot fail.
        let _ = hash.write_fmt(text);
        hash.0
    }
}

impl Write for Fnv128a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // The factor is the FNV prime.
            self.0 =
                (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        Ok(())
    }
}

/// Formats a string as Go dumps a string pointer. The empty string stands for the nil pointer.
fn or_nil(text: &str) -> &str {
    if text.is_empty() { "<nil>" } else { text }
}

pub(super) fn sort_slice_ports(ports: &mut [SlicePort]) {
    if ports.len() > 1 {
        ports.sort_by_cached_key(slice_port_hash);
    }
}

/// Returns upstream's hash of a slice's port.
fn slice_port_hash(port: &SlicePort) -> u128 {
    let number = port.port.map(|number| number.to_string());
    Fnv128a::of(format_args!(
        "(v1.EndpointPort){{Name:(*string){} Protocol:(*v1.Protocol){} Port:(*int32){} AppProtocol:(*string){}}}",
        port.name,
        port.protocol,
        number.as_deref().unwrap_or("<nil>"),
        or_nil(&port.app_protocol)
    ))
}

/// Sorts the ports of Endpoints.
pub(super) fn sort_ports(ports: &mut [EndpointPort]) {
    if ports.len() > 1 {
        ports.sort_by_cached_key(|port| {
            Fnv128a::of(format_args!("(v1.EndpointPort){}", PortDump(port)))
        });
    }
}

/// Sorts subsets by their content, as upstream does before it compares subsets.
pub(super) fn sort_subsets(subsets: &mut [EndpointSubset]) {
    if subsets.len() > 1 {
        subsets.sort_by_cached_key(subset_hash);
    }
}

/// Returns upstream's hash of a subset.
fn subset_hash(subset: &EndpointSubset) -> u128 {
    Fnv128a::of(format_args!(
        "(v1.EndpointSubset){{Addresses:([]v1.EndpointAddress){} NotReadyAddresses:([]v1.EndpointAddress){} Ports:([]v1.EndpointPort){}}}",
        ListDump(&subset.addresses, |address, f| write!(f, "{}", AddressDump(address))),
        ListDump(&subset.not_ready_addresses, |address, f| write!(f, "{}", AddressDump(address))),
        ListDump(&subset.ports, |port, f| write!(f, "{}", PortDump(port))),
    ))
}

/// Formats a port as Go dumps it.
struct PortDump<'a>(&'a EndpointPort);

impl fmt::Display for PortDump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndpointPort { name, port, protocol, app_protocol } = self.0;
        let app_protocol = or_nil(app_protocol);
        write!(
            f,
            "{{Name:(string){name} Port:(int32){port} Protocol:(v1.Protocol){protocol} AppProtocol:(*string){app_protocol}}}"
        )
    }
}

/// Formats an address as Go dumps it.
struct AddressDump<'a>(&'a EndpointAddress);

impl fmt::Display for AddressDump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndpointAddress { ip, hostname, node_name, target_ref } = self.0;
        let node_name = or_nil(node_name);
        write!(
            f,
            "{{IP:(string){ip} Hostname:(string){hostname} NodeName:(*string){node_name} TargetRef:(*v1.ObjectReference)"
        )?;
        match target_ref {
            None => f.write_str("<nil>}"),
            Some(target) => write!(
                f,
                "{{Kind:(string){} Namespace:(string){} Name:(string){} UID:(types.UID){} APIVersion:(string){} ResourceVersion:(string){} FieldPath:(string){}}}}}",
                target.kind,
                target.namespace,
                target.name,
                target.uid,
                target.api_version,
                target.resource_version,
                target.field_path
            ),
        }
    }
}

/// Formats a list as Go dumps a slice. The function formats each element. The empty list stands for the nil slice.
struct ListDump<'a, T>(&'a [T], fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result);

impl<T> fmt::Display for ListDump<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(elements, format_element) = self;
        if elements.is_empty() {
            return f.write_str("<nil>");
        }
        for (index, element) in elements.iter().enumerate() {
            f.write_str(if index == 0 { "[" } else { " " })?;
            format_element(element, f)?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_api::views::{EndpointSlice, Endpoints};
    use serde_json::json;

    /// The expected hashes were computed by upstream's code for the same values.
    #[test]
    fn hashes_equal_those_of_upstream() {
        let slice: EndpointSlice = object(&json!({"ports": [
            {"name": "http", "protocol": "TCP", "port": 80},
            {"name": "", "protocol": "TCP", "port": 80, "appProtocol": "example.test/x"},
        ]}));
        assert_eq!(
            slice.ports.iter().map(slice_port_hash).collect::<Vec<_>>(),
            [0xb6c4_d325_122a_5ba6_f795_b0bb_ffce_bb6f, 0xb67b_d7a4_c4f9_2448_9a96_e0d6_1ec3_a2b1]
        );
        let endpoints: Endpoints = object(&json!({"subsets": [
            {
                "addresses": [
                    {"ip": "10.0.0.1", "nodeName": "n1", "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u"}},
                    {"ip": "10.0.0.2", "hostname": "h"},
                ],
                "ports": [
                    {"name": "http", "port": 80, "protocol": "TCP"},
                    {"name": "b", "port": 81, "protocol": "UDP", "appProtocol": "example.test/x"},
                ],
            },
            {"notReadyAddresses": [{"ip": "10.0.0.1"}]},
        ]}));
        assert_eq!(
            endpoints.subsets.iter().map(subset_hash).collect::<Vec<_>>(),
            [0xe503_7c19_60b3_a7c4_cc33_1685_5966_3470, 0x4d4f_4604_c1a5_1c97_597e_6c7a_75c1_04c9]
        );
        let mut swapped = endpoints.subsets.clone();
        sort_subsets(&mut swapped);
        assert_eq!(swapped[0], endpoints.subsets[1]);
    }
}
