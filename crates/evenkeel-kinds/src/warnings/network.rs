//! Warnings about addresses.

use evenkeel_apimachinery::value::{list, object, text};
use serde_json::Value;
use std::net::Ipv6Addr;

/// Warns about an IPv6 address that is not in canonical form.
///
/// Upstream: `GetWarningsForIP`.
pub(super) fn warn_about_ip(path: &str, value: Option<&str>, warnings: &mut Vec<String>) {
    let value = value.unwrap_or_default();
    let Ok(ip) = value.parse::<Ipv6Addr>() else { return };
    let canonical = ip.to_string();
    if canonical != value {
        warnings.push(format!(
            "{path}: IPv6 address {value:?} should be in RFC 5952 canonical format ({canonical:?})"
        ));
    }
}

/// Warns about a range of IPv6 addresses that is not in canonical form.
///
/// Upstream: `GetWarningsForCIDR`.
pub(super) fn warn_about_cidr(path: &str, value: &Value, warnings: &mut Vec<String>) {
    let value = value.as_str().unwrap_or_default();
    let Some((ip, length)) = value.split_once('/') else { return };
    let Ok(ip) = ip.parse::<Ipv6Addr>() else { return };
    let canonical = format!("{ip}/{length}");
    if canonical != value {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format ({canonical:?})"
        ));
    }
}

/// Warns about the addresses at a field of each item of a list.
fn addresses(owner: &Value, path: &str, field: &str, warnings: &mut Vec<String>) {
    for (index, item) in list(owner, path).iter().enumerate() {
        let place = format!("{path}[{index}]{}{field}", if field.is_empty() { "" } else { "." });
        let ip = if field.is_empty() { item.as_str() } else { Some(text(item, field)) };
        warn_about_ip(&place, ip, warnings);
    }
}

/// Warns about the ranges of a network policy.
///
/// Upstream: `networkPolicyWarnings`.
pub(super) fn policy(policy: &Value, warnings: &mut Vec<String>) {
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in list(policy, &format!("spec.{rules}")).iter().enumerate() {
            for (j, peer) in list(rule, peers).iter().enumerate() {
                let path = format!("spec.{rules}[{i}].{peers}[{j}].ipBlock");
                warn_about_cidr(&format!("{path}.cidr"), &peer["ipBlock"]["cidr"], warnings);
                for (k, except) in list(peer, "ipBlock.except").iter().enumerate() {
                    warn_about_cidr(&format!("{path}.except[{k}]"), except, warnings);
                }
            }
        }
    }
}

/// Returns whether a label names one of the controllers that write canonical addresses.
fn is_managed_by(owner: &Value, label: &str, controllers: &[&str]) -> bool {
    let value = object(owner, "metadata.labels").and_then(|labels| labels.get(label));
    value.and_then(Value::as_str).is_some_and(|value| controllers.contains(&value))
}

/// Warns about the addresses of Endpoints, except for Endpoints that controllers write.
///
/// Upstream: `endpointsWarnings`.
pub(super) fn endpoints(endpoints: &Value, warnings: &mut Vec<String>) {
    let label = "endpoints.kubernetes.io/managed-by";
    if is_managed_by(endpoints, label, &["endpoint-controller"]) {
        return;
    }
    for (index, subset) in list(endpoints, "subsets").iter().enumerate() {
        for field in ["addresses", "notReadyAddresses"] {
            let mut found = Vec::new();
            addresses(subset, field, "ip", &mut found);
            warnings.extend(found.into_iter().map(|one| format!("subsets[{index}].{one}")));
        }
    }
}

/// Warns about new slices of type FQDN, and about addresses that are not in canonical form. Controllers of Kubernetes
/// write canonical addresses, so the addresses of their slices are not checked.
///
/// Upstream: `warnOnDeprecatedAddressType`, `warnOnBadIPs`.
pub(super) fn endpoint_slice(slice: &Value, is_new: bool, warnings: &mut Vec<String>) {
    if is_new && text(slice, "addressType") == "FQDN" {
        // The field is `addressType`; the warning has upstream's path.
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let label = "endpointslice.kubernetes.io/managed-by";
    let controllers =
        ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
    if is_managed_by(slice, label, &controllers) {
        return;
    }
    for (index, endpoint) in list(slice, "endpoints").iter().enumerate() {
        let mut found = Vec::new();
        addresses(endpoint, "addresses", "", &mut found);
        warnings.extend(found.into_iter().map(|one| format!("endpoints[{index}].{one}")));
    }
}

/// Warns about the addresses in the `status` of an object.
pub(super) fn status(kind: &str, owner: &Value, warnings: &mut Vec<String>) {
    match kind {
        "Pod" => {
            addresses(owner, "status.podIPs", "ip", warnings);
            addresses(owner, "status.hostIPs", "ip", warnings);
        }
        "Service" | "Ingress" => {
            for (index, ingress) in list(owner, "status.loadBalancer.ingress").iter().enumerate() {
                let path = format!("status.loadBalancer.ingress[{index}]");
                warn_about_ip(&path, Some(text(ingress, "ip")), warnings);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_that_are_not_canonical_are_named_with_their_place() {
        let canonical = |place: &str, what: &str, value: &str, form: &str| {
            format!(
                "{place}: IPv6 {what} {value:?} should be in RFC 5952 canonical format ({form:?})"
            )
        };
        let mut found = Vec::new();
        let block =
            json!({"ipBlock": {"cidr": "FD00::/8", "except": ["fd00:0::/16", "10.0.0.0/8"]}});
        policy(&json!({"spec": {"egress": [{"to": [block]}]}}), &mut found);
        let block = "spec.egress[0].to[0].ipBlock";
        assert_eq!(
            found,
            [
                canonical(&format!("{block}.cidr"), "CIDR value", "FD00::/8", "fd00::/8"),
                canonical(&format!("{block}.except[0]"), "CIDR value", "fd00:0::/16", "fd00::/16"),
            ]
        );
        let mut found = Vec::new();
        let slice = json!({"addressType": "FQDN", "endpoints": [{"addresses": ["a", "FD00::1"]}]});
        endpoint_slice(&slice, true, &mut found);
        assert_eq!(
            found,
            [
                "spec.addressType: FQDN endpoints are deprecated".to_owned(),
                canonical("endpoints[0].addresses[1]", "address", "FD00::1", "fd00::1"),
            ]
        );
        let mut found = Vec::new();
        status("Pod", &json!({"status": {"podIPs": [{"ip": "FD00::1"}]}}), &mut found);
        assert_eq!(found, [canonical("status.podIPs[0].ip", "address", "FD00::1", "fd00::1")]);
    }
}
