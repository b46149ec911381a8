//! Validation of Services.

use super::{labels, names};
use crate::internal::quoted;
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
    let headless = is_headless(spec);
    if list(spec, "ports").is_empty() && !headless && kind != "ExternalName" {
        errors.required(&path.field("ports"), "");
    }
    by_type(spec, kind, &path, errors);
    ports(spec, &path, errors);
    labels::labels(object(spec, "selector"), &path.field("selector"), errors);
    affinity(spec, &path, errors);
    cluster_ips(spec, &path, errors);
    let externals = path.field("externalIPs");
    for (index, ip) in list(spec, "externalIPs").iter().filter_map(Value::as_str).enumerate() {
        let messages = names::ip(ip);
        errors.invalid_for_each(&externals.index(index), ip, &messages);
        if messages.is_empty() {
            non_special_ip(ip, &externals.index(index), errors);
        }
    }
    errors.required_one_of(&path.field("type"), kind, TYPES);
    unique_ports(spec, kind, &path.field("ports"), errors);
    only_of_load_balancers(spec, kind, &path, errors);
    policies(spec, kind, &path, errors);
}

/// Rejects addresses that a Service must not send its clients' traffic to, such as loopback and link-local addresses.
///
/// Upstream: `ValidateEndpointIP`.
pub(super) fn non_special_ip(ip: &str, path: &Path<'_>, errors: &mut Errors) {
    let Ok(address) = ip.parse::<IpAddr>() else {
        return errors.invalid(path, ip, "must be a valid IP address");
    };
    let (is_link_local, is_link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let mut reject = |why: &str| errors.invalid(path, ip, why);
    if address.is_unspecified() {
        reject(&format!("may not be unspecified ({ip})"));
    }
    if address.is_loopback() {
        reject("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if is_link_local {
        reject("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if is_link_local_multicast {
        reject("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// Validates the fields that only some types of Services may have.
fn by_type(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    if matches!(kind, "LoadBalancer" | "NodePort") && is_headless(spec) {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.invalid(&path.field("clusterIPs").index(0), "None", &detail);
    }
    if kind == "ExternalName" {
        for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            let is_set = match get(spec, field) {
                Some(Value::Array(items)) => !items.is_empty(),
                value => value.is_some(),
            };
            if is_set {
                errors.forbidden(&path.field(field), "may not be set for ExternalName services");
            }
        }
        let name = text(spec, "externalName");
        match name.strip_suffix('.').unwrap_or(name) {
            "" => errors.required(&path.field("externalName"), ""),
            bare => {
                let path = path.field("externalName");
                errors.invalid_for_each(&path, bare, &names::dns_subdomain(bare));
            }
        }
    }
}

/// Validates the fields that only a LoadBalancer may have.
///
/// Upstream: `validateLoadBalancerClassField`.
fn only_of_load_balancers(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "may only be used when `type` is 'LoadBalancer'";
    // Upstream's path has the field's Go name.
    let ranges_path = path.field("LoadBalancerSourceRanges");
    let ranges = list(spec, "loadBalancerSourceRanges");
    if !ranges.is_empty() && kind != "LoadBalancer" {
        errors.forbidden(&ranges_path, DETAIL);
    }
    for (index, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
        let range = range.trim();
        errors.invalid_for_each(&ranges_path.index(index), range, &names::cidr(range));
    }
    let allocates = "allocateLoadBalancerNodePorts";
    if get(spec, allocates).is_some() && kind != "LoadBalancer" {
        errors.forbidden(&path.field(allocates), DETAIL);
    }
    if let Some(class) = get(spec, "loadBalancerClass").and_then(Value::as_str) {
        let path = path.field("loadBalancerClass");
        match kind {
            "LoadBalancer" => errors.invalid_for_each(&path, class, &names::qualified_name(class)),
            _ => errors.forbidden(&path, DETAIL),
        }
    }
}

/// Validates the ports of a Service: names, numbers, protocols and target ports. Several ports need unique names.
///
/// Upstream: `validateServicePort`.
fn ports(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ports_path = path.field("ports");
    let ports = list(spec, "ports");
    let mut seen_names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = ports_path.index(index);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(&path.field("name"), "");
            }
        } else {
            errors.invalid_for_each(&path.field("name"), name, &names::dns_label(name));
            if !seen_names.insert(name) {
                errors.duplicate(&path.field("name"), name);
            }
        }
        let number = int(port, "port").unwrap_or_default();
        errors.in_range(&path.field("port"), Some(number), 1, 65535);
        let protocol = text(port, "protocol");
        errors.required_one_of(&path.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        super::pod_handlers::port_number_or_name(
            get(port, "targetPort"),
            &path.field("targetPort"),
            errors,
        );
        if let Some(app_protocol) = get(port, "appProtocol").and_then(Value::as_str) {
            errors.invalid_for_each(
                &path.field("appProtocol"),
                app_protocol,
                &names::qualified_name(app_protocol),
            );
        }
    }
}

/// Rejects node ports if the type of the Service has none, and ports that occur twice.
fn unique_ports(spec: &Value, kind: &str, ports_path: &Path<'_>, errors: &mut Errors) {
    let node_port = |port| int(port, "nodePort").filter(|port| *port != 0);
    let ports = || list(spec, "ports").iter().enumerate();
    for (index, _) in ports().filter(|(_, port)| kind == "ClusterIP" && node_port(port).is_some()) {
        let path = ports_path.index(index);
        errors.forbidden(&path.field("nodePort"), "may not be used when `type` is 'ClusterIP'");
    }
    let (mut seen, mut seen_node_ports) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports() {
        if let Some(node_port) = node_port(port)
            && !seen_node_ports.insert((text(port, "protocol"), node_port))
        {
            errors.duplicate(&ports_path.index(index).field("nodePort"), node_port);
        }
    }
    for (index, port) in ports() {
        let (protocol, number) = (text(port, "protocol"), int(port, "port").unwrap_or_default());
        if !seen.insert((protocol, number)) {
            // Upstream quotes a port with only these two fields set.
            let pair = serde_json::json!({"port": number, "protocol": protocol});
            errors.duplicate(&ports_path.index(index), quoted("core.ServicePort", Some(&pair)));
        }
    }
}

/// Validates the session affinity. A client's affinity lasts between 1 and 86400 seconds.
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
    } else if affinity == "None" && get(spec, "sessionAffinityConfig").is_some() {
        errors.forbidden(&path, "must not be set when session affinity is None");
    }
}

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

/// Returns whether the spec is a headless Service's, whose only cluster IP is `None`.
///
/// Upstream: `isHeadlessService`.
fn is_headless(spec: &Value) -> bool {
    matches!(list(spec, "clusterIPs"), [ip] if ip == "None")
}

/// Validates the cluster IPs of a Service and their families.
///
/// Upstream: `ValidateServiceClusterIPsRelatedFields`.
pub(crate) fn cluster_ips_related_fields(service: &Value, errors: &mut Errors) {
    if let Some(spec) = get(service, "spec") {
        cluster_ips(spec, &Path::new("spec"), errors);
    }
}

/// Validates the cluster IPs and the IP families, except of an ExternalName Service.
fn cluster_ips(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let ips = list(spec, "clusterIPs");
    let cluster_ips_path = path.field("clusterIPs");
    match (text(spec, "clusterIP"), ips.first()) {
        ("", None) => {}
        ("", Some(_)) => {
            let detail = "must be empty when `clusterIP` is not specified";
            errors.invalid(&cluster_ips_path, Value::from(ips), detail);
        }
        (_, None) => errors.required(&cluster_ips_path, ""),
        (ip, Some(first)) if first != ip => {
            errors.invalid(
                &cluster_ips_path,
                Value::from(ips),
                "first value must match `clusterIP`",
            );
        }
        _ => {}
    }
    let families = families(spec, path, errors);
    errors.one_of_if_set(
        &path.field("ipFamilyPolicy"),
        get(spec, "ipFamilyPolicy"),
        &FAMILY_POLICIES,
    );
    let mut has_invalid_ips = false;
    for (index, ip) in ips.iter().filter_map(Value::as_str).enumerate() {
        if index == 0 && ip == "None" {
            if ips.len() > 1 {
                has_invalid_ips = true;
                let detail = "'None' must be the first and only value";
                errors.invalid(&cluster_ips_path, Value::from(ips), detail);
            }
            continue;
        }
        let messages = names::ip(ip);
        has_invalid_ips |= !messages.is_empty();
        errors.invalid_for_each(&cluster_ips_path.index(index), ip, &messages);
    }
    if ips.len() > 2 {
        errors.invalid(&cluster_ips_path, Value::from(ips), "may only hold up to 2 values");
    }
    if has_invalid_ips {
        return;
    }
    let is_ipv6 = |ip: &str| ip.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
    let found_families: BTreeSet<bool> =
        ips.iter().filter_map(Value::as_str).map(is_ipv6).collect();
    if ips.len() > 1 && found_families.len() < 2 {
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid(&cluster_ips_path, Value::from(ips), detail);
    }
    if is_headless(spec) {
        return;
    }
    let ips = ips.iter().filter_map(Value::as_str);
    for (index, (ip, family)) in ips.zip(families).enumerate() {
        if (family == "IPv4" && is_ipv6(ip)) || (family == "IPv6" && !is_ipv6(ip)) {
            let detail =
                format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&cluster_ips_path.index(index), ip, &detail);
        }
    }
}

