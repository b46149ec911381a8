//! IP families of Services, which depend on the request and on the cluster's networks.

pub use crate::validation::is_externally_accessible;
use crate::validation::service_cluster_ips;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, is_empty, list, set, text};
use serde_json::{Value, json};

/// IP family of the cluster's only Service network.
const FAMILY: &str = "IPv4";

/// Sets `clusterIPs` from `clusterIP` if a client sets only `clusterIP`.
///
/// Upstream: `normalizeClusterIPs`.
pub fn normalize_cluster_ips(service: &mut Value) {
    let first = text(service, "spec.clusterIP").to_owned();
    if !first.is_empty() && list(service, "spec.clusterIPs").is_empty() {
        set(service, "spec.clusterIPs", json!([first]));
    }
}

/// Sets the IP families and their policy. Returns errors if the cluster cannot provide the requested families.
///
/// Upstream: `initIPFamilyFields`.
pub fn init_ip_family_fields(service: &mut Value, old: Option<&Value>) -> Errors {
    let mut errors = Errors::default();
    if text(service, "spec.type") == "ExternalName" {
        return errors;
    }
    let is_selectorless_headless =
        text(service, "spec.clusterIP") == "None" && is_empty(service, "spec.selector");
    if get(service, "spec.ipFamilyPolicy").is_none() {
        let before = old.map(|old| text(old, "spec.ipFamilyPolicy")).filter(|old| !old.is_empty());
        let policy = match before {
            Some(before) => before,
            None if is_selectorless_headless => "RequireDualStack",
            None => "SingleStack",
        };
        set(service, "spec.ipFamilyPolicy", policy);
    }
    service_cluster_ips(service, &mut errors);
    if !errors.is_empty() {
        return errors;
    }
    let path = Path::new("spec");
    let (policy_path, families_path) = (path.field("ipFamilyPolicy"), path.field("ipFamilies"));
    let policy = text(service, "spec.ipFamilyPolicy").to_owned();
    let mut families: Vec<String> = list(service, "spec.ipFamilies")
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let ips = list(service, "spec.clusterIPs");
    if policy == "SingleStack" {
        for (count, what) in [(ips.len(), "cluster IPs"), (families.len(), "IP families")] {
            if count == 2 {
                let detail = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.invalid(&policy_path, policy.as_str(), &detail);
            }
        }
    }
    for (index, ip) in ips.iter().filter_map(Value::as_str).enumerate() {
        if ip == "None" {
            break;
        }
        if index < families.len() {
            continue;
        }
        let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
        if family == FAMILY {
            families.push(family.to_owned());
        } else {
            let detail = format!("{family} is not configured on this cluster");
            let path = path.field("clusterIPs");
            errors.invalid(&path.index(index), Value::from(ips), &detail);
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    if is_selectorless_headless {
        if families.is_empty() {
            families.push(FAMILY.to_owned());
        }
        if families.len() < 2 && policy != "SingleStack" {
            let other = if families.contains(&"IPv4".to_owned()) { "IPv6" } else { "IPv4" };
            families.push(other.to_owned());
        }
        set(service, "spec.ipFamilies", families);
        return errors;
    }
    if policy == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid(&policy_path, policy.as_str(), detail);
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| *family != FAMILY) {
        let path = families_path.index(index);
        errors.invalid(&path, family.as_str(), "not configured on this cluster");
    }
    if families.is_empty() {
        families.push(FAMILY.to_owned());
    }
    if errors.is_empty() {
        set(service, "spec.ipFamilies", families);
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_follow_from_the_request_or_are_rejected() {
        for (spec, expected) in [
            (json!({}), Ok(json!(["IPv4"]))),
            (json!({"clusterIPs": ["10.0.0.1"], "clusterIP": "10.0.0.1"}), Ok(json!(["IPv4"]))),
            (json!({"ipFamilyPolicy": "PreferDualStack"}), Ok(json!(["IPv4"]))),
            (json!({"clusterIPs": ["None"], "clusterIP": "None"}), Ok(json!(["IPv4", "IPv6"]))),
            (json!({"type": "ExternalName"}), Ok(json!(null))),
            (json!({"ipFamilyPolicy": "x"}), Err("spec.ipFamilyPolicy")),
            (json!({"ipFamilyPolicy": "RequireDualStack"}), Err("spec.ipFamilyPolicy")),
            (json!({"ipFamilies": ["IPv6"]}), Err("spec.ipFamilies[0]")),
            (json!({"ipFamilies": ["IPv4", "IPv6"]}), Err("spec.ipFamilyPolicy")),
            (json!({"clusterIPs": ["::1"], "clusterIP": "::1"}), Err("spec.clusterIPs[0]")),
        ] {
            let mut service = json!({ "spec": spec });
            let errors = init_ip_family_fields(&mut service, None).into_vec();
            let found = match errors.first() {
                None => Ok(service["spec"]["ipFamilies"].clone()),
                Some(error) => Err(error.field.as_str()),
            };
            assert_eq!(found, expected, "{service}");
        }
    }

    #[test]
    fn an_update_keeps_the_policy() {
        let old = json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}});
        let mut service = json!({"spec": {}});
        assert!(init_ip_family_fields(&mut service, Some(&old)).is_empty());
        assert_eq!(service["spec"]["ipFamilyPolicy"], "PreferDualStack");
    }
}
