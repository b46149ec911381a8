//! IP families of Services, which depend on the request and on the cluster's networks.

pub use crate::validation::is_externally_accessible;
use crate::validation::service_cluster_ips;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, is_empty, list, remove, set, text};
use serde_json::{Value, json};
use std::net::IpAddr;

/// IP family of an address, as in `ipFamilies` of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFamily {
    /// The family `IPv4`.
    V4,
    /// The family `IPv6`.
    V6,
}

impl IpFamily {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Parses an entry of `ipFamilies`.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| family.name() == name)
    }

    /// Returns the family's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

/// Returns the known families in `spec.ipFamilies`.
pub fn ip_families(service: &Value) -> Vec<IpFamily> {
    let names = list(service, "spec.ipFamilies").iter().filter_map(Value::as_str);
    names.filter_map(IpFamily::parse).collect()
}

/// Makes `clusterIPs` agree with `clusterIP` for clients that only support `clusterIP`.
///
/// Upstream: `normalizeClusterIPs`.
pub fn normalize_cluster_ips(service: &mut Value, old: Option<&Value>) {
    const CLUSTER_IPS: &str = "spec.clusterIPs";
    let first = text(service, "spec.clusterIP").to_owned();
    let ips = list(service, CLUSTER_IPS);
    let Some(old) = old else {
        if !first.is_empty() && ips.is_empty() {
            set(service, CLUSTER_IPS, json!([first]));
        }
        return;
    };
    let old_ips = list(old, CLUSTER_IPS);
    if first == text(old, "spec.clusterIP") {
        if ips.is_empty() && !old_ips.is_empty() {
            set(service, CLUSTER_IPS, old_ips);
        }
    } else if ips == old_ips {
        if first.is_empty() {
            remove(service, CLUSTER_IPS);
        } else {
            set(service, CLUSTER_IPS, json!([first]));
        }
    }
}

/// Sets the IP families and their policy. `configured` are the families of the cluster's Service networks, the default
/// family first. Returns errors if the cluster cannot provide the requested families.
///
/// Upstream: `initIPFamilyFields`.
pub fn init_ip_family_fields(
    service: &mut Value,
    old: Option<&Value>,
    configured: &[IpFamily],
) -> Errors {
    let mut errors = Errors::default();
    if text(service, "spec.type") == "ExternalName"
        || old.is_some_and(|old| is_matching_prefer_dual_stack(service, old))
    {
        return errors;
    }
    default_policy(service, old);
    service_cluster_ips(service, &mut errors);
    if !errors.is_empty() {
        return errors;
    }
    if let Some(old) = old {
        release_secondary(service, old, &mut errors);
    }
    reject_pairs_of_single_stack(service, &mut errors);
    infer_families(service, configured, &mut errors);
    if !errors.is_empty() {
        return errors;
    }
    let mut families = ip_families(service);
    let is_single_stack = text(service, POLICY) == SINGLE_STACK;
    if is_selectorless_headless(service) {
        // No addresses are allocated for such a Service, so it may have families that the cluster lacks.
        complete_families(&mut families, configured, !is_single_stack);
    } else {
        reject_missing_families(service, configured, &mut errors);
        if !errors.is_empty() {
            return errors;
        }
        complete_families(&mut families, configured, !is_single_stack && configured.len() == 2);
    }
    let names: Vec<&str> = families.into_iter().map(IpFamily::name).collect();
    set(service, "spec.ipFamilies", names);
    errors
}

const POLICY: &str = "spec.ipFamilyPolicy";
const SINGLE_STACK: &str = "SingleStack";
const PREFER_DUAL_STACK: &str = "PreferDualStack";
const REQUIRE_DUAL_STACK: &str = "RequireDualStack";

fn is_selectorless_headless(service: &Value) -> bool {
    text(service, "spec.clusterIP") == "None" && is_empty(service, "spec.selector")
}

/// Returns whether an update leaves the addresses of a `PreferDualStack` Service unchanged. Such an update keeps the
/// Service's families, even if the families of the cluster have changed since.
///
/// Upstream: `isMatchingPreferDualStackClusterIPFields`.
pub fn is_matching_prefer_dual_stack(service: &Value, old: &Value) -> bool {
    let kind = text(service, "spec.type");
    let old_policy = text(old, POLICY);
    kind == text(old, "spec.type")
        && matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer")
        && text(service, POLICY) == PREFER_DUAL_STACK
        && matches!(old_policy, "" | PREFER_DUAL_STACK)
        && list(service, "spec.clusterIPs") == list(old, "spec.clusterIPs")
        && list(service, "spec.ipFamilies") == list(old, "spec.ipFamilies")
}

