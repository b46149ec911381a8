//! Whether a node takes a pod that was bound to it: room and host ports, as a kubelet checks them once more.

use evenkeel_api::{quantity::Quantity, requests, views::Pod};

use crate::pod::facts::Refusal;

/// Why the node refuses `pod`, beside `others` that are on it (those that ended do not count).
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

/// `pods` is a figure of the node, not a request.
fn too_many(alive: usize, capacity: &[(String, String)]) -> Option<Refusal> {
    let most = amount(capacity, "pods")?.value();
    (i64::try_from(alive).unwrap_or(i64::MAX) >= most).then(|| Refusal {
        reason: "OutOfpods".into(),
        message: format!(
            "Node didn't have enough resource: pods, requested: 1, used: {alive}, capacity: {most}"
        ),
    })
}

fn ports<'a>(pod: &Pod, others: impl Iterator<Item = &'a Pod>) -> Option<Refusal> {
    let wanted: Vec<_> = host_ports(pod).collect();
    if wanted.is_empty() {
        return None;
    }
    let taken =
        others.flat_map(host_ports).any(|theirs| wanted.iter().any(|ours| ours.clashes(&theirs)));
    taken.then(|| Refusal {
        reason: "NodePorts".into(),
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
    let wanted = requests::of_pod(pod, &[]);
    if wanted.iter().all(|(_, amount)| amount.is_zero()) {
        return None;
    }
    let zero = Quantity::from_units(0);
    let taken: Vec<_> = others.map(|other| requests::of_pod(other, &[])).collect();
    wanted.iter().filter(|(_, amount)| !amount.is_zero()).find_map(|(name, requested)| {
        let used = taken
            .iter()
            .flatten()
            .filter(|(other, _)| other == name)
            .fold(zero, |sum, (_, a)| sum.plus(*a));
        let most = amount(capacity, name).unwrap_or(zero);
        (used.plus(*requested) > most).then(|| Refusal {
            reason: format!("OutOf{name}").into(),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
                figure(name, *requested),
                figure(name, used),
                figure(name, most)
            ),
        })
    })
}

/// As upstream prints them: CPU in thousandths.
fn figure(name: &str, amount: Quantity) -> i64 {
    if name == "cpu" { amount.milli_value() } else { amount.value() }
}

fn amount(capacity: &[(String, String)], name: &str) -> Option<Quantity> {
    let (_, text) = capacity.iter().find(|(own, _)| own == name)?;
    Quantity::parse(text).ok()
}
