//! Kubelet admission: checks pod count, host ports and resources of a pod that is already bound to the node.

use evenkeel_api::{quantity::Quantity, views::Pod};
use evenkeel_component_helpers::resource;

use crate::pod::facts::{Refusal, Refused};

/// Returns why the node rejects `pod` beside its `others`, or `None`. Succeeded and Failed pods do not count.
pub(crate) fn refuse<'a>(
    pod: &Pod,
    others: impl Iterator<Item = &'a Pod> + Clone,
    capacity: &[(String, String)],
) -> Option<Refusal> {
    let alive = others.filter(|other| {
        other.meta.uid != pod.meta.uid && !matches!(&*other.status.phase, "Succeeded" | "Failed")
    });
    too_many(alive.clone().count(), capacity)
        .or_else(|| ports(pod, alive.clone()))
        .or_else(|| resources(pod, alive, capacity))
}

/// Checks the node's capacity of `pods`, which no container requests.
fn too_many(alive: usize, capacity: &[(String, String)]) -> Option<Refusal> {
    let most = amount(capacity, "pods")?.value();
    (i64::try_from(alive).unwrap_or(i64::MAX) >= most).then(|| Refusal {
        reason: Refused::Pods,
        message: format!(
            "Node didn't have enough resource: pods, requested: 1, used: {alive}, capacity: {most}"
        ),
    })
}

fn ports<'a>(pod: &Pod, others: impl Iterator<Item = &'a Pod>) -> Option<Refusal> {
    let requested_ports: Vec<_> = host_ports(pod).collect();
    if requested_ports.is_empty() {
        return None;
    }
    let taken = others
        .flat_map(host_ports)
        .any(|used| requested_ports.iter().any(|requested| requested.clashes(&used)));
    taken.then(|| Refusal {
        reason: Refused::Ports,
        message:
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
                .into(),
    })
}

struct HostPort<'a> {
    ip: &'a str,
    protocol: &'a str,
    port: i32,
}

impl HostPort<'_> {
    fn clashes(&self, other: &Self) -> bool {
        let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        let protocol = |text: &str| text.is_empty() || text == "TCP";
        let same_protocol = self.protocol == other.protocol
            || (protocol(self.protocol) && protocol(other.protocol));
        self.port == other.port
            && same_protocol
            && (self.ip == other.ip || any(self.ip) || any(other.ip))
    }
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort<'_>> {
    let sidecars = pod.spec.init_containers.iter().filter(|init| &*init.restart_policy == "Always");
    let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|container| &*container.ports);
    ports.filter(|port| port.host_port > 0).map(|port| HostPort {
        ip: &port.host_ip,
        protocol: &port.protocol,
        port: port.host_port,
    })
}

fn resources<'a>(
    pod: &Pod,
    others: impl Iterator<Item = &'a Pod> + Clone,
    capacity: &[(String, String)],
) -> Option<Refusal> {
    // Ignore extended resources that the node does not report, as upstream does.
    let known = |name: &str| !name.contains('/') || amount(capacity, name).is_some();
    let pod_requests: Vec<_> =
        resource::pod_requests(pod, &[]).into_iter().filter(|(name, _)| known(name)).collect();
    if pod_requests.iter().all(|(_, amount)| amount.is_zero()) {
        return None;
    }
    let zero = Quantity::from_units(0);
    let taken: Vec<_> = others.map(|other| resource::pod_requests(other, &[])).collect();
    pod_requests.iter().filter(|(_, amount)| !amount.is_zero()).find_map(|(name, requested)| {
        let used = taken
            .iter()
            .flatten()
            .filter(|(other, _)| other == name)
            .fold(zero, |sum, (_, a)| sum.plus(*a));
        let most = amount(capacity, name).unwrap_or(zero);
        (used.plus(*requested) > most).then(|| Refusal {
            reason: refused(name),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
                figure(name, *requested),
                figure(name, used),
                figure(name, most)
            ),
        })
    })
}

fn refused(name: &str) -> Refused {
    match name {
        "cpu" => Refused::Cpu,
        "memory" => Refused::Memory,
        "ephemeral-storage" => Refused::EphemeralStorage,
        _ => Refused::Extended,
    }
}

/// Returns an amount in the unit of upstream's message: millicores for CPU.
fn figure(name: &str, amount: Quantity) -> i64 {
    if name == "cpu" { amount.milli_value() } else { amount.value() }
}

fn amount(capacity: &[(String, String)], name: &str) -> Option<Quantity> {
    let (_, text) = capacity.iter().find(|(own, _)| own == name)?;
    Quantity::parse(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeOptions;
    use evenkeel_api::{Encoding, View};
    use serde_json::{Value, json};
    use std::net::Ipv4Addr;

    fn pod(uid: &str, cpu: &str, port: i32, phase: &str) -> Pod {
        let ports =
            if port == 0 { json!([]) } else { json!([{ "containerPort": 80, "hostPort": port }]) };
        let resources = json!({ "requests": { "cpu": cpu, "example.com/gpu": if uid == "gpu" { "1" } else { "0" } } });
        let object: Value = json!({
            "metadata": { "name": uid, "uid": uid },
            "spec": { "containers": [{ "name": "c", "ports": ports, "resources": resources }] },
            "status": { "phase": phase },
        });
        Pod::decode(object.to_string().as_bytes(), Encoding::Json).unwrap()
    }

    #[test]
    fn pods_are_admitted_within_capacity() {
        let node = NodeOptions::new("n", Ipv4Addr::LOCALHOST).with_capacity("pods", "4");
        let capacity = node.clone().with_capacity("example.com/gpu", "0").capacity;
        let ignorant = refuse(&pod("gpu", "0", 0, ""), [].iter(), &node.capacity);
        assert_eq!(ignorant, None, "a resource unknown to the node");
        let others = [
            pod("a", "5", 80, "Running"),
            pod("b", "3", 90, "Succeeded"),
            pod("c", "0", 0, "Pending"),
        ];
        for (asked, want) in [
            (pod("p", "3", 81, ""), None),
            (pod("p", "3001m", 0, ""), Some(Refused::Cpu)),
            (pod("p", "0", 80, ""), Some(Refused::Ports)),
            (pod("p", "0", 90, ""), None),
            (pod("gpu", "0", 0, ""), Some(Refused::Extended)),
            (pod("a", "8", 80, ""), None),
        ] {
            let found = refuse(&asked, others.iter(), &capacity).map(|refusal| refusal.reason);
            assert_eq!(found, want, "{:?}", asked.meta.uid);
        }
        let full = ["a", "b", "c", "d"].map(|uid| pod(uid, "0", 0, "Running"));
        let refusal = refuse(&pod("p", "0", 0, ""), full.iter(), &capacity).unwrap();
        assert_eq!(refusal.reason, Refused::Pods);
        assert_eq!(
            refusal.message,
            "Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 4"
        );
    }
}
