//! Defaults of Services that depend on other fields. `evenkeel-apiserver` allocates addresses and node ports.

use evenkeel_apimachinery::value::{self, each, int, is_empty, text};
use serde_json::{Value, json};

/// Sets the defaults of a Service.
///
/// Upstream: `SetDefaults_Service`.
pub(crate) fn apply(service: &mut Value) {
    super::fill(
        service,
        &[
            ("spec.sessionAffinity", super::Fill::Text("None")),
            ("spec.type", super::Fill::Text("ClusterIP")),
            ("spec.ports.*.protocol", super::Fill::Text("TCP")),
        ],
    );
    session_affinity(service);
    each(service, "spec.ports.*", &mut target_port);
    let kind = text(service, "spec.type").to_owned();
    let has_external_ips =
        kind == "ClusterIP" && !value::list(service, "spec.externalIPs").is_empty();
    let is_external = matches!(kind.as_str(), "NodePort" | "LoadBalancer") || has_external_ips;
    if is_external && text(service, "spec.externalTrafficPolicy").is_empty() {
        value::set(service, "spec.externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" && value::get(service, "spec.internalTrafficPolicy").is_none() {
        value::set(service, "spec.internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        super::fill(service, &[("spec.allocateLoadBalancerNodePorts", super::Fill::Flag(true))]);
        each(service, "status.loadBalancer.ingress.*", &mut |ingress| {
            if !text(ingress, "ip").is_empty() && value::get(ingress, "ipMode").is_none() {
                value::set(ingress, "ipMode", "VIP");
            }
        });
    }
}

/// Sets the timeout of the session affinity to three hours, or drops the configuration of a disabled affinity.
fn session_affinity(service: &mut Value) {
    match text(service, "spec.sessionAffinity") {
        "None" => {
            value::remove(service, "spec.sessionAffinityConfig");
        }
        "ClientIP"
            if int(service, "spec.sessionAffinityConfig.clientIP.timeoutSeconds").is_none() =>
        {
            value::set(
                service,
                "spec.sessionAffinityConfig",
                json!({"clientIP": {"timeoutSeconds": 10800}}),
            );
        }
        _ => {}
    }
}

/// Sets an absent target port to the Service's port.
fn target_port(port: &mut Value) {
    let is_unset = is_empty(port, "targetPort") || int(port, "targetPort") == Some(0);
    if is_unset && port.is_object() {
        let number = int(port, "port").unwrap_or_default();
        value::set(port, "targetPort", number);
    }
}
