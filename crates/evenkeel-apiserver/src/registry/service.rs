//! Allocation of the cluster IPs and node ports of Services. The store indexes the values that stored Services use. It
//! refuses to commit a Service if another one got the same address or port in the meantime.

use super::cluster_ips::{self, Range};
use super::node_ports::{
    NODE_PORTS, NodePortError, NodePorts, allocates_node_ports, needs_health_check, node_port,
    requested_node_ports,
};
use super::port_range::{self, PortRange};
use crate::api::{Api, Context};
use crate::resource::{GroupKind, ResourcePrefix};
use crate::store::Transaction;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::value::{self, get, int, list, set, text};
use evenkeel_kinds::service::{
    IpFamily, init_ip_family_fields, ip_families, is_externally_accessible,
    is_matching_prefer_dual_stack, normalize_cluster_ips,
};
use http::StatusCode;
use rand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Resource prefix of Services.
pub(super) const RESOURCE_PREFIX: &str = "/services";

/// Returns the index value of an address.
fn address_value(address: IpAddr) -> String {
    format!("clusterIP/{address}")
}

/// Returns the index value of a node port. One Service may use the same node port for two protocols.
fn port_value(port: u16) -> String {
    format!("nodePort/{port}")
}

/// Returns the index values of a Service: its cluster IPs and node ports.
pub(super) fn index(service: &Value) -> Vec<String> {
    let AllocatedValues { cluster_ips, node_ports } = allocated_values(service);
    let addresses = cluster_ips.into_iter().map(address_value);
    addresses.chain(node_ports.into_iter().map(port_value)).collect()
}

/// Values of a Service that no other Service may have.
#[derive(Default)]
struct AllocatedValues {
    /// Cluster IPs; none for a headless Service.
    cluster_ips: Vec<IpAddr>,
    /// Distinct node ports of `spec.ports`, and the port of the health check.
    node_ports: Vec<u16>,
}

fn allocated_values(service: &Value) -> AllocatedValues {
    let cluster_ips = list(service, "spec.clusterIPs")
        .iter()
        .filter_map(|ip| ip.as_str()?.parse().ok())
        .collect();
    let port = |value: Option<i64>| {
        value.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
    };
    let mut node_ports: Vec<u16> = list(service, "spec.ports")
        .iter()
        .filter_map(|entry| port(int(entry, "nodePort")))
        .collect();
    // Entries with different protocols may share a node port.
    node_ports.sort_unstable();
    node_ports.dedup();
    node_ports.extend(port(int(service, "spec.healthCheckNodePort")));
    AllocatedValues { cluster_ips, node_ports }
}

/// Allocates addresses and ports for a new Service.
pub(super) fn create(cx: &Context<'_>, service: &mut Value) -> Result<(), StatusError> {
    normalize_cluster_ips(service, None);
    allocate(cx, service, None)
}

/// Copies the old Service's allocated values to an update, and allocates the values that the new one lacks.
pub(super) fn update(cx: &Context<'_>, new: &mut Value, old: &Value) -> Result<(), StatusError> {
    carry_over(new, old);
    allocate(cx, new, Some(old))
}

fn allocate(cx: &Context<'_>, service: &mut Value, old: Option<&Value>) -> Result<(), StatusError> {
    let kind = GroupKind { group: "".into(), kind: "Service".into() };
    let families = &cx.api.service_families;
    let refused = init_ip_family_fields(service, old, families).into_vec();
    if !refused.is_empty() {
        return Err(StatusError::invalid(&kind, cx.name, &refused));
    }
    let mut errors = Vec::new();
    match allocate_cluster_ips(cx, service, old) {
        Ok(()) => {}
        Err(AllocationError::Invalid(error)) => errors.push(*error),
        Err(AllocationError::Full) => {
            let why = format!(
                "failed to allocate a serviceIP for Service {:?}: range is full",
                text(service, "metadata.name"),
            );
            return Err(StatusError::internal(why));
        }
    }
    let port_range = PortRange::read(cx.api);
    let is_node_port_taken =
        |port| port_range.contains(port) || is_taken(cx.api, &port_value(port));
    let start = cx.api.random(|rng| rng.random_range(NODE_PORTS));
    let mut ports = NodePorts::new(&is_node_port_taken, start, cx.dry_run);
    let result = match old {
        None => ports.create(service),
        Some(old) => ports.update(service, old),
    };
    match result {
        Ok(()) => {}
        Err(NodePortError::Invalid(error)) => errors.push(*error),
        Err(NodePortError::Internal(why)) => return Err(StatusError::internal(why)),
        Err(NodePortError::Unknown(why)) => {
            return Err(StatusError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why));
        }
    }
    drop_unused_policy(service);
    if errors.is_empty() { Ok(()) } else { Err(StatusError::invalid(&kind, cx.name, &errors)) }
}

