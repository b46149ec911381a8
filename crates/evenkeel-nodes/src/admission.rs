//! Admission of the kubelet: checks the pod count, host ports and resources of a pod that is bound to the node.

use evenkeel_api::{quantity::Quantity, views::Pod};
use evenkeel_component_helpers::resource;

use crate::pod::facts::{Rejection, RejectionReason};

/// Returns the rejection of `pod` by its node; `None` if the node admits the pod. `others` are the pods of the node;
/// Succeeded and Failed pods do not count.
pub(crate) fn reject<'a>(
    pod: &Pod,
    others: impl Iterator<Item = &'a Pod> + Clone,
    capacity: &[(String, String)],
) -> Option<Rejection> {
    let active = others.filter(|other| {
        other.meta.uid != pod.meta.uid && !matches!(&*other.status.phase, "Succeeded" | "Failed")
    });
    check_pod_count(active.clone().count(), capacity)
        .or_else(|| check_ports(pod, active.clone()))
        .or_else(|| check_resources(pod, active, capacity))
}

/// Checks the node's capacity of `pods`. Each pod counts as one, and no container requests them.
fn check_pod_count(active: usize, capacity: &[(String, String)]) -> Option<Rejection> {
    let max_pods = capacity_of(capacity, "pods")?.value();
    (i64::try_from(active).unwrap_or(i64::MAX) >= max_pods).then(|| Rejection {
        reason: RejectionReason::Pods,
        message: format!(
            "Node didn't have enough resource: pods, requested: 1, used: {active}, capacity: {max_pods}"
        ),
    })
}

/// Checks that no other pod on the node uses the pod's host ports.
fn check_ports<'a>(pod: &Pod, others: impl Iterator<Item = &'a Pod>) -> Option<Rejection> {
    let requested_ports: Vec<_> = host_ports(pod).collect();
    if requested_ports.is_empty() {
        return None;
    }
    let has_conflict = others
        .flat_map(host_ports)
        .any(|used| requested_ports.iter().any(|requested| requested.conflicts_with(&used)));
    has_conflict.then(|| Rejection {
        reason: RejectionReason::Ports,
        message:
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
                .into(),
    })
}

/// Host port of a pod.
struct HostPort<'a> {
    ip: &'a str,
    protocol: &'a str,
    port: i32,
}

impl HostPort<'_> {
    /// Returns whether both host ports use the same port and protocol of the node. An empty IP address means all
    /// addresses.
    fn conflicts_with(&self, other: &Self) -> bool {
        let is_any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        let is_tcp = |protocol: &str| protocol.is_empty() || protocol == "TCP";
        let same_protocol =
            self.protocol == other.protocol || (is_tcp(self.protocol) && is_tcp(other.protocol));
        self.port == other.port
            && same_protocol
            && (self.ip == other.ip || is_any(self.ip) || is_any(other.ip))
    }
}

/// Iterates over the host ports of a pod's containers and sidecars.
fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort<'_>> {
    let sidecars = pod.spec.init_containers.iter().filter(|init| &*init.restart_policy == "Always");
    let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|container| &*container.ports);
    ports.filter(|port| port.host_port > 0).map(|port| HostPort {
        ip: &port.host_ip,
        protocol: &port.protocol,
        port: port.host_port,
    })
}

/// Checks that the node's capacity suffices for the requests of the pod and its other pods.
fn check_resources<'a>(
    pod: &Pod,
    others: impl Iterator<Item = &'a Pod> + Clone,
    capacity: &[(String, String)],
) -> Option<Rejection> {
    // As in upstream, extended resources that the node does not report are ignored.
    let is_reported = |name: &str| !name.contains('/') || capacity_of(capacity, name).is_some();
    let pod_requests: Vec<_> = resource::pod_requests(pod, &[])
        .into_iter()
        .filter(|(name, _)| is_reported(name))
        .collect();
    if pod_requests.iter().all(|(_, amount)| amount.is_zero()) {
        return None;
    }
    let zero = Quantity::from_units(0);
    let other_requests: Vec<_> = others.map(|other| resource::pod_requests(other, &[])).collect();
    pod_requests.iter().filter(|(_, amount)| !amount.is_zero()).find_map(|(name, requested)| {
        let used = other_requests
            .iter()
            .flatten()
            .filter(|(other, _)| other == name)
            .fold(zero, |sum, (_, request)| sum.plus(*request));
        let available = capacity_of(capacity, name).unwrap_or(zero);
        (used.plus(*requested) > available).then(|| Rejection {
            reason: reason_for(name),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
                message_amount(name, *requested),
                message_amount(name, used),
                message_amount(name, available)
            ),
        })
    })
}

/// Returns the reason of a rejection for lack of a resource.
fn reason_for(name: &str) -> RejectionReason {
    match name {
        "cpu" => RejectionReason::Cpu,
        "memory" => RejectionReason::Memory,
        "ephemeral-storage" => RejectionReason::EphemeralStorage,
        _ => RejectionReason::Extended,
    }
}

/// Returns an amount in the unit of upstream's message: millicores for CPU, else units or bytes.
fn message_amount(name: &str, amount: Quantity) -> i64 {
    if name == "cpu" { amount.milli_value() } else { amount.value() }
}

/// Returns the node's capacity of a resource; `None` if the node does not report it.
fn capacity_of(capacity: &[(String, String)], name: &str) -> Option<Quantity> {
    let (_, text) = capacity.iter().find(|(resource, _)| resource == name)?;
    Quantity::parse(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeOptions;
    use evenkeel_api::{Encoding, View};
    use serde_json::{Value, json};
    use std::net::Ipv4Addr;

    /// Returns a pod with a CPU request, a host port (0 for none) and a phase. The pod `gpu` requests a GPU.
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
        let unreported = reject(&pod("gpu", "0", 0, ""), [].iter(), &node.capacity);
        assert_eq!(unreported, None, "the node does not report the resource");
        let others = [
            pod("a", "5", 80, "Running"),
            pod("b", "3", 90, "Succeeded"),
            pod("c", "0", 0, "Pending"),
        ];
        for (requested, want) in [
            (pod("p", "3", 81, ""), None),
            (pod("p", "3001m", 0, ""), Some(RejectionReason::Cpu)),
            (pod("p", "0", 80, ""), Some(RejectionReason::Ports)),
            (pod("p", "0", 90, ""), None),
            (pod("gpu", "0", 0, ""), Some(RejectionReason::Extended)),
            (pod("a", "8", 80, ""), None),
        ] {
            let found =
                reject(&requested, others.iter(), &capacity).map(|rejection| rejection.reason);
            assert_eq!(found, want, "{:?}", requested.meta.uid);
        }
        let full = ["a", "b", "c", "d"].map(|uid| pod(uid, "0", 0, "Running"));
        let rejection = reject(&pod("p", "0", 0, ""), full.iter(), &capacity).unwrap();
        assert_eq!(rejection.reason, RejectionReason::Pods);
        assert_eq!(
            rejection.message,
            "Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 4"
        );
    }
}
