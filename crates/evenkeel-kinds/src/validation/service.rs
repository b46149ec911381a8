//! Validation of Services.

use super::{labels, names};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, object, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// Validates a new or updated Service.
///
/// Upstream: `ValidateService`.
pub(super) fn service(service: &Value, errors: &mut Errors) {
    let Some(spec) = service.get("spec") else { return };
    let path = Path::new("spec");
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    if list(spec, "ports").is_empty() && !headless && kind != "ExternalName" {
        errors.required(&path.field("ports"), "");
    }
    by_type(spec, kind, &path, errors);
    ports(spec, kind, &path, errors);
    labels::labels(object(spec, "selector"), &path.field("selector"), errors);
    affinity(spec, &path, errors);
    cluster_ips(spec, kind, &path, errors);
    let externals = path.field("externalIPs");
    for (index, ip) in list(spec, "externalIPs").iter().filter_map(Value::as_str).enumerate() {
        errors.invalid_all(&externals.index(index), ip, &names::ip(ip));
        non_special_ip(ip, &externals.index(index), errors);
    }
    policies(spec, kind, &path, errors);
    if !kind.is_empty() {
        errors.one_of(&path.field("type"), kind, TYPES);
    } else {
        errors.required(&path.field("type"), "");
    }
}

/// Rejects an address that leads to the machine itself or to its link, where nobody else's traffic may be sent.
///
/// Upstream: `ValidateEndpointIP`.
pub(super) fn non_special_ip(ip: &str, path: &Path<'_>, errors: &mut Errors) {
    let Ok(address) = ip.parse::<IpAddr>() else { return };
    let (is_link_local, is_link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let mut refuse = |why: &str| errors.invalid(path, ip, why);
    if address.is_unspecified() {
        refuse(&format!("may not be unspecified ({ip})"));
    }
    if address.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if is_link_local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if is_link_local_multicast {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn by_type(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    match kind {
        "LoadBalancer" => {
            let servicecidr = path.field("loadBalancerSourceRanges");
            for (index, range) in
                list(spec, "loadBalancerSourceRanges").iter().filter_map(Value::as_str).enumerate()
            {
                errors.invalid_all(&servicecidr.index(index), range, &names::cidr(range.trim()));
            }
        }
        "ExternalName" => {
            if !list(spec, "clusterIPs").is_empty() {
                errors.forbidden(
                    &path.field("clusterIPs"),
                    "may not be set for ExternalName services",
                );
            }
            match text(spec, "externalName") {
                "" => errors.required(&path.field("externalName"), ""),
                name => {
                    let bare = name.strip_suffix('.').unwrap_or(name);
                    errors.invalid_all(
                        &path.field("externalName"),
                        name,
                        &names::dns_subdomain(bare),
                    );
                }
            }
        }
        _ => {}
    }
    if kind != "LoadBalancer" {
        if !list(spec, "loadBalancerSourceRanges").is_empty() {
            errors.forbidden(
                &path.field("loadBalancerSourceRanges"),
                "may only be used when `type` is 'LoadBalancer'",
            );
        }
        for field in ["loadBalancerClass", "allocateLoadBalancerNodePorts"] {
            if get(spec, field).is_some() {
                errors.forbidden(
                    &path.field(field),
                    "may only be used when `type` is 'LoadBalancer'",
                );
            }
        }
    }
}

/// Upstream: `validateServicePort`.
fn ports(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let all = path.field("ports");
    let ports = list(spec, "ports");
    let (mut seen_names, mut seen_ports, mut seen_node_ports) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let path = all.index(index);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(&path.field("name"), "");
            }
        } else {
            errors.invalid_all(&path.field("name"), name, &names::dns_label(name));
            if !seen_names.insert(name) {
                errors.duplicate(&path.field("name"), name);
            }
        }
        let number = int(port, "port").unwrap_or_default();
        errors.in_range(&path.field("port"), Some(number), 1, 65535);
        let protocol = text(port, "protocol");
        if protocol.is_empty() {
            errors.required(&path.field("protocol"), "");
        } else {
            errors.one_of(&path.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        }
        super::pod::port_number_or_name(get(port, "targetPort"), &path.field("targetPort"), errors);
        let app_protocol = text(port, "appProtocol");
        if !app_protocol.is_empty() {
            errors.invalid_all(
                &path.field("appProtocol"),
                app_protocol,
                &names::qualified_name(app_protocol),
            );
        }
        let node_port = int(port, "nodePort").filter(|port| *port != 0);
        if node_port.is_some() && matches!(kind, "ClusterIP" | "ExternalName") {
            errors.forbidden(&path.field("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
        if !seen_ports.insert((protocol, number)) {
            let pair = serde_json::json!({"port": number, "protocol": protocol});
            errors.duplicate(&path, pair);
        }
        if let Some(node_port) = node_port
            && !seen_node_ports.insert((protocol, node_port))
        {
            errors.duplicate(&path.field("nodePort"), node_port);
        }
    }
}

fn affinity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let affinity = text(spec, "sessionAffinity");
    errors.one_of(&path.field("sessionAffinity"), affinity, &["ClientIP", "None"]);
    let path = path.field("sessionAffinityConfig");
    if affinity == "ClientIP" {
        let path = path.field("clientIP");
        let seconds = int(spec, "sessionAffinityConfig.clientIP.timeoutSeconds");
        if let Some(seconds) = seconds.filter(|seconds| !(1..=86400).contains(seconds)) {
            errors.invalid(
                &path.field("timeoutSeconds"),
                seconds,
                "must be greater than 0 and less than 86400",
            );
        }
    } else if get(spec, "sessionAffinityConfig").is_some() {
        errors.forbidden(&path, "must not be set when session affinity is None");
    }
}

/// Upstream: `ValidateServiceClusterIPsRelatedFields`.
fn cluster_ips(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    if kind == "ExternalName" {
        return;
    }
    let ips = list(spec, "clusterIPs");
    let first = text(spec, "clusterIP");
    let all = path.field("clusterIPs");
    if ips.first().and_then(Value::as_str).is_some_and(|ip| !first.is_empty() && ip != first) {
        errors.invalid(&all, Value::from(ips), "first value must match `clusterIP`");
        return;
    }
    if ips.len() > 2 {
        errors.invalid(&all, Value::from(ips), "may only hold up to 2 values");
    }
    for (index, ip) in ips.iter().filter_map(Value::as_str).enumerate() {
        let path = all.index(index);
        if ip == "None" {
            if ips.len() > 1 {
                errors.invalid(&all, Value::from(ips), "'None' must be the first and only value");
            } else if kind != "ClusterIP" {
                errors.invalid(
                    &path,
                    "None",
                    &format!("may not be set to 'None' for {kind} services"),
                );
            }
        } else {
            errors.invalid_all(&path, ip, &names::ip(ip));
        }
    }
}

fn policies(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let external = text(spec, "externalTrafficPolicy");
    let accessible = matches!(kind, "LoadBalancer" | "NodePort")
        || (kind == "ClusterIP" && !list(spec, "externalIPs").is_empty());
    if !external.is_empty() {
        let path = path.field("externalTrafficPolicy");
        if accessible {
            errors.one_of(&path, external, &["Cluster", "Local"]);
        } else {
            errors.invalid(&path, external, "may only be set for externally-accessible services");
        }
    }
    if let Some(port) = int(spec, "healthCheckNodePort").filter(|port| *port != 0)
        && !(kind == "LoadBalancer" && external == "Local")
    {
        let words =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&path.field("healthCheckNodePort"), port, words);
    }
    let internal = text(spec, "internalTrafficPolicy");
    if !internal.is_empty() {
        errors.one_of(&path.field("internalTrafficPolicy"), internal, &["Cluster", "Local"]);
    }
    let distribution = text(spec, "trafficDistribution");
    if !distribution.is_empty() {
        let forms = &["PreferClose", "PreferSameZone", "PreferSameNode"];
        errors.one_of(&path.field("trafficDistribution"), distribution, forms);
    }
}

/// Validates the immutable fields of a Service.
///
/// Upstream: `ValidateServiceUpdate`.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    service(new, errors);
    let path = Path::new("spec");
    let keeps_ip = |service: &Value| text(service, "spec.type") != "ExternalName";
    let before = list(old, "spec.clusterIPs");
    let after = list(new, "spec.clusterIPs");
    if keeps_ip(new)
        && keeps_ip(old)
        && before.first().is_some_and(|ip| Some(ip) != after.first())
        && !text(old, "spec.clusterIP").is_empty()
    {
        errors.invalid(
            &path.field("clusterIPs").index(0),
            Value::from(after),
            "may not change once set",
        );
    }
    if text(old, "spec.type") == "LoadBalancer" && text(new, "spec.type") == "LoadBalancer" {
        errors.immutable(
            &path.field("loadBalancerClass"),
            get(new, "spec.loadBalancerClass"),
            get(old, "spec.loadBalancerClass"),
        );
    }
}

/// Validates `status.loadBalancer` of a Service or an Ingress.
///
/// Upstream: `ValidateLoadBalancerStatus`.
pub(super) fn load_balancer(object: &Value, errors: &mut Errors) {
    let path = Path::new("status.loadBalancer.ingress");
    for (index, ingress) in list(object, "status.loadBalancer.ingress").iter().enumerate() {
        let path = path.index(index);
        let (ip, hostname) = (text(ingress, "ip"), text(ingress, "hostname"));
        if !ip.is_empty() {
            errors.invalid_all(&path.field("ip"), ip, &names::ip(ip));
        }
        if !hostname.is_empty() {
            errors.invalid_all(&path.field("hostname"), hostname, &names::dns_subdomain(hostname));
            if names::ip(hostname).is_empty() {
                errors.invalid(
                    &path.field("hostname"),
                    hostname,
                    "must be a DNS name, not an IP address",
                );
            }
        }
    }
}
