//! Cluster IPs and node ports of Services. The Services themselves say what is in use: the store indexes them, and refuses
//! to commit a Service with an address or a port that another one got meanwhile.

use super::cluster_ips;
use crate::api::{Api, Context};
use crate::resource::{GroupKind, ResourcePrefix};
use crate::store::Transaction;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::value::{self, get, int, list, set, text};
use evenkeel_kinds::service::{
    init_ip_family_fields, is_externally_accessible, normalize_cluster_ips,
};
use rand::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Where Services are stored.
pub(super) const RESOURCE_PREFIX: &str = "/services";
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// An address in the index of Services.
fn address_value(address: IpAddr) -> String {
    format!("clusterIP/{address}")
}

/// A port in the index of Services. The same node port may serve two protocols of one Service.
fn port_value(port: u16) -> String {
    format!("nodePort/{port}")
}

/// Returns the cluster IPs and node ports of a Service, as its index holds them.
pub(super) fn index(service: &Value) -> Vec<String> {
    let (addresses, ports) = held(service);
    let addresses = addresses.into_iter().map(address_value);
    addresses.chain(ports.into_iter().map(port_value)).collect()
}

/// Cluster IPs of a Service (none for headless ones), and its node ports.
fn held(service: &Value) -> (Vec<IpAddr>, Vec<u16>) {
    let addresses = list(service, "spec.clusterIPs")
        .iter()
        .filter_map(|ip| ip.as_str()?.parse().ok())
        .collect();
    let port = |value: Option<i64>| {
        value.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
    };
    let mut ports: Vec<u16> = list(service, "spec.ports")
        .iter()
        .filter_map(|entry| port(int(entry, "nodePort")))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports.extend(port(int(service, "spec.healthCheckNodePort")));
    (addresses, ports)
}

fn needs_node_ports(service: &Value) -> bool {
    match text(service, "spec.type") {
        "NodePort" => true,
        "LoadBalancer" => {
            get(service, "spec.allocateLoadBalancerNodePorts") != Some(&Value::Bool(false))
        }
        _ => false,
    }
}

/// Gives a new Service what it needs.
pub(super) fn create(cx: &Context<'_>, service: &mut Value) -> Result<(), StatusError> {
    normalize_cluster_ips(service);
    allocate(cx, service, None)
}

/// Carries over what the old form has, and gives what the new form needs beyond it.
pub(super) fn update(cx: &Context<'_>, new: &mut Value, old: &Value) -> Result<(), StatusError> {
    carry_over(new, old);
    normalize_cluster_ips(new);
    allocate(cx, new, Some(old))
}

fn allocate(cx: &Context<'_>, service: &mut Value, old: Option<&Value>) -> Result<(), StatusError> {
    let kind = GroupKind { group: "".into(), kind: "Service".into() };
    let refused = init_ip_family_fields(service, old).into_vec();
    if !refused.is_empty() {
        return Err(StatusError::invalid(&kind, cx.name, &refused));
    }
    let had = old.map(held).unwrap_or_default();
    let mut errors = Vec::new();
    if text(service, "spec.type") != "ExternalName" {
        let has_addresses = old.is_some_and(|old| {
            text(old, "spec.type") != "ExternalName" && !text(old, "spec.clusterIP").is_empty()
        });
        // Validation refuses to change an address.
        if !has_addresses {
            addresses(cx.api, service, &had.0, &mut errors);
        }
    }
    node_ports(cx, service, &had.1, &mut errors)?;
    if errors.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(&kind, cx.name, &errors))
}

/// Adds the IPAddresses of new cluster IPs, and that nobody else may have got the same address or port meanwhile.
pub(super) fn begin_write(
    api: &Api,
    service: &Value,
    old: Option<&Value>,
    transaction: &mut Transaction,
) {
    let (had_addresses, had_ports) = old.map(held).unwrap_or_default();
    let (mut addresses, mut ports) = held(service);
    // Only the first address was looked for among those in use.
    let first = addresses.first().copied();
    addresses.retain(|address| !had_addresses.contains(address));
    ports.retain(|port| !had_ports.contains(port));
    let resource_prefix = ResourcePrefix::from(RESOURCE_PREFIX);
    for address in addresses {
        if first == Some(address) {
            transaction.unique(&resource_prefix, address_value(address));
        }
        cluster_ips::create(api, address, service, transaction);
    }
    for port in ports {
        transaction.unique(&resource_prefix, port_value(port));
    }
}

