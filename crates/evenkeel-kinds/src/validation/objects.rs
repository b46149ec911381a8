//! Validation of all groups except core, apps and batch.

use super::{ValidationTarget, autoscaling, labels, names, service, servicecidr};
use crate::certificatesigningrequest;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{at, flag, int, is_empty, list, object, text};
use serde_json::Value;
use std::collections::BTreeSet;

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(crate) fn create(group: &str, kind: &str, new: &Value, errors: &mut Errors) {
    match (group, kind) {
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(new, errors),
        ("policy", "PodDisruptionBudget") => disruption_budget(new, errors),
        ("networking.k8s.io", "Ingress") => ingress(new, true, errors),
        ("networking.k8s.io", "IngressClass") => ingress_class(new, errors),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(new, errors),
        ("networking.k8s.io", "ServiceCIDR") => servicecidr::service_cidr(new, errors),
        ("networking.k8s.io", "IPAddress") => servicecidr::ip_address(new, errors),
        ("discovery.k8s.io", "EndpointSlice") => endpoint_slice(new, errors),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => role(kind, new, errors),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            role_binding(kind, new, errors);
        }
        ("coordination.k8s.io", "Lease") => lease(new, errors),
        ("scheduling.k8s.io", "PriorityClass") => priority_class(new, errors),
        ("storage.k8s.io", "StorageClass") => storage_class(new, errors),
        ("storage.k8s.io", "CSINode") => csi_node(new, errors),
        ("certificates.k8s.io", "CertificateSigningRequest") => signing_request(new, errors),
        ("apiregistration.k8s.io", "APIService") => api_service(new, errors),
        ("flowcontrol.apiserver.k8s.io", _) => flow_control(kind, new, errors),
        ("node.k8s.io", "RuntimeClass") => {
            let handler = text(new, "handler");
            errors.invalid_all(&Path::new("handler"), handler, &names::dns_label(handler));
        }
        _ => {}
    }
}

pub(crate) fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    if (target.group, target.kind) == ("certificates.k8s.io", "CertificateSigningRequest") {
        certificatesigningrequest::validate_update(target.subresource, new, old, errors);
        return;
    }
    if target.subresource == "status" {
        match target.kind {
            "Ingress" => service::load_balancer(new, errors),
            "PodDisruptionBudget" => {
                let path = Path::new("status");
                for field in
                    ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]
                {
                    errors.non_negative(&path.field(field), int(new, &format!("status.{field}")));
                }
            }
            _ => {}
        }
        return;
    }
    match target.kind {
        "Ingress" => ingress(new, false, errors),
        "ServiceCIDR" => servicecidr::service_cidr_update(new, old, errors),
        // When the immutable address type changes, the new type's addresses need no validation.
        "EndpointSlice" if new.get("addressType") != old.get("addressType") => {}
        kind => create(target.group, kind, new, errors),
    }
    let frozen: &[&str] = match target.kind {
        "IngressClass" => &["spec.controller"],
        "EndpointSlice" => &["addressType"],
        "IPAddress" => &["spec.parentRef"],
        "RoleBinding" | "ClusterRoleBinding" => &["roleRef"],
        "PriorityClass" => &["value", "preemptionPolicy"],
        "StorageClass" => &["provisioner", "parameters", "volumeBindingMode"],
        "RuntimeClass" => &["handler"],
        "ClusterTrustBundle" => &["spec.signerName"],
        "PodCertificateRequest" => &["spec"],
        "CSIDriver" => &["spec.attachRequired", "spec.fsGroupPolicy", "spec.volumeLifecycleModes"],
        "VolumeAttachment" => &["spec"],
        "ResourceClaim" | "ResourceClaimTemplate" => &["spec"],
        "ResourceSlice" => &["spec.pool.name", "spec.driver", "spec.nodeName"],
        _ => &[],
    };
    for field in frozen {
        let root = Path::new(field);
        let (after, before) = (at(new, field), at(old, field));
        if target.kind == "StorageClass" && *field != "volumeBindingMode" {
            if !evenkeel_apimachinery::value::same(after, before) {
                errors.forbidden(&root, &format!("updates to {field} are forbidden."));
            }
        } else if *field == "value" {
            if after != before {
                errors.forbidden(&root, "may not be changed in an update.");
            }
        } else {
            errors.immutable(&root, after, before);
        }
    }
    if target.kind == "StorageClass" && at(new, "reclaimPolicy") != at(old, "reclaimPolicy") {
        errors.forbidden(&Path::new("reclaimPolicy"), "updates to reclaimPolicy are forbidden.");
    }
}