/// Validates and returns `ipFamilies`.
fn families<'v>(spec: &'v Value, path: &Path<'_>, errors: &mut Errors) -> Vec<&'v str> {
    let path = path.field("ipFamilies");
    let families: Vec<&str> = list(spec, "ipFamilies").iter().filter_map(Value::as_str).collect();
    let mut seen = BTreeSet::new();
    for (index, family) in families.iter().enumerate() {
        errors.one_of(&path.index(index), family, &FAMILIES);
        if !seen.insert(family) {
            errors.duplicate(&path.index(index), *family);
        }
    }
    families
}

/// Returns whether clients outside the cluster can reach a Service with this spec.
///
/// Upstream: `ExternallyAccessible`.
pub fn is_externally_accessible(spec: &Value) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

/// Validates the traffic policies, the traffic distribution and the health check's node port.
fn policies(spec: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let external = text(spec, "externalTrafficPolicy");
    if !external.is_empty() {
        let path = path.field("externalTrafficPolicy");
        if is_externally_accessible(spec) {
            errors.one_of(&path, external, &["Cluster", "Local"]);
        } else {
            errors.invalid(&path, external, "may only be set for externally-accessible services");
        }
    }
    if let Some(port) = int(spec, "healthCheckNodePort").filter(|port| *port != 0) {
        let path = path.field("healthCheckNodePort");
        if kind == "LoadBalancer" && external == "Local" {
            errors.in_range(&path, Some(port), 1, 65535);
        } else {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&path, port, detail);
        }
    }
    for (field, policies) in [
        ("internalTrafficPolicy", ["Cluster", "Local"].as_slice()),
        ("trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"]),
    ] {
        errors.one_of_if_set(&path.field(field), get(spec, field), policies);
    }
}

