//! Validation of networking.k8s.io.

use super::{declared_immutable, labels, names, service, servicecidr};
use crate::internal::quoted;
use evenkeel_api::cidr::Cidr;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, object, text};
use serde_json::Value;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "Ingress" => ingress(new, true, errors),
        "IngressClass" => ingress_class(new, errors),
        "NetworkPolicy" => network_policy(new, errors),
        "ServiceCIDR" => servicecidr::service_cidr(new, errors),
        "IPAddress" => servicecidr::ip_address(new, errors),
        _ => {}
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    match kind {
        "Ingress" => ingress(new, false, errors),
        "ServiceCIDR" => servicecidr::service_cidr_update(new, old, errors),
        "IngressClass" => {
            let controller =
                |ingress_class| Some(Value::from(text(ingress_class, "spec.controller")));
            let path = Path::new("spec.controller");
            errors.immutable(&path, controller(new).as_ref(), controller(old).as_ref());
            create(kind, new, errors);
        }
        _ => create(kind, new, errors),
    }
    if kind == "IPAddress" {
        declared_immutable("spec.parentRef", new, old, errors);
    }
}

pub(super) fn update_status(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "Ingress" {
        service::load_balancer(new, errors);
    }
}

/// Validates an Ingress: a default backend or rules, TLS, and the class. A new Ingress must not name two different
/// classes.
///
/// Upstream: `ValidateIngressSpec`.
fn ingress(new: &Value, is_create: bool, errors: &mut Errors) {
    let path = Path::new("spec");
    let class = get(new, "spec.ingressClassName").and_then(Value::as_str);
    let annotation = object(new, "metadata.annotations")
        .and_then(|annotations| annotations.get("kubernetes.io/ingress.class"))
        .and_then(Value::as_str);
    if is_create
        && let (Some(class), Some(annotation)) = (class, annotation)
        && class != annotation
    {
        let annotations = Path::new("annotations");
        let path = annotations.field("kubernetes.io/ingress.class");
        errors.invalid(&path, annotation, "must match `ingressClassName` when both are specified");
    }
    let rules = list(new, "spec.rules");
    if rules.is_empty() && get(new, "spec.defaultBackend").is_none() {
        errors.invalid(
            &path,
            quoted("[]networking.IngressRule", get(new, "spec.rules")),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if let Some(backend) = get(new, "spec.defaultBackend") {
        ingress_backend(backend, &path.field("defaultBackend"), errors);
    }
    let rules_path = path.field("rules");
    for (index, rule) in rules.iter().enumerate() {
        ingress_rule(rule, &rules_path.index(index), errors);
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
            errors.invalid_for_each(
                &path.field("secretName"),
                secret,
                &names::dns_subdomain(secret),
            );
        }
    }
    if let Some(class) = class {
        errors.invalid_for_each(
            &path.field("ingressClassName"),
            class,
            &names::dns_subdomain(class),
        );
    }
}

fn ingress_host(host: &str, path: &Path<'_>, errors: &mut Errors) {
    if host.contains('*') {
        errors.invalid_for_each(path, host, &names::wildcard_subdomain(host));
    } else {
        errors.invalid_for_each(path, host, &names::dns_subdomain(host));
    }
}

/// Validates the host of a rule, and the path, path type and backend of each of its HTTP paths.
///
/// Upstream: `validateIngressRules`, `validateHTTPIngressRuleValue`.
fn ingress_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let host = text(rule, "host");
    if !host.is_empty() {
        if names::ip(host).is_empty() {
            errors.invalid(&path.field("host"), host, "must be a DNS name, not an IP address");
        }
        ingress_host(host, &path.field("host"), errors);
    }
    let Some(http) = get(rule, "http") else { return };
    let http_path = path.field("http");
    let paths = http_path.field("paths");
    if list(http, "paths").is_empty() {
        errors.required(&paths, "");
    }
    for (index, entry) in list(http, "paths").iter().enumerate() {
        let path = paths.index(index);
        let target = text(entry, "path");
        match get(entry, "pathType").and_then(Value::as_str) {
            // As in upstream, skip the other rules for this path.
            None => {
                errors.required(&path.field("pathType"), "pathType must be specified");
                continue;
            }
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
        let backend = get(entry, "backend").unwrap_or(&Value::Null);
        ingress_backend(backend, &path.field("backend"), errors);
    }
}

/// Requires either a resource or a Service with a port name or number.
///
/// Upstream: `validateIngressBackend`.
fn ingress_backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (get(backend, "service"), get(backend, "resource")) {
        (Some(_), Some(_)) => {
            errors.invalid(path, "", "cannot set both resource and service backends");
        }
        (None, None) => errors.invalid(path, "", "resource or service backend is required"),
        (None, Some(resource)) => {
            typed_reference(resource, &path.field("resource"), errors);
        }
        (Some(service), None) => {
            let backend_path = path;
            let path = path.field("service");
            errors.required_valid(&path.field("name"), text(service, "name"), names::dns_label);
            let port_path = path.field("port");
            let (name, number) =
                (text(service, "port.name"), int(service, "port.number").unwrap_or_default());
            match (name.is_empty(), number == 0) {
                (true, true) => errors.required(backend_path, "port name or number is required"),
                (false, false) => {
                    errors.invalid(backend_path, "", "cannot set both port name & port number");
                }
                (false, true) => {
                    errors.invalid_for_each(
                        &port_path.field("name"),
                        name,
                        &names::port_name(name),
                    );
                }
                (true, false) => {
                    errors.in_range(&port_path.field("number"), Some(number), 1, 65535);
                }
            }
        }
    }
}