/// Sets the policy if a client omits it: to the old policy, or else to the default for this Service.
fn default_policy(service: &mut Value, old: Option<&Value>) {
    if get(service, POLICY).is_some() {
        return;
    }
    let old_policy = old.map(|old| text(old, POLICY)).filter(|policy| !policy.is_empty());
    let policy = match old_policy {
        Some(old_policy) => old_policy,
        None if is_selectorless_headless(service) => REQUIRE_DUAL_STACK,
        None => SINGLE_STACK,
    };
    set(service, POLICY, policy);
}

/// Removes the second address and family of a Service that becomes `SingleStack`. With another policy, rejects an
/// update that removes them.
fn release_secondary(service: &mut Value, old: &Value, errors: &mut Errors) {
    let fields = [("spec.clusterIPs", "cluster IP"), ("spec.ipFamilies", "IP family")];
    for (field, noun) in fields {
        let (after, before) = (list(service, field), list(old, field));
        if text(service, POLICY) == SINGLE_STACK {
            if after == before && after.len() > 1 {
                let first = Value::from(&after[..1]);
                set(service, field, first);
            }
        } else if !after.is_empty() && after.len() < before.len() {
            let detail = format!("must be 'SingleStack' to release the secondary {noun}");
            errors.invalid(
                &Path::new("spec").field("ipFamilyPolicy"),
                text(service, POLICY),
                &detail,
            );
        }
    }
}

/// Rejects two addresses or families of a `SingleStack` Service.
fn reject_pairs_of_single_stack(service: &Value, errors: &mut Errors) {
    if text(service, POLICY) != SINGLE_STACK {
        return;
    }
    let fields = [("spec.clusterIPs", "cluster IPs"), ("spec.ipFamilies", "IP families")];
    for (_, noun) in fields.iter().filter(|(field, _)| list(service, field).len() == 2) {
        let detail = format!(
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple {noun} are specified"
        );
        errors.invalid(&Path::new("spec").field("ipFamilyPolicy"), SINGLE_STACK, &detail);
    }
}

/// Adds the family of each cluster IP without an entry in `ipFamilies`.
fn infer_families(service: &mut Value, configured: &[IpFamily], errors: &mut Errors) {
    let ips = list(service, "spec.clusterIPs").to_vec();
    let mut names = list(service, "spec.ipFamilies").to_vec();
    let path = Path::new("spec");
    for (index, ip) in ips.iter().enumerate().skip(names.len()) {
        let address = ip.as_str().and_then(|ip| ip.parse().ok());
        let Some(family) = address.map(IpFamily::of) else { break };
        if configured.contains(&family) {
            names.push(family.name().into());
        } else {
            let detail = format!("{} is not configured on this cluster", family.name());
            errors.invalid(&path.field("clusterIPs").index(index), ips.clone(), &detail);
        }
    }
    if !names.is_empty() {
        set(service, "spec.ipFamilies", names);
    }
}

/// Rejects families and a policy that the cluster cannot provide.
fn reject_missing_families(service: &Value, configured: &[IpFamily], errors: &mut Errors) {
    let path = Path::new("spec");
    if text(service, POLICY) == REQUIRE_DUAL_STACK && configured.len() < 2 {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid(&path.field("ipFamilyPolicy"), REQUIRE_DUAL_STACK, detail);
    }
    for (index, family) in ip_families(service).into_iter().enumerate() {
        if !configured.contains(&family) {
            let path = path.field("ipFamilies");
            errors.invalid(&path.index(index), family.name(), "not configured on this cluster");
        }
    }
}

