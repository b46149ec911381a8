//! Cluster IPs and node ports of Services: kept in the Services themselves, with an account in memory of who has what.

use super::cluster_ips;
use super::value::{self, at, int, list, set, text};
use crate::api::{Api, Context};
use crate::resource::GroupKind;
use crate::status::{FieldError, StatusError};
use rand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
/// Who has what: the same node port may serve two protocols of one Service.
type Owners<K> = BTreeMap<K, String>;

/// What is taken.
#[derive(Default)]
pub(crate) struct Allocator(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    addresses: Owners<IpAddr>,
    ports: Owners<u16>,
}

fn give_back<K: Ord>(owners: &mut Owners<K>, key: &K, owner: &str) {
    if owners.get(key).is_some_and(|present| present == owner) {
        owners.remove(key);
    }
}

/// A Service's namespace and name.
fn owner(service: &Value) -> String {
    format!("{}/{}", text(service, "metadata.namespace"), text(service, "metadata.name"))
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
            at(service, "spec.allocateLoadBalancerNodePorts") != Some(&Value::Bool(false))
        }
        _ => false,
    }
}

impl Allocator {
    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acquire(&self, service: &Value) {
        let ((addresses, ports), owner) = (held(service), owner(service));
        let mut taken = self.taken();
        for address in addresses {
            taken.addresses.entry(address).or_insert_with(|| owner.clone());
        }
        for port in ports {
            taken.ports.entry(port).or_insert_with(|| owner.clone());
        }
    }

    /// Gives back what `service` has, but for what `but` has.
    fn release(&self, api: &Api, service: &Value, but: Option<&Value>) {
        let ((addresses, ports), owner) = (held(service), owner(service));
        let (namespace, name) = owner.split_once('/').unwrap_or_default();
        let (kept_addresses, kept_ports) = but.map(held).unwrap_or_default();
        let mut taken = self.taken();
        for address in addresses.iter().filter(|address| !kept_addresses.contains(address)) {
            give_back(&mut taken.addresses, address, &owner);
            cluster_ips::hide(api, *address, namespace, name);
        }
        for port in ports.iter().filter(|port| !kept_ports.contains(port)) {
            give_back(&mut taken.ports, port, &owner);
        }
    }

    /// Gives a new Service what it needs.
    pub(super) fn create(&self, cx: &Context<'_>, service: &mut Value) -> Result<(), StatusError> {
        normalize(service);
        self.allocate(cx, service, None)
    }

    /// Carries over what the old form has, and gives what the new form needs beyond it.
    pub(super) fn update(
        &self,
        cx: &Context<'_>,
        new: &mut Value,
        old: &Value,
    ) -> Result<(), StatusError> {
        carry_over(new, old);
        normalize(new);
        self.allocate(cx, new, Some(old))
    }

    fn allocate(
        &self,
        cx: &Context<'_>,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), StatusError> {
        if !well_formed(service) {
            // Validation will refuse it, in better words.
            self.acquire(service);
            return Ok(());
        }
        let had = old.map(held).unwrap_or_default();
        let mut taken = self.taken();
        let mut errors = Vec::new();
        if text(service, "spec.type") != "ExternalName" {
            addresses(cx.api, &taken, service, &had.0, &mut errors);
        }
        node_ports(cx.api, &taken, service, &had.1, &mut errors);
        if errors.is_empty() {
            return take(cx, &mut taken, service, &had.0);
        }
        drop(taken);
        let kind = GroupKind { group: "".into(), kind: "Service".into() };
        Err(StatusError::invalid(&kind, cx.name, &errors))
    }

    /// The write did not happen.
    pub(super) fn aborted(&self, api: &Api, service: &Value, old: Option<&Value>) {
        self.release(api, service, old);
    }

    /// The write happened.
    pub(super) fn replaced(&self, api: &Api, service: &Value, old: &Value) {
        self.release(api, old, Some(service));
    }

    /// The Service is gone.
    pub(super) fn removed(&self, api: &Api, service: &Value) {
        self.release(api, service, None);
    }

    /// The Service was there when the server started.
    pub(super) fn restored(&self, service: &Value) {
        self.acquire(service);
    }
}

/// Notes that the Service has its addresses and ports; new addresses are shown as IPAddresses.
fn take(
    cx: &Context<'_>,
    taken: &mut Taken,
    service: &Value,
    had: &[IpAddr],
) -> Result<(), StatusError> {
    let ((addresses, ports), owner) = (held(service), format!("{}/{}", cx.namespace, cx.name));
    for address in addresses {
        if !cx.dry_run && !had.contains(&address) {
            cluster_ips::show(cx.api, address, cx.namespace, cx.name)?;
        }
        taken.addresses.insert(address, owner.clone());
    }
    taken.ports.extend(ports.into_iter().map(|port| (port, owner.clone())));
    Ok(())
}

/// Keeps `clusterIP` and `clusterIPs`, families and policy in step, and fills them in for one IPv4 network.
fn normalize(service: &mut Value) {
    if text(service, "spec.type") == "ExternalName" {
        return;
    }
    let first = text(service, "spec.clusterIP").to_owned();
    match (first.is_empty(), list(service, "spec.clusterIPs").is_empty()) {
        (false, true) => set(service, "spec.clusterIPs", json!([first])),
        (true, false) => {
            let first = list(service, "spec.clusterIPs")[0].clone();
            set(service, "spec.clusterIP", first);
        }
        _ => {}
    }
    let selectorless_headless =
        text(service, "spec.clusterIP") == "None" && value::is_empty(service, "spec.selector");
    if at(service, "spec.ipFamilyPolicy").is_none() {
        let policy = if selectorless_headless { "RequireDualStack" } else { "SingleStack" };
        set(service, "spec.ipFamilyPolicy", policy);
    }
    if list(service, "spec.ipFamilies").is_empty() {
        let families =
            if selectorless_headless && text(service, "spec.ipFamilyPolicy") != "SingleStack" {
                json!(["IPv4", "IPv6"])
            } else {
                json!(["IPv4"])
            };
        set(service, "spec.ipFamilies", families);
    }
}