/// Removes a valid internal traffic policy of an ExternalName Service, which does not use it. An invalid policy is
/// kept, so that validation refuses it.
///
/// Upstream: `defaultOnReadInternalTrafficPolicy`.
fn drop_unused_policy(service: &mut Value) {
    if text(service, "spec.type") == "ExternalName"
        && ["Cluster", "Local"].contains(&text(service, "spec.internalTrafficPolicy"))
    {
        value::remove(service, "spec.internalTrafficPolicy");
    }
}

/// Adds to a transaction the IPAddresses of new cluster IPs, and the condition that no other Service has the same
/// address or port.
pub(super) fn begin_write(
    api: &Api,
    service: &Value,
    old: Option<&Value>,
    transaction: &mut Transaction,
) {
    let previous = old.map(allocated_values).unwrap_or_default();
    let AllocatedValues { mut cluster_ips, mut node_ports } = allocated_values(service);
    cluster_ips.retain(|address| !previous.cluster_ips.contains(address));
    node_ports.retain(|port| !previous.node_ports.contains(port));
    let resource_prefix = ResourcePrefix::from(RESOURCE_PREFIX);
    for address in cluster_ips {
        transaction.unique(&resource_prefix, address_value(address));
        cluster_ips::create(api, address, service, transaction);
    }
    for port in &node_ports {
        transaction.unique(&resource_prefix, port_value(*port));
    }
    // An update changes the bitmap of ports once, in `finish_write`.
    if old.is_none() {
        port_range::change(api, &node_ports, &[], transaction);
    }
}

/// Adds the deletion of the IPAddresses of cluster IPs that only `old` has. `service` is `None` for a deletion.
pub(super) fn finish_write(
    api: &Api,
    service: Option<&Value>,
    old: &Value,
    transaction: &mut Transaction,
) {
    let current = service.map(allocated_values).unwrap_or_default();
    let previous = allocated_values(old);
    let without = |ports: &[u16], others: &[u16]| -> Vec<u16> {
        ports.iter().copied().filter(|port| !others.contains(port)).collect()
    };
    let allocated = without(&current.node_ports, &previous.node_ports);
    let released = without(&previous.node_ports, &current.node_ports);
    port_range::change(api, &allocated, &released, transaction);
    for address in previous.cluster_ips {
        if !current.cluster_ips.contains(&address) {
            cluster_ips::delete(api, address, old, transaction);
        }
    }
}

fn is_taken(api: &Api, value: &str) -> bool {
    api.store.is_taken(RESOURCE_PREFIX, value)
}

/// Copies allocated values to an update that omits them, and removes values that the new type does not have, unless the
/// client changed them.
fn carry_over(new: &mut Value, old: &Value) {
    patch_allocated_values(new, old);
    normalize_cluster_ips(new, Some(old));
    drop_type_dependent_fields(new, old);
}

/// Copies allocated cluster IPs and ports from the old Service to fields that the new one leaves empty.
///
/// Upstream: `patchAllocatedValues`.
fn patch_allocated_values(new: &mut Value, old: &Value) {
    if text(new, "spec.type") != "ExternalName" && text(old, "spec.type") != "ExternalName" {
        for field in ["spec.clusterIP", "spec.clusterIPs"] {
            if value::is_empty(new, field) {
                value::copy(new, old, field);
            }
        }
    }
    if allocates_node_ports(new) && allocates_node_ports(old) {
        patch_node_ports(new, old);
    }
    if needs_health_check(new)
        && needs_health_check(old)
        && int(new, "spec.healthCheckNodePort").unwrap_or_default() == 0
    {
        value::copy(new, old, "spec.healthCheckNodePort");
    }
}