/// Validates the controller's name and the reference to parameters of an IngressClass.
///
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
                errors.invalid_for_each(
                    &path.field("controller"),
                    host,
                    &names::dns_subdomain(host),
                );
            }
            _ => {
                let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
                errors.invalid(&path.field("controller"), controller, detail);
            }
        }
    } else {
        errors.required(&path.field("controller"), "");
    }
    let Some(parameters) = get(new, "spec.parameters") else { return };
    let path = path.field("parameters");
    typed_reference(parameters, &path, errors);
    let namespace = get(parameters, "namespace").and_then(Value::as_str);
    let namespace_path = path.field("namespace");
    match (get(parameters, "scope").and_then(Value::as_str), namespace) {
        (None, _) => errors.required(&path.field("scope"), ""),
        (Some("Namespace"), None) => {
            errors.required(&namespace_path, "`parameters.scope` is set to 'Namespace'");
        }
        (Some("Namespace"), Some(name)) => {
            errors.invalid_for_each(&namespace_path, name, &names::dns_label(name));
        }
        (Some("Cluster"), Some(_)) => {
            errors.forbidden(&namespace_path, "`parameters.scope` is set to 'Cluster'");
        }
        (Some("Cluster"), None) => {}
        (Some(other), _) => {
            errors.not_supported(&path.field("scope"), other, &["Cluster", "Namespace"]);
        }
    }
}

/// Validates API group, kind and name of a reference to an object in the same namespace.
///
/// Upstream: `validateIngressTypedLocalObjectReference`.
fn typed_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = get(reference, "apiGroup").and_then(Value::as_str) {
        errors.invalid_for_each(&path.field("apiGroup"), group, &names::dns_subdomain(group));
    }
    for field in ["kind", "name"] {
        let value = text(reference, field);
        errors.required_valid(&path.field(field), value, names::path_segment);
    }
}

/// Validates selectors, ports and peers of a NetworkPolicy's rules, and its policy types.
///
/// Upstream: `ValidateNetworkPolicySpec`.
fn network_policy(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if let Some(selector) = get(new, "spec.podSelector") {
        labels::selector(selector, &path.field("podSelector"), errors);
    }
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let list_path = path.field(direction);
        for (index, rule) in list(new, &format!("spec.{direction}")).iter().enumerate() {
            let path = list_path.index(index);
            let ports = path.field("ports");
            for (index, port) in list(rule, "ports").iter().enumerate() {
                network_policy_port(port, &ports.index(index), errors);
            }
            let list_path = path.field(peers);
            for (index, peer) in list(rule, peers).iter().enumerate() {
                network_policy_peer(peer, &list_path.index(index), errors);
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
    let policy_types_path = path.field("policyTypes");
    for (index, kind) in types.iter().filter_map(Value::as_str).enumerate() {
        errors.one_of(&policy_types_path.index(index), kind, &["Ingress", "Egress"]);
    }
}

/// Validates protocol, port and `endPort`. Only a numeric port may have an end, which must not be smaller.
///
/// Upstream: `ValidateNetworkPolicyPort`.
fn network_policy_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    let protocols = ["TCP", "UDP", "SCTP"];
    errors.one_of_if_set(&path.field("protocol"), get(port, "protocol"), &protocols);
    match get(port, "port") {
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
            errors.invalid_for_each(&path.field("port"), name, &names::port_name(name));
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

/// Requires exactly one kind of peer: pod and namespace selectors, or an IP block.
///
/// Upstream: `ValidateNetworkPolicyPeer`.
fn network_policy_peer(peer: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut peer_count = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = get(peer, field) {
            peer_count += 1;
            labels::selector(selector, &path.field(field), errors);
        }
    }
    if let Some(block) = get(peer, "ipBlock") {
        let block_path = path.field("ipBlock");
        let cidr = text(block, "cidr");
        if cidr.is_empty() {
            errors.required(&block_path.field("cidr"), "");
        } else {
            errors.invalid_for_each(&block_path.field("cidr"), cidr, &names::cidr(cidr));
        }
        let excepts = block_path.field("except");
        // If the CIDR is invalid, upstream does not validate the exceptions.
        if let Some(cidr) = Cidr::parse(cidr) {
            let listed = list(block, "except").iter().filter_map(Value::as_str);
            for (index, except) in listed.enumerate() {
                errors.invalid_for_each(&excepts.index(index), except, &names::cidr(except));
                if let Some(inner) = Cidr::parse(except)
                    && (!cidr.covers(&inner) || cidr.length() >= inner.length())
                {
                    let detail = "must be a strict subset of `cidr`";
                    errors.invalid(&excepts.index(index), except, detail);
                }
            }
        }
        if peer_count > 0 {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
        peer_count += 1;
    }
    if peer_count == 0 {
        errors.required(path, "must specify a peer");
    }
}