fn well_formed(service: &Value) -> bool {
    let ips = list(service, "spec.clusterIPs");
    let first = text(service, "spec.clusterIP");
    ips.iter().all(|ip| {
        ip.as_str().is_some_and(|ip| {
            ip.parse::<std::net::IpAddr>().is_ok()
                || ip == "None" && text(service, "spec.type") == "ClusterIP"
        })
    }) && ips.first().is_none_or(|ip| ip.as_str() == Some(first))
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
            if at(new, field) == at(old, field) {
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
        if needs_health_check(new)
            && needs_health_check(old)
            && int(new, "spec.healthCheckNodePort").unwrap_or_default() == 0
        {
            value::copy(new, old, "spec.healthCheckNodePort");
        }
    } else if !needs_node_ports(new) && needs_node_ports(old) {
        let before: Vec<Value> = list(old, "spec.ports").to_vec();
        value::each(new, "spec.ports.*", &mut |port| {
            let node_port = int(port, "nodePort");
            if before.iter().any(|old| int(old, "nodePort") == node_port) {
                value::remove(port, "nodePort");
            }
        });
    }
    if needs_health_check(old) && !needs_health_check(new) {
        value::remove(new, "spec.healthCheckNodePort");
    }
    if new_type == "ClusterIP" && matches!(old_type, "NodePort" | "LoadBalancer") {
        for field in ["spec.externalTrafficPolicy", "spec.allocateLoadBalancerNodePorts"] {
            if at(new, field) == at(old, field) && list(new, "spec.externalIPs").is_empty() {
                value::remove(new, field);
            }
        }
    }
    if new_type != "LoadBalancer" {
        for field in ["spec.allocateLoadBalancerNodePorts", "spec.loadBalancerClass"] {
            if at(new, field) == at(old, field) {
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

fn addresses(
    api: &Api,
    taken: &Taken,
    service: &mut Value,
    had: &[IpAddr],
    errors: &mut Vec<FieldError>,
) {
    let refuse = |ip: &str, why: &str, service: &Value, errors: &mut Vec<FieldError>| {
        let ips = at(service, "spec.clusterIPs").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            ips,
            format!("failed to allocate IP {ip}: {why}"),
        ));
    };
    let wanted = text(service, "spec.clusterIP").to_owned();
    if wanted == "None" {
        return;
    }
    if !wanted.is_empty() {
        let Ok(address) = wanted.parse::<IpAddr>() else { return };
        if had.contains(&address) {
            return;
        }
        let taken = taken.addresses.contains_key(&address);
        let why = taken.then_some("provided IP is already allocated");
        if let Some(why) = cluster_ips::refusal(api, address).or(why) {
            refuse(&wanted, why, service, errors);
        }
        return;
    }
    match cluster_ips::free(api, |ip| !taken.addresses.contains_key(&ip)) {
        Some(address) => {
            let ip = address.to_string();
            set(service, "spec.clusterIP", ip.as_str());
            set(service, "spec.clusterIPs", json!([ip]));
        }
        None => refuse("", "range is full", service, errors),
    }
}

fn node_ports(
    api: &Api,
    taken: &Taken,
    service: &mut Value,
    had: &[u16],
    errors: &mut Vec<FieldError>,
) {
    let mut mine: Vec<u16> = Vec::new();
    let mut check =
        |port: i64, field: String, errors: &mut Vec<FieldError>| match u16::try_from(port) {
            Ok(number) if NODE_PORTS.contains(&number) => {
                if taken.ports.contains_key(&number) && !had.contains(&number) {
                    errors.push(FieldError::invalid(
                        field,
                        port,
                        "provided port is already allocated",
                    ));
                }
                mine.push(number);
            }
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
        return;
    }
    for (index, port) in list(service, "spec.ports").iter().enumerate() {
        if let Some(port) = int(port, "nodePort").filter(|port| *port != 0) {
            check(port, format!("spec.ports[{index}].nodePort"), errors);
        }
    }
    if let Some(port) = int(service, "spec.healthCheckNodePort").filter(|port| *port != 0) {
        check(port, "spec.healthCheckNodePort".to_owned(), errors);
    }
    let next = |mine: &mut Vec<u16>| {
        let from = api.random(|rng| rng.random_range(NODE_PORTS));
        let free = (from..=*NODE_PORTS.end())
            .chain(*NODE_PORTS.start()..from)
            .find(|port| !taken.ports.contains_key(port) && !mine.contains(port))?;
        mine.push(free);
        Some(free)
    };
    if needs_node_ports(service) {
        let mut by_number: BTreeMap<i64, u16> = BTreeMap::new();
        value::each(service, "spec.ports.*", &mut |port| {
            if int(port, "nodePort").unwrap_or_default() != 0 {
                return;
            }
            // One number on two protocols shares a node port.
            let number = int(port, "port").unwrap_or_default();
            let chosen = by_number.get(&number).copied().or_else(|| next(&mut mine));
            if let Some(chosen) = chosen {
                by_number.insert(number, chosen);
                set(port, "nodePort", chosen);
            }
        });
    }
    if needs_health_check(service)
        && int(service, "spec.healthCheckNodePort").unwrap_or_default() == 0
        && let Some(port) = next(&mut mine)
    {
        set(service, "spec.healthCheckNodePort", port);
    }
}