/// Sets the node port of each port without one to the node port of the old port with the same name, unless another port
/// requests that node port.
fn patch_node_ports(new: &mut Value, old: &Value) {
    let requested = requested_node_ports(new);
    let old_by_name: BTreeMap<&str, i64> = list(old, "spec.ports")
        .iter()
        .filter_map(|port| Some((text(port, "name"), node_port(port)?)))
        .collect();
    value::each(new, "spec.ports.*", &mut |port| {
        if node_port(port).is_some() {
            return;
        }
        if let Some(old_node_port) = old_by_name.get(text(port, "name"))
            && !requested.contains(old_node_port)
        {
            set(port, "nodePort", *old_node_port);
        }
    });
}

/// Drops fields that the new type does not have, unless the client changed them.
///
/// Upstream: `dropTypeDependentFields`.
fn drop_type_dependent_fields(new: &mut Value, old: &Value) {
    let (new_type, old_type) = (text(new, "spec.type").to_owned(), text(old, "spec.type"));
    let remove_unless_changed = |new: &mut Value, fields: &[&str]| {
        if fields.iter().all(|field| get(new, field) == get(old, field)) {
            for field in fields {
                value::remove(new, field);
            }
        }
    };
    if new_type == "ExternalName" && old_type != "ExternalName" {
        remove_unless_changed(new, &["spec.clusterIP", "spec.clusterIPs"]);
        remove_unless_changed(new, &["spec.ipFamilies"]);
        remove_unless_changed(new, &["spec.ipFamilyPolicy"]);
    }
    // A LoadBalancer keeps its node ports when it stops allocating them.
    let has_node_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    if has_node_ports(old_type)
        && !has_node_ports(&new_type)
        && requested_node_ports(new).is_subset(&requested_node_ports(old))
    {
        value::each(new, "spec.ports.*", &mut |port| {
            value::remove(port, "nodePort");
        });
    }
    if needs_health_check(old) && !needs_health_check(new) {
        remove_unless_changed(new, &["spec.healthCheckNodePort"]);
    }
    if get(old, "spec").is_some_and(is_externally_accessible)
        && !get(new, "spec").is_some_and(is_externally_accessible)
    {
        remove_unless_changed(new, &["spec.externalTrafficPolicy"]);
    }
    if new_type != "LoadBalancer" {
        remove_unless_changed(new, &["spec.allocateLoadBalancerNodePorts"]);
        remove_unless_changed(new, &["spec.loadBalancerClass"]);
        // Only a LoadBalancer reports load balancer addresses, even if their release takes a while.
        set(new, "status.loadBalancer", json!({}));
    }
}

/// Reason why a Service gets no cluster IP.
enum AllocationError {
    /// A requested address cannot be allocated.
    Invalid(Box<FieldError>),
    /// All ranges of the family are full.
    Full,
}

/// Allocates the cluster IPs that a Service lacks, and checks the ones that it requests.
///
/// Upstream: `allocClusterIPs`, `updateClusterIPs`.
fn allocate_cluster_ips(
    cx: &Context<'_>,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<(), AllocationError> {
    if text(service, "spec.type") == "ExternalName" || is_headless(service) {
        return Ok(());
    }
    let old = old.filter(|old| text(old, "spec.type") != "ExternalName");
    let families = ip_families(service);
    let first_to_allocate = match old {
        None => 0,
        // An update keeps the first address, because validation refuses its change. It allocates a second address only
        // when it adds a second family.
        Some(old) if is_matching_prefer_dual_stack(service, old) || is_headless(old) => {
            return Ok(());
        }
        Some(old) if ip_families(old).len() == 1 && families.len() == 2 => 1,
        Some(_) => return Ok(()),
    };
    let mut requested = list(service, "spec.clusterIPs").to_vec();
    // As in upstream, errors quote the list with an empty string for each missing address.
    requested.resize(requested.len().max(families.len()), "".into());
    let ranges = cluster_ips::ranges(cx.api);
    let mut ips = requested.clone();
    for (family, ip) in families.into_iter().zip(&mut ips).skip(first_to_allocate) {
        let wanted = ip.as_str().unwrap_or_default();
        *ip = allocate_cluster_ip(cx, &ranges, family, wanted, &requested)?.into();
    }
    if first_to_allocate == 0
        && let Some(first) = ips.first()
    {
        set(service, "spec.clusterIP", first.clone());
    }
    set(service, "spec.clusterIPs", ips);
    Ok(())
}

