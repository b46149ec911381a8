//! A pod with what the scheduler works out about it once.

use evenkeel_api::{Text, quantity::Quantity, requests, views::Pod};
use std::sync::Arc;

use crate::resources::Resources;

/// A pod as plugins see it. Clones are cheap.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// The pod.
    pub pod: Arc<Pod>,
    /// What it asks for.
    pub asks: Arc<Asks>,
}

/// What a pod asks for, worked out from its spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asks {
    /// Its requests, with init containers, sidecars, pod-level figures and overhead.
    pub requests: Resources,
    /// CPU (thousandths) and memory (bytes) with 100m and 200 MB for each container that does not say; for scores.
    pub scored: (i64, i64),
    /// Ports of the node it wants.
    pub ports: Box<[HostPort]>,
    /// Claims to volumes that it names, each as `namespace/name`.
    pub claims: Box<[Box<str>]>,
}

/// A port of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Address; all of the node's when empty.
    pub ip: Text,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Text,
    /// Port.
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be had on one node.
    pub fn clashes(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip.is_empty() || other.ip.is_empty())
    }
}

/// What upstream takes a container to use that does not say (`pkg/scheduler/util/pod_resources.go`).
const DEFAULT_CPU_MILLIS: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

impl PodInfo {
    /// Works out what the pod asks for.
    pub fn new(pod: Arc<Pod>) -> Self {
        let requests = Resources::from_amounts(&requests::of_pod(&pod, &[]));
        let scored = scored(&pod, &requests);
        let asks = Asks { requests, scored, ports: host_ports(&pod), claims: claims(&pod) };
        Self { pod, asks: Arc::new(asks) }
    }

    /// The same for a newer version of the pod; nothing is worked out again when the spec is the same.
    #[must_use]
    pub fn updated(&self, pod: Arc<Pod>) -> Self {
        let same = pod.meta.generation == self.pod.meta.generation && pod.meta.generation != 0;
        if same && !requests::depends_on_status(&pod) && !requests::depends_on_status(&self.pod) {
            return Self { pod, asks: Arc::clone(&self.asks) };
        }
        let updated = Self::new(pod);
        if updated.asks == self.asks {
            return Self { pod: updated.pod, asks: Arc::clone(&self.asks) };
        }
        updated
    }

    /// Uid.
    pub fn uid(&self) -> &str {
        &self.pod.meta.uid
    }

    /// Priority, 0 where none is set.
    pub fn priority(&self) -> i32 {
        self.pod.spec.priority.unwrap_or(0)
    }
}

fn claims(pod: &Pod) -> Box<[Box<str>]> {
    let sources = pod
        .spec
        .volumes
        .iter()
        .filter_map(|volume| volume.source.persistent_volume_claim.as_deref());
    sources
        .map(|source| format!("{}/{}", pod.meta.namespace, source.claim_name).into_boxed_str())
        .collect()
}

/// What a container is taken to use that does not say.
pub(crate) fn floor() -> [(&'static str, Quantity); 2] {
    [
        ("cpu", Quantity::from_millis(DEFAULT_CPU_MILLIS)),
        ("memory", Quantity::from_bytes(DEFAULT_MEMORY)),
    ]
}

/// CPU and memory with that floor. Where requests are set for the pod as a whole, there is one only for what is neither set
/// there nor for a container.
fn scored(pod: &Pod, requests: &Resources) -> (i64, i64) {
    let says = |name: &str| {
        let mut all = pod.spec.containers.iter().chain(&*pod.spec.init_containers);
        !requests::depends_on_status(pod) && all.all(|one| one.resources.requests.contains(name))
    };
    let whole = requests::sets_pod_level(pod);
    let asked = if whole { requests::of_pod(pod, &[]) } else { Vec::new() };
    let has = |name: &str| match whole {
        true => asked.iter().any(|(own, _)| *own == name),
        false => says(name),
    };
    let floor: Vec<_> = floor().into_iter().filter(|(name, _)| !has(name)).collect();
    if floor.is_empty() {
        return (requests.cpu, requests.memory);
    }
    let scored = Resources::from_amounts(&requests::of_pod(pod, &floor));
    (scored.cpu, scored.memory)
}

fn host_ports(pod: &Pod) -> Box<[HostPort]> {
    let sidecars = pod.spec.init_containers.iter().filter(|init| &*init.restart_policy == "Always");
    let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|container| &*container.ports);
    ports
        .filter(|port| port.host_port > 0)
        .map(|port| HostPort {
            ip: if &*port.host_ip == "0.0.0.0" { Text::new() } else { port.host_ip.clone() },
            protocol: if port.protocol.is_empty() { "TCP".into() } else { port.protocol.clone() },
            port: port.host_port,
        })
        .collect()
}
