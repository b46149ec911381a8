//! PodInfo: a pod, and properties that are computed once from its spec.

use evenkeel_api::{Text, quantity::Quantity, views::Pod};
use evenkeel_component_helpers::resource;
use std::sync::Arc;

use crate::resources::Resources;

/// A pod in the form that plugins use. Clones share their data.
///
/// Upstream: `PodInfo`.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// The Pod object.
    pub pod: Arc<Pod>,
    /// Requests, host ports and claims, computed from the spec.
    pub requirements: Arc<PodRequirements>,
}

/// Resources, host ports and claims that a pod requires of its node, computed from its spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRequirements {
    /// Requests including init containers, sidecars, pod-level resources and overhead.
    pub requests: Resources,
    /// Requests for scores.
    pub nonzero_requests: NonzeroRequests,
    /// Requested host ports of containers and sidecars.
    pub ports: Box<[HostPort]>,
    /// PersistentVolumeClaims that the pod refers to, as `namespace/name`.
    pub claims: Box<[Box<str>]>,
}

/// Requested CPU and memory. A container without requests counts as 100m CPU and 200 MiB of memory.
///
/// Upstream: `NonZeroRequested`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NonzeroRequests {
    /// CPU in millicores.
    pub cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
}

/// A host port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Host IP. Empty means all addresses.
    pub ip: Text,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Text,
    /// Number of the host port.
    pub port: i32,
}

impl HostPort {
    /// Returns whether two pods with these ports cannot run on one node.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip.is_empty() || other.ip.is_empty())
    }
}

/// CPU in millicores that a container without requests counts as (upstream: `pkg/scheduler/util/pod_resources.go`).
const DEFAULT_CPU_MILLIS: i64 = 100;
/// Memory in bytes that a container without requests counts as.
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

impl PodInfo {
    /// Computes the requirements of the pod.
    pub fn new(pod: Arc<Pod>) -> Self {
        let requests = Resources::from_amounts(&resource::pod_requests(&pod, &[]));
        let nonzero_requests = nonzero_requests(&pod, &requests);
        let ports = host_ports(&pod);
        let claims = claims(&pod);
        let requirements = PodRequirements { requests, nonzero_requests, ports, claims };
        Self { pod, requirements: Arc::new(requirements) }
    }

    /// Returns the info of a newer version of the pod. It shares the requirements if they are unchanged.
    #[must_use]
    pub fn updated(&self, pod: Arc<Pod>) -> Self {
        let has_same_spec =
            pod.meta.generation == self.pod.meta.generation && pod.meta.generation != 0;
        let reads_status =
            || resource::depends_on_status(&pod) || resource::depends_on_status(&self.pod);
        if has_same_spec && !reads_status() {
            return Self { pod, requirements: Arc::clone(&self.requirements) };
        }
        let updated = Self::new(pod);
        if updated.requirements == self.requirements {
            return Self { pod: updated.pod, requirements: Arc::clone(&self.requirements) };
        }
        updated
    }

    /// Returns the pod's uid.
    pub fn uid(&self) -> &str {
        &self.pod.meta.uid
    }

    /// Returns the pod's priority. Default: 0.
    pub fn priority(&self) -> i32 {
        self.pod.spec.priority.unwrap_or(0)
    }
}

/// Returns the claims that the pod's volumes name, as `namespace/name`.
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

/// Returns the CPU and memory that a container without requests counts as.
pub(crate) fn default_requests() -> [(&'static str, Quantity); 2] {
    [
        ("cpu", Quantity::from_millis(DEFAULT_CPU_MILLIS)),
        ("memory", Quantity::from_bytes(DEFAULT_MEMORY)),
    ]
}

/// Returns the requested CPU and memory with defaults. With pod-level requests, a default applies only if neither the
/// pod nor a container sets the resource.
fn nonzero_requests(pod: &Pod, requests: &Resources) -> NonzeroRequests {
    let every_container_requests = |resource: &str| {
        let mut containers = pod.spec.containers.iter().chain(&*pod.spec.init_containers);
        !resource::depends_on_status(pod)
            && containers.all(|container| container.resources.requests.contains(resource))
    };
    let has_pod_level = resource::has_pod_level_requests(pod);
    let pod_requests = if has_pod_level { resource::pod_requests(pod, &[]) } else { Vec::new() };
    let needs_no_default = |resource: &str| match has_pod_level {
        true => pod_requests.iter().any(|(requested, _)| *requested == resource),
        false => every_container_requests(resource),
    };
    let defaults: Vec<_> = default_requests()
        .into_iter()
        .filter(|(resource, _)| !needs_no_default(resource))
        .collect();
    if defaults.is_empty() {
        return NonzeroRequests { cpu: requests.cpu, memory: requests.memory };
    }
    let requests = Resources::from_amounts(&resource::pod_requests(pod, &defaults));
    NonzeroRequests { cpu: requests.cpu, memory: requests.memory }
}

/// Returns the host ports of containers and sidecars.
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