/// Returns the requested address if it can be allocated, or a free one if none is requested. An error quotes
/// `all_requested` addresses.
///
/// Upstream: `allocIPs`.
fn allocate_cluster_ip(
    cx: &Context<'_>,
    ranges: &[Range],
    family: IpFamily,
    requested: &str,
    all_requested: &[Value],
) -> Result<String, AllocationError> {
    let api = cx.api;
    let has_service = |ip| is_taken(api, &address_value(ip));
    if requested.is_empty() {
        let free = cluster_ips::find_free(api, ranges, family, |ip| !has_service(ip));
        return free.map(|ip| ip.to_string()).ok_or(AllocationError::Full);
    }
    // An invalid address is kept, so that validation refuses it.
    let Ok(address) = requested.parse() else { return Ok(requested.to_owned()) };
    match cluster_ips::refusal(api, ranges, address, cx.dry_run, has_service) {
        None => Ok(requested.to_owned()),
        Some(why) => {
            let why = format!("failed to allocate IP {requested}: {why}");
            Err(AllocationError::Invalid(Box::new(FieldError::invalid(
                "spec.clusterIPs",
                Value::from(all_requested),
                why,
            ))))
        }
    }
}

fn is_headless(service: &Value) -> bool {
    list(service, "spec.clusterIPs").first().is_some_and(|ip| ip == "None")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `spec.ports` with these names, numbers and node ports.
    fn ports(all: &[(&str, i64, i64)]) -> Value {
        let port = |(name, port, node_port): &(&str, i64, i64)| {
            let mut one = json!({"name": name, "port": port, "protocol": "TCP"});
            if *node_port != 0 {
                one["nodePort"] = json!(node_port);
            }
            one
        };
        all.iter().map(port).collect()
    }

    fn carried_over(new: &Value, old: &Value) -> Value {
        let mut new = json!({ "spec": new });
        carry_over(&mut new, &json!({ "spec": old }));
        new["spec"].take()
    }

    #[test]
    fn node_ports_carry_over_by_port_name_unless_another_port_requests_them() {
        let old =
            json!({"type": "NodePort", "ports": ports(&[("a", 80, 30080), ("b", 81, 30081)])});
        for (new, carried) in [
            (&[("a", 85, 0), ("b", 80, 0)][..], &[("a", 85, 30080), ("b", 80, 30081)][..]),
            (&[("a", 85, 0), ("b", 80, 30080)], &[("a", 85, 0), ("b", 80, 30080)]),
            (&[("a", 80, 31000), ("c", 81, 0)], &[("a", 80, 31000), ("c", 81, 0)]),
            (&[("b", 81, 0)], &[("b", 81, 30081)]),
        ] {
            let new = carried_over(&json!({"type": "NodePort", "ports": ports(new)}), &old);
            assert_eq!(new["ports"], ports(carried));
        }
    }

    #[test]
    fn values_that_the_new_type_lacks_are_dropped_unless_the_client_changed_them() {
        let given = ports(&[("a", 80, 30080), ("b", 81, 0)]);
        let dropped = ports(&[("a", 80, 0), ("b", 81, 0)]);
        let other = ports(&[("a", 80, 30080), ("b", 81, 30999)]);
        let old = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": true, "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000, "ports": ports(&[("a", 80, 30080), ("b", 81, 30081)])});
        for (new, field, expected) in [
            (json!({"type": "ClusterIP", "ports": given}), "ports", &dropped),
            (json!({"type": "ExternalName", "ports": given}), "ports", &dropped),
            (json!({"type": "ClusterIP", "ports": other}), "ports", &other),
            (
                json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": given}),
                "ports",
                &given,
            ),
            (
                json!({"type": "ClusterIP", "healthCheckNodePort": 31000}),
                "healthCheckNodePort",
                &Value::Null,
            ),
            (
                json!({"type": "ClusterIP", "healthCheckNodePort": 31001}),
                "healthCheckNodePort",
                &json!(31001),
            ),
            (
                json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "externalTrafficPolicy": "Local"}),
                "healthCheckNodePort",
                &json!(31000),
            ),
        ] {
            let carried = carried_over(&new, &old);
            assert_eq!(&carried[field], expected, "{new}");
        }
    }
}
