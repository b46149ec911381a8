//! Warnings about Services.

use super::annotation;
use super::network::{warn_about_cidr, warn_about_ip};
use evenkeel_apimachinery::value::{list, text};
use serde_json::Value;

/// Warns about deprecated and ignored fields of a Service.
///
/// Upstream: `GetWarningsForService`.
pub(super) fn service(service: &Value, warnings: &mut Vec<String>) {
    let hints = "service.kubernetes.io/topology-aware-hints";
    if annotation(service, hints).is_some() {
        warnings.push(format!(
            "annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let is_external_name = text(service, "spec.type") == "ExternalName";
    let cluster_ip = text(service, "spec.clusterIP");
    let is_headless = text(service, "spec.type") == "ClusterIP" && cluster_ip == "None";
    let external_ips = list(service, "spec.externalIPs");
    let load_balancer_ip = text(service, "spec.loadBalancerIP");
    if !is_external_name && !["", "None"].contains(&cluster_ip) {
        for (index, ip) in list(service, "spec.clusterIPs").iter().enumerate() {
            warn_about_ip(&format!("spec.clusterIPs[{index}]"), ip.as_str(), warnings);
        }
    }
    if is_headless {
        if !load_balancer_ip.is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if !external_ips.is_empty() {
            warnings.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if text(service, "spec.sessionAffinity") != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    for (index, ip) in external_ips.iter().enumerate() {
        warn_about_ip(&format!("spec.externalIPs[{index}]"), ip.as_str(), warnings);
    }
    if !external_ips.is_empty() && !is_headless && !is_external_name {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_owned(),
        );
    }
    warn_about_ip("spec.loadBalancerIP", Some(load_balancer_ip), warnings);
    for (index, range) in list(service, "spec.loadBalancerSourceRanges").iter().enumerate() {
        warn_about_cidr(&format!("spec.loadBalancerSourceRanges[{index}]"), range, warnings);
    }
    if is_external_name && !external_ips.is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external_name && !text(service, "spec.externalName").is_empty() {
        warnings
            .push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(service, "spec.trafficDistribution") == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_warn_about_deprecated_and_ignored_fields() {
        let table: [(Value, &[&str]); 7] = [
            (json!({"type": "ClusterIP", "sessionAffinity": "None"}), &[]),
            (json!({"type": "LoadBalancer", "loadBalancerIP": "10.0.0.1"}), &[]),
            (
                json!({"type": "LoadBalancer", "loadBalancerIP": "FD00::1"}),
                &[
                    "spec.loadBalancerIP: IPv6 address \"FD00::1\" should be in RFC 5952 canonical format (\"fd00::1\")",
                ],
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP", "externalIPs": ["1.2.3.4"]}),
                &[
                    "spec.externalIPs is ignored for headless services",
                    "spec.SessionAffinity is ignored for headless services",
                ],
            ),
            (
                json!({"type": "ClusterIP", "externalName": "a", "externalIPs": ["1.2.3.4"]}),
                &[
                    "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
                    "spec.externalName is ignored when spec.type is not \"ExternalName\"",
                ],
            ),
            (
                json!({"type": "ExternalName", "externalName": "a", "externalIPs": ["1.2.3.4"]}),
                &["spec.externalIPs is ignored when spec.type is \"ExternalName\""],
            ),
            (
                json!({"type": "ClusterIP", "trafficDistribution": "PreferClose"}),
                &[
                    "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
                ],
            ),
        ];
        for (spec, expected) in table {
            let mut found = Vec::new();
            service(&json!({"spec": spec}), &mut found);
            assert_eq!(found, expected, "{spec}");
        }
    }
}
