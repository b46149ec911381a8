//! Validation of discovery.k8s.io.

use super::{declared_immutable, names as forms};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, same, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of ports of an EndpointSlice.
const MAX_PORTS: usize = 20_000;
/// Maximum number of endpoints of an EndpointSlice.
const MAX_ENDPOINTS: usize = 1000;
/// Maximum number of addresses of one endpoint.
const MAX_ADDRESSES: usize = 100;
/// Maximum number of zones, and of nodes, in the hints of one endpoint.
const MAX_HINTS: usize = 8;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "EndpointSlice" {
        endpoint_slice(new, errors);
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if kind != "EndpointSlice" {
        return;
    }
    address_type_and_ports(new, errors);
    // Endpoints that older versions accepted can stay unchanged.
    if !same(new.get("endpoints"), old.get("endpoints")) {
        endpoints(new, errors);
    }
    declared_immutable("addressType", new, old, errors);
}

/// Validates the address type, the ports and the endpoints of a slice.
///
/// Upstream: `ValidateEndpointSlice`.
fn endpoint_slice(new: &Value, errors: &mut Errors) {
    address_type_and_ports(new, errors);
    endpoints(new, errors);
}

/// Validates the address type and the ports: their number, unique names, protocols and application protocols.
///
/// Upstream: `validateAddressType`, `validatePorts`.
fn address_type_and_ports(new: &Value, errors: &mut Errors) {
    let address_type = text(new, "addressType");
    let path = Path::new("addressType");
    errors.required_one_of(&path, address_type, &["FQDN", "IPv4", "IPv6"]);
    let (ports_path, ports) = (Path::new("ports"), list(new, "ports"));
    if ports.len() > MAX_PORTS {
        return errors.too_many(&ports_path, ports.len(), MAX_PORTS);
    }
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = ports_path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            errors.invalid_for_each(&path.field("name"), name, &forms::dns_label(name));
        }
        if !names.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        let protocol = text(port, "protocol");
        errors.required_one_of(&path.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        if get(port, "appProtocol").is_some() {
            let protocol = text(port, "appProtocol");
            let messages = forms::qualified_name(protocol);
            errors.invalid_for_each(&path.field("appProtocol"), protocol, &messages);
        }
    }
}

/// Validates the endpoints: addresses of the slice's type and their number, node names, hostnames and hints.
///
/// Upstream: `validateEndpoints`.
fn endpoints(new: &Value, errors: &mut Errors) {
    let address_type = text(new, "addressType");
    let (endpoints_path, endpoints) = (Path::new("endpoints"), list(new, "endpoints"));
    if endpoints.len() > MAX_ENDPOINTS {
        return errors.too_many(&endpoints_path, endpoints.len(), MAX_ENDPOINTS);
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = endpoints_path.index(index);
        let (addresses_path, addresses) = (path.field("addresses"), list(endpoint, "addresses"));
        match addresses.len() {
            0 => errors.required(&addresses_path, ""),
            n if n > MAX_ADDRESSES => errors.too_many(&addresses_path, n, MAX_ADDRESSES),
            _ => {}
        }
        for (index, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
            endpoint_address(address_type, address, &addresses_path, index, errors);
        }
        if get(endpoint, "nodeName").is_some() {
            let node = text(endpoint, "nodeName");
            errors.invalid_for_each(&path.field("nodeName"), node, &forms::dns_subdomain(node));
        }
        if get(endpoint, "hostname").is_some() {
            let hostname = text(endpoint, "hostname");
            errors.invalid_for_each(&path.field("hostname"), hostname, &forms::dns_label(hostname));
        }
        if let Some(hints) = get(endpoint, "hints") {
            let path = path.field("hints");
            for (field, check) in [
                ("forZones", forms::label_value as fn(&str) -> Vec<String>),
                ("forNodes", forms::dns_subdomain),
            ] {
                if list(hints, field).len() > MAX_HINTS {
                    errors.too_many(&path.field(field), list(hints, field).len(), MAX_HINTS);
                    break;
                }
                hint_names(list(hints, field), &path.field(field), check, errors);
            }
        }
    }
}

/// Validates the names of zones or nodes in hints, and that each occurs once.
///
/// Upstream: `validateHints`.
fn hint_names(
    hints: &[Value],
    path: &Path<'_>,
    check: fn(&str) -> Vec<String>,
    errors: &mut Errors,
) {
    let mut names = BTreeSet::new();
    for (index, hint) in hints.iter().enumerate() {
        let path = path.index(index);
        let name = text(hint, "name");
        if !names.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        errors.invalid_for_each(&path.field("name"), name, &check(name));
    }
}

/// Validates an address of an endpoint.
///
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
        "IPv4" | "IPv6" => {
            let form = if kind == "IPv4" { forms::ip } else { forms::canonical_ip };
            let messages = form(address);
            if !messages.is_empty() {
                return errors.invalid_for_each(&path, address, &messages);
            }
            let is_ipv4 = address.parse::<std::net::Ipv4Addr>().is_ok();
            if is_ipv4 != (kind == "IPv4") {
                errors.invalid(addresses, address, &format!("must be an {kind} address"));
            }
            super::service::non_special_ip(address, &path, errors);
        }
        "FQDN" => fully_qualified_domain_name(address, &path, errors),
        _ => {}
    }
}

/// Requires a DNS name of at least two segments. A trailing dot is allowed.
///
/// Upstream: `IsFullyQualifiedDomainName`.
fn fully_qualified_domain_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let messages = forms::dns_subdomain(name);
    if !messages.is_empty() {
        return errors.invalid(path, name, &messages.join(","));
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return errors.invalid(path, name, detail);
    }
    for label in name.split('.') {
        let messages = forms::dns_label(label);
        if !messages.is_empty() {
            return errors.invalid(path, label, &messages.join(","));
        }
    }
}