/// Upstream: `ValidatePodDisruptionBudgetSpec`.
fn disruption_budget(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (available, unavailable) = (at(new, "spec.minAvailable"), at(new, "spec.maxUnavailable"));
    if available.is_some() && unavailable.is_some() {
        errors.invalid(
            &path,
            new.get("spec").cloned().unwrap_or_default(),
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    for (value, field) in [(available, "minAvailable"), (unavailable, "maxUnavailable")] {
        let path = path.field(field);
        super::apps::count_or_percent(value, &path, errors);
        if super::apps::percent(value).is_some_and(|percent| percent > 100) {
            errors.invalid(
                &path,
                value.cloned().unwrap_or_default(),
                "must not be greater than 100%",
            );
        }
    }
    if let Some(selector) = at(new, "spec.selector") {
        labels::selector(selector, &path.field("selector"), errors);
    }
    let policy = text(new, "spec.unhealthyPodEvictionPolicy");
    if !policy.is_empty() {
        errors.one_of(
            &path.field("unhealthyPodEvictionPolicy"),
            policy,
            &["AlwaysAllow", "IfHealthyBudget"],
        );
    }
}

/// Upstream: `ValidateIngressSpec`.
fn ingress(new: &Value, created: bool, errors: &mut Errors) {
    let path = Path::new("spec");
    let class = at(new, "spec.ingressClassName").and_then(Value::as_str);
    let annotation = object(new, "metadata.annotations")
        .and_then(|annotations| annotations.get("kubernetes.io/ingress.class"))
        .and_then(Value::as_str);
    if created
        && let (Some(class), Some(annotation)) = (class, annotation)
        && class != annotation
    {
        let annotations = Path::new("annotations");
        let path = annotations.field("kubernetes.io/ingress.class");
        errors.invalid(&path, annotation, "must match `ingressClassName` when both are specified");
    }
    let rules = list(new, "spec.rules");
    if rules.is_empty() && at(new, "spec.defaultBackend").is_none() {
        errors.invalid(
            &path,
            Value::Array(Vec::new()),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if let Some(backend) = at(new, "spec.defaultBackend") {
        ingress_backend(backend, &path.field("defaultBackend"), errors);
    }
    let all = path.field("rules");
    for (index, rule) in rules.iter().enumerate() {
        ingress_rule(rule, &all.index(index), errors);
    }
    let tls = path.field("tls");
    for (index, entry) in list(new, "spec.tls").iter().enumerate() {
        let path = tls.index(index);
        let hosts = path.field("hosts");
        for (index, host) in list(entry, "hosts").iter().filter_map(Value::as_str).enumerate() {
            ingress_host(host, &hosts.index(index), errors);
        }
        let secret = text(entry, "secretName");
        if !secret.is_empty() {
            errors.invalid_all(&path.field("secretName"), secret, &names::dns_subdomain(secret));
        }
    }
    if let Some(class) = class {
        errors.invalid_all(&path.field("ingressClassName"), class, &names::dns_subdomain(class));
    }
}

fn ingress_host(host: &str, path: &Path<'_>, errors: &mut Errors) {
    if host.contains('*') {
        errors.invalid_all(path, host, &names::wildcard_subdomain(host));
    } else {
        errors.invalid_all(path, host, &names::dns_subdomain(host));
    }
}

/// Upstream: `validateIngressRules`, `validateHTTPIngressRuleValue`.
fn ingress_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let host = text(rule, "host");
    if !host.is_empty() {
        if names::ip(host).is_empty() {
            errors.invalid(&path.field("host"), host, "must be a DNS name, not an IP address");
        }
        ingress_host(host, &path.field("host"), errors);
    }
    let Some(http) = at(rule, "http") else { return };
    let http_path = path.field("http");
    let paths = http_path.field("paths");
    if list(http, "paths").is_empty() {
        errors.required(&paths, "");
    }
    for (index, entry) in list(http, "paths").iter().enumerate() {
        let path = paths.index(index);
        let target = text(entry, "path");
        match at(entry, "pathType").and_then(Value::as_str) {
            None => errors.required(&path.field("pathType"), "pathType must be specified"),
            Some("Exact" | "Prefix") => {
                if !target.starts_with('/') {
                    errors.invalid(&path.field("path"), target, "must be an absolute path");
                }
                for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                    if target.contains(bad) {
                        errors.invalid(
                            &path.field("path"),
                            target,
                            &format!("must not contain '{bad}'"),
                        );
                    }
                }
                for bad in ["/..", "/."] {
                    if target.ends_with(bad) {
                        errors.invalid(
                            &path.field("path"),
                            target,
                            &format!("cannot end with '{bad}'"),
                        );
                    }
                }
            }
            Some("ImplementationSpecific") => {
                if !target.is_empty() && !target.starts_with('/') {
                    errors.invalid(&path.field("path"), target, "must be an absolute path");
                }
            }
            Some(other) => {
                errors.not_supported(
                    &path.field("pathType"),
                    other,
                    &["Exact", "ImplementationSpecific", "Prefix"],
                );
            }
        }
        if let Some(backend) = at(entry, "backend") {
            ingress_backend(backend, &path.field("backend"), errors);
        }
    }
}

/// Upstream: `validateIngressBackend`.
fn ingress_backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (at(backend, "service"), at(backend, "resource")) {
        (Some(_), Some(_)) => {
            errors.invalid(path, "", "cannot set both resource and service backends");
        }
        (None, None) => errors.required(path, "resource or service backend is required"),
        (None, Some(resource)) => {
            let path = path.field("resource");
            for field in ["kind", "name"] {
                if text(resource, field).is_empty() {
                    errors.required(&path.field(field), "");
                }
            }
        }
        (Some(service), None) => {
            let path = path.field("service");
            errors.required_valid(
                &path.field("name"),
                text(service, "name"),
                names::dns_1035_label,
            );
            let port_path = path.field("port");
            let (name, number) =
                (text(service, "port.name"), int(service, "port.number").unwrap_or_default());
            match (name.is_empty(), number == 0) {
                (true, true) => errors.required(&path, "port name or number is required"),
                (false, false) => {
                    errors.invalid(&path, "", "cannot set both port name & port number");
                }
                (false, true) => {
                    errors.invalid_all(&port_path.field("name"), name, &names::port_name(name));
                }
                (true, false) => {
                    errors.in_range(&port_path.field("number"), Some(number), 1, 65535);
                }
            }
        }
    }
}

/// Upstream: `ValidateIngressClass`.
fn ingress_class(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let controller = text(new, "spec.controller");
    if controller.len() > 250 {
        errors.too_long(&path.field("controller"), 250);
    }
    if !controller.is_empty() {
        match controller.split_once('/') {
            Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
                errors.invalid_all(&path.field("controller"), host, &names::dns_subdomain(host));
            }
            _ => {
                let words = "must be a domain-prefixed path (such as \"acme.io/foo\")";
                errors.invalid(&path.field("controller"), controller, words);
            }
        }
    } else {
        errors.required(&path.field("controller"), "");
    }
    let Some(parameters) = at(new, "spec.parameters") else { return };
    let path = path.field("parameters");
    for field in ["kind", "name"] {
        if text(parameters, field).is_empty() {
            errors.required(&path.field(field), "");
        }
    }
    let namespace = text(parameters, "namespace");
    match text(parameters, "scope") {
        "Namespace" if namespace.is_empty() => {
            errors.required(&path.field("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        "Cluster" if !namespace.is_empty() => {
            errors.forbidden(&path.field("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        "Namespace" | "Cluster" => {}
        "" => errors.required(&path.field("scope"), ""),
        other => errors.not_supported(&path.field("scope"), other, &["Cluster", "Namespace"]),
    }
}

/// Upstream: `ValidateNetworkPolicySpec`.
fn network_policy(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if let Some(selector) = at(new, "spec.podSelector") {
        labels::selector(selector, &path.field("podSelector"), errors);
    }
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let all = path.field(direction);
        for (index, rule) in list(new, &format!("spec.{direction}")).iter().enumerate() {
            let path = all.index(index);
            let ports = path.field("ports");
            for (index, port) in list(rule, "ports").iter().enumerate() {
                policy_port(port, &ports.index(index), errors);
            }
            let all = path.field(peers);
            for (index, peer) in list(rule, peers).iter().enumerate() {
                policy_peer(peer, &all.index(index), errors);
            }
        }
    }
    let types = list(new, "spec.policyTypes");
    if types.len() > 2 {
        errors.invalid(
            &path.field("policyTypes"),
            Value::from(types),
            "may not specify more than two policyTypes",
        );
        return;
    }
    let all = path.field("policyTypes");
    for (index, kind) in types.iter().filter_map(Value::as_str).enumerate() {
        errors.one_of(&all.index(index), kind, &["Egress", "Ingress"]);
    }
}

/// Upstream: `ValidateNetworkPolicyPort`.
fn policy_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    let protocol = text(port, "protocol");
    if !protocol.is_empty() {
        errors.one_of(&path.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
    }
    match at(port, "port") {
        Some(Value::Number(number)) => {
            errors.in_range(&path.field("port"), number.as_i64(), 1, 65535);
            if let Some(end) = int(port, "endPort") {
                if number.as_i64().is_some_and(|start| end < start) {
                    errors.invalid(
                        &path.field("endPort"),
                        end,
                        "must be greater than or equal to `port`",
                    );
                }
                errors.in_range(&path.field("endPort"), Some(end), 1, 65535);
            }
        }
        Some(Value::String(name)) => {
            if let Some(end) = int(port, "endPort") {
                errors.invalid(
                    &path.field("endPort"),
                    end,
                    "may not be specified when `port` is non-numeric",
                );
            }
            errors.invalid_all(&path.field("port"), name, &names::port_name(name));
        }
        _ => {
            if let Some(end) = int(port, "endPort") {
                errors.invalid(
                    &path.field("endPort"),
                    end,
                    "may not be specified when `port` is not specified",
                );
            }
        }
    }
}

/// Upstream: `ValidateNetworkPolicyPeer`.
fn policy_peer(peer: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut n_peers = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = at(peer, field) {
            n_peers += 1;
            labels::selector(selector, &path.field(field), errors);
        }
    }
    if let Some(block) = at(peer, "ipBlock") {
        let block_path = path.field("ipBlock");
        let cidr = text(block, "cidr");
        if cidr.is_empty() {
            errors.required(&block_path.field("cidr"), "");
        } else {
            errors.invalid_all(&block_path.field("cidr"), cidr, &names::cidr(cidr));
        }
        let excepts = block_path.field("except");
        for (index, except) in list(block, "except").iter().filter_map(Value::as_str).enumerate() {
            errors.invalid_all(&excepts.index(index), except, &names::cidr(except));
        }
        if n_peers > 0 {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
        n_peers += 1;
    }
    if n_peers == 0 {
        errors.required(path, "must specify a peer");
    }
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
            slice_address(kind, address, &addresses, index, errors);
        }
        let node = text(endpoint, "nodeName");
        if at(endpoint, "nodeName").is_some() {
            errors.invalid_all(&path.field("nodeName"), node, &names::dns_subdomain(node));
        }
        let hostname = text(endpoint, "hostname");
        if at(endpoint, "hostname").is_some() {
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
fn slice_address(
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
                if ip.is_loopback() {
                    errors.invalid(
                        &path,
                        address,
                        "may not be in the loopback range (127.0.0.0/8, ::1/128)",
                    );
                } else if ip.is_unspecified() {
                    errors.invalid(&path, address, &format!("may not be unspecified ({address})"));
                } else if ip.is_multicast() {
                    errors.invalid(
                        &path,
                        address,
                        "may not be in the multicast range (224.0.0.0/4, ff00::/8)",
                    );
                }
            }
        },
        "FQDN" => errors.invalid_all(&path, address, &names::dns_subdomain(address)),
        _ => {}
    }
}

/// Upstream: `ValidateRole`, `ValidateClusterRole`.
fn role(kind: &str, new: &Value, errors: &mut Errors) {
    let all = Path::new("rules");
    for (index, rule) in list(new, "rules").iter().enumerate() {
        policy_rule(rule, kind == "Role", &all.index(index), errors);
    }
    if kind == "ClusterRole" && at(new, "aggregationRule").is_some() {
        let path = Path::new("aggregationRule");
        let selectors = path.field("clusterRoleSelectors");
        if list(new, "aggregationRule.clusterRoleSelectors").is_empty() {
            let words = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.required(&selectors, words);
        }
        for (index, selector) in
            list(new, "aggregationRule.clusterRoleSelectors").iter().enumerate()
        {
            labels::selector(selector, &selectors.index(index), errors);
        }
    }
}

/// Upstream: `ValidatePolicyRule`.
fn policy_rule(rule: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    if list(rule, "verbs").is_empty() {
        errors.required(&path.field("verbs"), "");
    }
    let urls = list(rule, "nonResourceURLs");
    if !urls.is_empty() {
        let path = path.field("nonResourceURLs");
        if namespaced {
            errors.invalid(
                &path,
                Value::from(urls),
                "namespaced rules cannot apply to non-resource URLs",
            );
        }
        if ["apiGroups", "resources", "resourceNames"]
            .iter()
            .any(|field| !list(rule, field).is_empty())
        {
            let words = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(&path, Value::from(urls), words);
        }
        return;
    }
    if list(rule, "apiGroups").is_empty() {
        errors.required(
            &path.field("apiGroups"),
            "resource rules must supply at least one api group",
        );
    }
    if list(rule, "resources").is_empty() {
        errors
            .required(&path.field("resources"), "resource rules must supply at least one resource");
    }
}

/// Upstream: `ValidateRoleBinding`, `ValidateClusterRoleBinding`.
fn role_binding(kind: &str, new: &Value, errors: &mut Errors) {
    let path = Path::new("roleRef");
    let group = "rbac.authorization.k8s.io";
    if text(new, "roleRef.apiGroup") != group {
        errors.not_supported(&path.field("apiGroup"), text(new, "roleRef.apiGroup"), &[group]);
    }
    let kinds: &[&str] =
        if kind == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    errors.one_of(&path.field("kind"), text(new, "roleRef.kind"), kinds);
    errors.required_valid(&path.field("name"), text(new, "roleRef.name"), names::path_segment);
    let all = Path::new("subjects");
    for (index, subject) in list(new, "subjects").iter().enumerate() {
        role_subject(kind, subject, &all.index(index), errors);
    }
}

/// Upstream: `ValidateRoleBindingSubject`.
fn role_subject(kind: &str, subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(subject, "name");
    if name.is_empty() {
        errors.required(&path.field("name"), "");
    }
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_all(&path.field("name"), name, &names::dns_subdomain(name));
            }
            if !group.is_empty() {
                errors.not_supported(&path.field("apiGroup"), group, &[""]);
            }
            if kind == "ClusterRoleBinding" && text(subject, "namespace").is_empty() {
                errors.required(&path.field("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != "rbac.authorization.k8s.io" {
                errors.not_supported(
                    &path.field("apiGroup"),
                    group,
                    &["rbac.authorization.k8s.io"],
                );
            }
        }
        other => {
            errors.not_supported(&path.field("kind"), other, &["ServiceAccount", "User", "Group"]);
        }
    }
}

/// Upstream: `ValidateLeaseSpec`.
fn lease(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if let Some(seconds) = int(new, "spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.field("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    errors.non_negative(&path.field("leaseTransitions"), int(new, "spec.leaseTransitions"));
    // An empty holder is valid: a leader that releases the lease leaves one.
}

/// Upstream: `ValidatePriorityClass`.
fn priority_class(new: &Value, errors: &mut Errors) {
    let name = text(new, "metadata.name");
    let value = int(new, "value").unwrap_or_default();
    if name.starts_with("system-") {
        let known = matches!(
            (name, value),
            ("system-cluster-critical", 2_000_000_000) | ("system-node-critical", 2_000_001_000)
        );
        if !known {
            let words = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
            );
            errors.forbidden(&Path::new("metadata").field("name"), &words);
        }
    } else if value > 1_000_000_000 {
        errors.forbidden(
            &Path::new("value"),
            "maximum allowed value of a user defined priority is 1000000000",
        );
    }
    let policy = text(new, "preemptionPolicy");
    if !policy.is_empty() {
        errors.one_of(&Path::new("preemptionPolicy"), policy, &["Never", "PreemptLowerPriority"]);
    }
}

/// Upstream: `ValidateStorageClass`.
fn storage_class(new: &Value, errors: &mut Errors) {
    let provisioner = text(new, "provisioner");
    if provisioner.is_empty() {
        errors.required(&Path::new("provisioner"), "");
    } else {
        errors.invalid_all(
            &Path::new("provisioner"),
            provisioner,
            &names::qualified_name(&provisioner.to_lowercase()),
        );
    }
    let policy = text(new, "reclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(&Path::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let mode = text(new, "volumeBindingMode");
    match mode {
        "" => errors.required(&Path::new("volumeBindingMode"), ""),
        _ => errors.one_of(
            &Path::new("volumeBindingMode"),
            mode,
            &["Immediate", "WaitForFirstConsumer"],
        ),
    }
}

/// Upstream: `ValidateCSINode`.
fn csi_node(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let all = path.field("drivers");
    let mut seen = BTreeSet::new();
    for (index, driver) in list(new, "spec.drivers").iter().enumerate() {
        let path = all.index(index);
        if text(driver, "nodeID").is_empty() {
            errors.required(&path.field("nodeID"), "");
        }
        let name = text(driver, "name");
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        }
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
    }
}

/// Upstream: `ValidateCertificateSigningRequestCreate`.
fn signing_request(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    certificatesigningrequest::validate_request(new, errors);
    let usages = list(new, "spec.usages");
    if usages.is_empty() {
        errors.required(&path.field("usages"), "");
    }
    let all = path.field("usages");
    let mut seen = BTreeSet::new();
    for (index, usage) in usages.iter().filter_map(Value::as_str).enumerate() {
        errors.one_of(&all.index(index), usage, USAGES);
        if !seen.insert(usage) {
            errors.duplicate(&all.index(index), usage);
        }
    }
    let signer = text(new, "spec.signerName");
    if signer == "kubernetes.io/legacy-unknown" {
        let words = "the legacy signerName is not allowed via this API version";
        errors.invalid(&path.field("signerName"), signer, words);
    } else if signer.is_empty() {
        errors.required(&path.field("signerName"), "");
    } else {
        let words =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        match signer.split_once('/') {
            Some((domain, rest)) if domain.contains('.') && !rest.is_empty() => {
                errors.invalid_all(
                    &path.field("signerName"),
                    domain,
                    &names::dns_subdomain(domain),
                );
            }
            _ => errors.invalid(&path.field("signerName"), signer, words),
        }
    }
    if let Some(seconds) = int(new, "spec.expirationSeconds").filter(|seconds| *seconds < 600) {
        let words = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.field("expirationSeconds"), seconds, words);
    }
}