/// Adds the deletion of the IPAddresses that `old` has and `service` has not.
pub(super) fn finish_write(
    api: &Api,
    service: Option<&Value>,
    old: &Value,
    transaction: &mut Transaction,
) {
    let (kept, _) = service.map(held).unwrap_or_default();
    for address in held(old).0.into_iter().filter(|address| !kept.contains(address)) {
        cluster_ips::delete(api, address, old, transaction);
    }
}

fn is_taken(api: &Api, value: &str) -> bool {
    api.store.is_taken(RESOURCE_PREFIX, value)
}

/// An update that leaves out what was allocated keeps it.
fn carry_over(new: &mut Value, old: &Value) {
    let (new_type, old_type) = (text(new, "spec.type").to_owned(), text(old, "spec.type"));
    if new_type != "ExternalName" && old_type != "ExternalName" {
        if text(new, "spec.clusterIP").is_empty() {
            value::copy(new, old, "spec.clusterIP");
            value::copy(new, old, "spec.clusterIPs");
        } else if text(new, "spec.clusterIP") != text(old, "spec.clusterIP")
            && list(new, "spec.clusterIPs") == list(old, "spec.clusterIPs")
        {
            // A client that knows one address only changed it.
            let ip = text(new, "spec.clusterIP").to_owned();
            set(new, "spec.clusterIPs", json!([ip]));
        }
        for field in ["spec.ipFamilies", "spec.ipFamilyPolicy"] {
            if value::is_empty(new, field) {
                value::copy(new, old, field);
            }
        }
    }
    if new_type == "ExternalName" && old_type != "ExternalName" {
        for field in ["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"]
        {
            if get(new, field) == get(old, field) {
                value::remove(new, field);
            }
        }
    }
    if needs_node_ports(new) && needs_node_ports(old) {
        let before: BTreeMap<(String, i64), i64> = list(old, "spec.ports")
            .iter()
            .filter_map(|port| {
                let key = (text(port, "protocol").to_owned(), int(port, "port")?);
                Some((key, int(port, "nodePort").filter(|port| *port != 0)?))
            })
            .collect();
        value::each(new, "spec.ports.*", &mut |port| {
            let key = (text(port, "protocol").to_owned(), int(port, "port").unwrap_or_default());
            if let Some(node_port) =
                before.get(&key).filter(|_| int(port, "nodePort").unwrap_or_default() == 0)
            {
                set(port, "nodePort", *node_port);
            }
        });
    } else if !needs_node_ports(new) && needs_node_ports(old) {
        let before: BTreeSet<Option<i64>> =
            list(old, "spec.ports").iter().map(|port| int(port, "nodePort")).collect();
        value::each(new, "spec.ports.*", &mut |port| {
            let node_port = int(port, "nodePort");
            if before.contains(&node_port) {
                value::remove(port, "nodePort");
            }
        });
    }
    if needs_health_check(new)
        && needs_health_check(old)
        && int(new, "spec.healthCheckNodePort").unwrap_or_default() == 0
    {
        value::copy(new, old, "spec.healthCheckNodePort");
    }
    if needs_health_check(old) && !needs_health_check(new) {
        value::remove(new, "spec.healthCheckNodePort");
    }
    let policy = "spec.externalTrafficPolicy";
    if get(old, "spec").is_some_and(is_externally_accessible)
        && !get(new, "spec").is_some_and(is_externally_accessible)
        && get(new, policy) == get(old, policy)
    {
        value::remove(new, policy);
    }
    if new_type != "LoadBalancer" {
        for field in ["spec.allocateLoadBalancerNodePorts", "spec.loadBalancerClass"] {
            if get(new, field) == get(old, field) {
                value::remove(new, field);
            }
        }
        // Its addresses are no longer anybody's business, although giving them back takes a while.
        set(new, "status.loadBalancer", json!({}));
    }
}

fn needs_health_check(service: &Value) -> bool {
    text(service, "spec.type") == "LoadBalancer"
        && text(service, "spec.externalTrafficPolicy") == "Local"
}