/// Validates an update of a Service, including its immutable fields.
///
/// Upstream: `ValidateServiceUpdate`.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    service(new, errors);
    let path = Path::new("spec");
    let has_cluster_ip = |service: &Value| text(service, "spec.type") != "ExternalName";
    let before = list(old, "spec.clusterIPs");
    let after = list(new, "spec.clusterIPs");
    let headless = |service| get(service, "spec").is_some_and(is_headless);
    if has_cluster_ip(new) && has_cluster_ip(old) && !(headless(new) && headless(old)) {
        // A Service may gain or release the second address, but not the first.
        let compared_count = if before.len() == after.len() { before.len() } else { 1 };
        for (index, ip) in before.iter().take(compared_count).enumerate() {
            let detail = match after.get(index) {
                None => "primary clusterIP can not be unset",
                Some(after) if after != ip => "may not change once set",
                _ => continue,
            };
            errors.invalid(&path.field("clusterIPs").index(index), Value::from(after), detail);
        }
        if before.len() > after.len()
            && after.len() == 1
            && text(new, "spec.ipFamilyPolicy") != "SingleStack"
        {
            let policy = get(new, "spec.ipFamilyPolicy").cloned().unwrap_or_default();
            let detail = "must be set to 'SingleStack' when releasing the secondary clusterIP";
            errors.invalid(&path.field("ipFamilyPolicy"), policy, detail);
        }
        update_families(new, old, errors);
    }
    let has_health_check = |service| {
        text(service, "spec.type") == "LoadBalancer"
            && text(service, "spec.externalTrafficPolicy") == "Local"
    };
    let port = |service| int(service, "spec.healthCheckNodePort").unwrap_or_default();
    if has_health_check(old) && has_health_check(new) && port(old) != port(new) {
        errors.forbidden(&path.field("healthCheckNodePort"), "field is immutable");
    }
    if text(old, "spec.type") == "LoadBalancer" && text(new, "spec.type") == "LoadBalancer" {
        let class = |service| get(service, "spec.loadBalancerClass");
        if class(new) != class(old) {
            let value = class(new).cloned().unwrap_or_default();
            errors.invalid(&path.field("loadBalancerClass"), value, "may not change once set");
        }
    }
}