/// Upstream: `ValidateAPIService`.
fn api_service(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (group, version) = (text(new, "spec.group"), text(new, "spec.version"));
    let expected = format!("{version}.{group}");
    let name = text(new, "metadata.name");
    if name != expected {
        let meta = Path::new("metadata");
        errors.invalid(
            &meta.field("name"),
            name,
            &format!("must be `spec.version+\".\"+spec.group`: {expected:?}"),
        );
    }
    if group.is_empty() && version != "v1" {
        errors.required(
            &path.field("group"),
            "only v1 may have an empty group and it better be legacy kube",
        );
    }
    let minimum = int(new, "spec.groupPriorityMinimum").unwrap_or_default();
    if minimum <= 0 || minimum > 20000 {
        errors.invalid(
            &path.field("groupPriorityMinimum"),
            minimum,
            "must be positive and less than 20000",
        );
    }
    let priority = int(new, "spec.versionPriority").unwrap_or_default();
    if priority <= 0 || priority > 1000 {
        errors.invalid(
            &path.field("versionPriority"),
            priority,
            "must be positive and less than 1000",
        );
    }
    let skips = flag(new, "spec.insecureSkipTLSVerify");
    if skips && !is_empty(new, "spec.caBundle") {
        errors.invalid(
            &path.field("insecureSkipTLSVerify"),
            true,
            "may not be true if caBundle is present",
        );
    }
    let Some(service) = at(new, "spec.service") else {
        if skips {
            let words = "may not be true for an apiservice without a service";
            errors.invalid(&path.field("insecureSkipTLSVerify"), true, words);
        }
        return;
    };
    let path = path.field("service");
    for field in ["namespace", "name"] {
        if text(service, field).is_empty() {
            errors.required(&path.field(field), "");
        }
    }
}

/// Upstream: `ValidateFlowSchema`, `ValidatePriorityLevelConfiguration`.
fn flow_control(kind: &str, new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if kind == "FlowSchema" {
        let level = path.field("priorityLevelConfiguration");
        if text(new, "spec.priorityLevelConfiguration.name").is_empty() {
            errors.required(&level.field("name"), "must reference a priority level");
        }
        errors.in_range(
            &path.field("matchingPrecedence"),
            int(new, "spec.matchingPrecedence"),
            1,
            10000,
        );
        return;
    }
    match text(new, "spec.type") {
        "Limited" => {
            if at(new, "spec.limited").is_none() {
                errors.required(&path.field("limited"), "");
            }
        }
        "Exempt" => {
            if at(new, "spec.limited").is_some() {
                errors.forbidden(&path.field("limited"), "must be nil if the type is not Limited");
            }
        }
        other => errors.not_supported(&path.field("type"), other, &["Exempt", "Limited"]),
    }
}