fn addresses(api: &Api, service: &mut Value, had: &[IpAddr], errors: &mut Vec<FieldError>) {
    let refuse = |ip: &str, why: &str, service: &Value, errors: &mut Vec<FieldError>| {
        let ips = get(service, "spec.clusterIPs").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            ips,
            format!("failed to allocate IP {ip}: {why}"),
        ));
    };
    let cluster_ip_of_spec = text(service, "spec.clusterIP").to_owned();
    if cluster_ip_of_spec == "None" {
        return;
    }
    if !cluster_ip_of_spec.is_empty() {
        let Ok(address) = cluster_ip_of_spec.parse::<IpAddr>() else { return };
        if had.contains(&address) {
            return;
        }
        let taken = is_taken(api, &address_value(address));
        let why = taken.then_some("provided IP is already allocated");
        if let Some(why) = cluster_ips::refusal(api, address).or(why) {
            refuse(&cluster_ip_of_spec, why, service, errors);
        }
        return;
    }
    match cluster_ips::free(api, |ip| !is_taken(api, &address_value(ip))) {
        Some(address) => {
            let ip = address.to_string();
            set(service, "spec.clusterIP", ip.as_str());
            set(service, "spec.clusterIPs", json!([ip]));
        }
        None => refuse("", "range is full", service, errors),
    }
}

fn node_ports(
    cx: &Context<'_>,
    service: &mut Value,
    had: &[u16],
    errors: &mut Vec<FieldError>,
) -> Result<(), StatusError> {
    let api = cx.api;
    let mut mine: BTreeSet<u16> = BTreeSet::new();
    let mut check =
        |port: i64, field: String, errors: &mut Vec<FieldError>| match u16::try_from(port) {
            Ok(number) if NODE_PORTS.contains(&number) => {
                if is_taken(api, &port_value(number)) && !had.contains(&number) {
                    errors.push(FieldError::invalid(
                        field,
                        port,
                        "provided port is already allocated",
                    ));
                }
                mine.insert(number);
            }
            // Upstream's dry run only looks whether a port is taken.
            _ if cx.dry_run => {}
            _ => {
                let words = format!(
                    "provided port is not in the valid range. The range of valid ports is {}-{}",
                    NODE_PORTS.start(),
                    NODE_PORTS.end()
                );
                errors.push(FieldError::invalid(field, port, words));
            }
        };
    if !matches!(text(service, "spec.type"), "NodePort" | "LoadBalancer") {
        return Ok(());
    }
    for (index, port) in list(service, "spec.ports").iter().enumerate() {
        if let Some(port) = int(port, "nodePort").filter(|port| *port != 0) {
            check(port, format!("spec.ports[{index}].nodePort"), errors);
        }
    }
    if let Some(port) = int(service, "spec.healthCheckNodePort").filter(|port| *port != 0) {
        check(port, "spec.healthCheckNodePort".to_owned(), errors);
    }
    let next = |mine: &mut BTreeSet<u16>| {
        let from = api.random(|rng| rng.random_range(NODE_PORTS));
        let free = (from..=*NODE_PORTS.end())
            .chain(*NODE_PORTS.start()..from)
            .find(|port| !mine.contains(port) && !is_taken(api, &port_value(*port)))?;
        mine.insert(free);
        Some(free)
    };
    // A Service may have more ports than there are node ports. The range is searched in vain once.
    let mut is_full = false;
    if needs_node_ports(service) {
        let mut by_number: BTreeMap<i64, u16> = BTreeMap::new();
        value::each(service, "spec.ports.*", &mut |port| {
            if is_full || int(port, "nodePort").unwrap_or_default() != 0 {
                return;
            }
            // One number on two protocols shares a node port.
            let number = int(port, "port").unwrap_or_default();
            let chosen = by_number.get(&number).copied().or_else(|| next(&mut mine));
            match chosen {
                Some(chosen) => {
                    by_number.insert(number, chosen);
                    set(port, "nodePort", chosen);
                }
                None => is_full = true,
            }
        });
    }
    if is_full {
        return Err(StatusError::internal("failed to allocate a nodePort: range is full"));
    }
    if needs_health_check(service)
        && int(service, "spec.healthCheckNodePort").unwrap_or_default() == 0
    {
        let Some(port) = next(&mut mine) else {
            let why = "failed to allocate a HealthCheck NodePort 0: range is full";
            return Err(StatusError::internal(why));
        };
        set(service, "spec.healthCheckNodePort", port);
    }
    Ok(())
}