/// Rejects changes of a Service's IP families, unless it is headless. It may gain or release the second family.
///
/// Upstream: `validateUpgradeDowngradeIPFamilies`.
fn update_families(new: &Value, old: &Value, errors: &mut Errors) {
    let is_headless = |service| get(service, "spec").is_some_and(is_headless);
    if is_headless(new) || is_headless(old) {
        return;
    }
    let (before, after) = (list(old, "spec.ipFamilies"), list(new, "spec.ipFamilies"));
    let path = Path::new("spec");
    let compared_count = if before.len() == after.len() { before.len() } else { 1 };
    let pairs = before.iter().zip(after).take(compared_count);
    for _ in pairs.filter(|(before, after)| before != after) {
        let path = path.field("ipFamilies");
        errors.invalid(&path.index(0), Value::from(after), "may not change once set");
    }
    if before.len() > after.len()
        && after.len() == 1
        && text(new, "spec.ipFamilyPolicy") != "SingleStack"
    {
        let policy = get(new, "spec.ipFamilyPolicy").cloned().unwrap_or_default();
        let detail = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        errors.invalid(&path.field("ipFamilyPolicy"), policy, detail);
    }
}

/// Validates the status of a Service. Only a load balancer may have ingress points, and each IP needs a mode.
///
/// Upstream: `ValidateLoadBalancerStatus`.
pub(super) fn update_status(service: &Value, errors: &mut Errors) {
    let path = Path::new("status.loadBalancer.ingress");
    let ingresses = list(service, "status.loadBalancer.ingress");
    if text(service, "spec.type") != "LoadBalancer" && !ingresses.is_empty() {
        return errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    load_balancer(service, errors);
    for (index, ingress) in ingresses.iter().enumerate() {
        let path = path.index(index);
        let path = path.field("ipMode");
        let has_ip = !text(ingress, "ip").is_empty();
        match get(ingress, "ipMode").and_then(Value::as_str) {
            None if has_ip => errors.required(&path, "must be specified when `ip` is set"),
            None => {}
            Some(_) if !has_ip => {
                errors.forbidden(&path, "may not be specified when `ip` is not set");
            }
            Some(mode) => errors.one_of(&path, mode, &["Proxy", "VIP"]),
        }
    }
}

/// Validates `status.loadBalancer` of an Ingress or a Service by the rules that both share.
///
/// Upstream: `ValidateIngressLoadBalancerStatus`.
pub(super) fn load_balancer(object: &Value, errors: &mut Errors) {
    let path = Path::new("status.loadBalancer.ingress");
    for (index, ingress) in list(object, "status.loadBalancer.ingress").iter().enumerate() {
        let path = path.index(index);
        let (ip, hostname) = (text(ingress, "ip"), text(ingress, "hostname"));
        if !ip.is_empty() {
            errors.invalid_for_each(&path.field("ip"), ip, &names::ip(ip));
        }
        if !hostname.is_empty() {
            errors.invalid_for_each(
                &path.field("hostname"),
                hostname,
                &names::dns_subdomain(hostname),
            );
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns a valid ClusterIP Service, with the fields in `spec` replaced.
    fn service_of(spec: &Value) -> Value {
        let mut service = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "sessionAffinity": "None", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack"}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }
        service
    }

    /// Asserts that creating a Service with `spec`, or updating it from `old`, has errors of the `expected` fields.
    #[track_caller]
    fn check(spec: &Value, old: Option<&Value>, expected: &[&str]) {
        let mut errors = Errors::default();
        let new = service_of(spec);
        match old {
            None => service(&new, &mut errors),
            Some(old) => update(&new, &service_of(old), &mut errors),
        }
        let fields: Vec<String> = errors.into_vec().into_iter().map(|error| error.field).collect();
        assert_eq!(fields, expected, "{new}");
    }

    #[test]
    fn cluster_ips_match_the_ip_families() {
        check(&json!({}), None, &[]);
        check(
            &json!({"ipFamilyPolicy": "x", "ipFamilies": ["y"]}),
            None,
            &["spec.ipFamilies[0]", "spec.ipFamilyPolicy"],
        );
        check(&json!({"ipFamilies": ["IPv4", "IPv4"]}), None, &["spec.ipFamilies[1]"]);
        check(&json!({"ipFamilies": ["IPv6"]}), None, &["spec.clusterIPs[0]"]);
        check(&json!({"clusterIPs": ["10.0.0.1", "10.0.0.2"]}), None, &["spec.clusterIPs"]);
        check(
            &json!({"clusterIPs": ["10.0.0.1", "::1"], "ipFamilies": ["IPv4", "IPv6"]}),
            None,
            &[],
        );
        check(&json!({"clusterIP": ""}), None, &["spec.clusterIPs"]);
        check(&json!({"clusterIPs": []}), None, &["spec.clusterIPs"]);
        check(
            &json!({"clusterIP": "None", "clusterIPs": ["None"], "type": "NodePort", "externalTrafficPolicy": "Local"}),
            None,
            &["spec.clusterIPs[0]"],
        );
        check(
            &json!({"type": "ExternalName", "externalName": "a"}),
            None,
            &["spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"],
        );
    }

    #[test]
    fn only_load_balancers_have_ingress_points_and_ips_need_a_mode() {
        for (kind, ingress, expected) in [
            ("LoadBalancer", json!({"ip": "1.2.3.4", "ipMode": "VIP"}), vec![]),
            ("ClusterIP", json!({"hostname": "a"}), vec![""]),
            ("LoadBalancer", json!({"ip": "1.2.3.4"}), vec!["[0].ipMode"]),
            ("LoadBalancer", json!({"hostname": "a", "ipMode": "VIP"}), vec!["[0].ipMode"]),
            ("LoadBalancer", json!({"ip": "1.2.3.4", "ipMode": "x"}), vec!["[0].ipMode"]),
        ] {
            let mut errors = Errors::default();
            let status = json!({"loadBalancer": {"ingress": [ingress]}});
            update_status(&json!({"spec": {"type": kind}, "status": status}), &mut errors);
            let fields: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            let expected: Vec<String> =
                expected.iter().map(|end| format!("status.loadBalancer.ingress{end}")).collect();
            assert_eq!(fields, expected);
        }
    }

    #[test]
    fn only_the_second_address_and_family_may_change() {
        let both = || json!({"clusterIPs": ["10.0.0.1", "::1"], "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"});
        check(&both(), Some(&json!({})), &[]);
        check(&json!({}), Some(&both()), &[]);
        check(
            &json!({"ipFamilyPolicy": "PreferDualStack"}),
            Some(&both()),
            &["spec.ipFamilyPolicy", "spec.ipFamilyPolicy"],
        );
        check(
            &json!({"clusterIP": "::1", "clusterIPs": ["::1"], "ipFamilies": ["IPv6"]}),
            Some(&json!({})),
            &["spec.clusterIPs[0]", "spec.ipFamilies[0]"],
        );
    }
}