/// Adds the default family if `families` is empty. Also adds the other family if the Service gets both.
fn complete_families(families: &mut Vec<IpFamily>, configured: &[IpFamily], gets_both: bool) {
    if families.is_empty() {
        families.extend(configured.first());
    }
    if let [only] = families[..]
        && gets_both
    {
        families.push(only.other());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_follow_from_the_request_or_are_rejected() {
        let both = [IpFamily::V4, IpFamily::V6];
        let (ipv4, ipv6) = (&both[..1], &both[1..]);
        let reversed = [IpFamily::V6, IpFamily::V4];
        for (configured, spec, expected) in [
            (ipv4, json!({}), Ok(json!(["IPv4"]))),
            (ipv6, json!({}), Ok(json!(["IPv6"]))),
            (&both, json!({}), Ok(json!(["IPv4"]))),
            (&reversed, json!({"ipFamilyPolicy": "PreferDualStack"}), Ok(json!(["IPv6", "IPv4"]))),
            (&both, json!({"ipFamilyPolicy": "RequireDualStack"}), Ok(json!(["IPv4", "IPv6"]))),
            (
                &both,
                json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6"]}),
                Ok(json!(["IPv6", "IPv4"])),
            ),
            (&both, json!({"ipFamilies": ["IPv6"]}), Ok(json!(["IPv6"]))),
            (&both, json!({"ipFamilies": ["IPv4", "IPv6"]}), Err("spec.ipFamilyPolicy")),
            (&both, json!({"clusterIPs": ["::1"], "clusterIP": "::1"}), Ok(json!(["IPv6"]))),
            (ipv6, json!({"ipFamilies": ["IPv4"]}), Err("spec.ipFamilies[0]")),
            (
                ipv4,
                json!({"clusterIPs": ["10.0.0.1"], "clusterIP": "10.0.0.1"}),
                Ok(json!(["IPv4"])),
            ),
            (ipv4, json!({"ipFamilyPolicy": "PreferDualStack"}), Ok(json!(["IPv4"]))),
            (
                ipv4,
                json!({"clusterIPs": ["None"], "clusterIP": "None"}),
                Ok(json!(["IPv4", "IPv6"])),
            ),
            (ipv4, json!({"type": "ExternalName"}), Ok(json!(null))),
            (ipv4, json!({"ipFamilyPolicy": "x"}), Err("spec.ipFamilyPolicy")),
            (ipv4, json!({"ipFamilyPolicy": "RequireDualStack"}), Err("spec.ipFamilyPolicy")),
            (ipv4, json!({"ipFamilies": ["IPv6"]}), Err("spec.ipFamilies[0]")),
            (ipv4, json!({"ipFamilies": ["IPv4", "IPv6"]}), Err("spec.ipFamilyPolicy")),
            (ipv4, json!({"clusterIPs": ["::1"], "clusterIP": "::1"}), Err("spec.clusterIPs[0]")),
        ] {
            let mut service = json!({ "spec": spec });
            let errors = init_ip_family_fields(&mut service, None, configured).into_vec();
            let found = match errors.first() {
                None => Ok(service["spec"]["ipFamilies"].clone()),
                Some(error) => Err(error.field.as_str()),
            };
            assert_eq!(found, expected, "{service}");
        }
    }

    #[test]
    fn cluster_ips_follow_a_cluster_ip_that_alone_has_changed() {
        let pair = json!(["10.0.0.1", "fd00::1"]);
        let old = json!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": pair}});
        for (cluster_ip, cluster_ips, old, expected) in [
            ("10.0.0.1", json!([]), None, json!(["10.0.0.1"])),
            ("", json!(["10.0.0.1"]), None, json!(["10.0.0.1"])),
            ("10.0.0.1", json!([]), Some(&old), pair.clone()),
            ("10.0.0.2", pair.clone(), Some(&old), json!(["10.0.0.2"])),
            ("", pair.clone(), Some(&old), Value::Null),
            ("10.0.0.2", json!(["10.0.0.3"]), Some(&old), json!(["10.0.0.3"])),
        ] {
            let mut service = json!({"spec": {"clusterIP": cluster_ip, "clusterIPs": cluster_ips}});
            normalize_cluster_ips(&mut service, old);
            assert_eq!(service["spec"]["clusterIPs"], expected, "{cluster_ip} {cluster_ips}");
        }
    }

    #[test]
    fn an_update_keeps_the_policy_and_gains_or_releases_the_second_family() {
        let pair = json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack", "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"]});
        let one = json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack", "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"]});
        let both = [IpFamily::V4, IpFamily::V6];
        let changed = |old: &Value, field: &str, value: Value| {
            let mut spec = old.clone();
            set(&mut spec, field, value);
            spec
        };
        for (configured, old, new, families) in [
            // A second family of the cluster does not change a Service that does not request it. If the cluster loses
            // the family, a Service that has it does not change either.
            (&both[..], &one, one.clone(), Ok(json!(["IPv4"]))),
            (&both[..1], &pair, pair.clone(), Ok(json!(["IPv4", "IPv6"]))),
            (
                &both,
                &one,
                changed(&one, "ipFamilyPolicy", json!("RequireDualStack")),
                Ok(json!(["IPv4", "IPv6"])),
            ),
            (
                &both,
                &pair,
                changed(&pair, "ipFamilyPolicy", json!("SingleStack")),
                Ok(json!(["IPv4"])),
            ),
            (
                &both,
                &pair,
                changed(&pair, "ipFamilies", json!(["IPv4"])),
                Err("must be 'SingleStack' to release the secondary IP family"),
            ),
            (
                &both,
                &pair,
                changed(&pair, "clusterIPs", json!(["10.0.0.1"])),
                Err("must be 'SingleStack' to release the secondary cluster IP"),
            ),
            (
                &both,
                &one,
                json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}),
                Ok(json!(["IPv4", "IPv6"])),
            ),
        ] {
            let old = json!({ "spec": old });
            let mut service = json!({ "spec": new });
            let errors = init_ip_family_fields(&mut service, Some(&old), configured).into_vec();
            let found = match errors.first() {
                None => Ok(service["spec"]["ipFamilies"].clone()),
                Some(error) => Err(error.detail.as_str()),
            };
            assert_eq!(found, families, "{service}");
            if found == Ok(json!(["IPv4"])) {
                assert_eq!(service["spec"]["clusterIPs"], json!(["10.0.0.1"]));
            }
        }
    }
}
