//! Validation of discovery.k8s.io.

use super::{immutable, names};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "EndpointSlice" {
        endpoint_slice(new, errors);
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if kind != "EndpointSlice" {
        return;
    }
    // When the immutable address type changes, the new type's addresses need no validation.
    if new.get("addressType") == old.get("addressType") {
        endpoint_slice(new, errors);
    }
    immutable(&["addressType"], new, old, errors);
}

/// Upstream: `ValidateEndpointSlice`.
fn endpoint_slice(new: &Value, errors: &mut Errors) {
    let kind = text(new, "addressType");
    match kind {
        "" => errors.required(&Path::new("addressType"), ""),
        _ => errors.one_of(&Path::new("addressType"), kind, &["FQDN", "IPv4", "IPv6"]),
    }
    let all = Path::new("endpoints");
    for (index, endpoint) in list(new, "endpoints").iter().enumerate() {
        let path = all.index(index);
        let addresses = path.field("addresses");
        if list(endpoint, "addresses").is_empty() {
            errors.required(&addresses, "");
        }
        for (index, address) in
            list(endpoint, "addresses").iter().filter_map(Value::as_str).enumerate()
        {
            endpoint_address(kind, address, &addresses, index, errors);
        }
        let node = text(endpoint, "nodeName");
        if get(endpoint, "nodeName").is_some() {
            errors.invalid_all(&path.field("nodeName"), node, &names::dns_subdomain(node));
        }
        let hostname = text(endpoint, "hostname");
        if get(endpoint, "hostname").is_some() {
            errors.invalid_all(&path.field("hostname"), hostname, &names::dns_label(hostname));
        }
    }
    let all = Path::new("ports");
    let mut seen = BTreeSet::new();
    for (index, port) in list(new, "ports").iter().enumerate() {
        let path = all.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            errors.invalid_all(&path.field("name"), name, &names::dns_label(name));
        }
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        match text(port, "protocol") {
            "" => errors.required(&path.field("protocol"), ""),
            protocol => errors.one_of(&path.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]),
        }
        let protocol = text(port, "appProtocol");
        if !protocol.is_empty() {
            errors.invalid_all(
                &path.field("appProtocol"),
                protocol,
                &names::qualified_name(protocol),
            );
        }
    }
}

/// Upstream: `validateEndpoints`.
fn endpoint_address(
    kind: &str,
    address: &str,
    addresses: &Path<'_>,
    index: usize,
    errors: &mut Errors,
) {
    let path = addresses.index(index);
    match kind {
        "IPv4" | "IPv6" => match address.parse::<std::net::IpAddr>() {
            Err(_) => errors.invalid_all(&path, address, &names::ip(address)),
            Ok(ip) => {
                if ip.is_ipv4() != (kind == "IPv4") {
                    errors.invalid(addresses, address, &format!("must be an {kind} address"));
                }
                super::service::non_special_ip(address, &path, errors);
            }
        },
        "FQDN" => errors.invalid_all(&path, address, &names::dns_subdomain(address)),
        _ => {}
    }
}
