//! Resource amounts for scores: allocatable and requested amounts of the configured resources on a node.
//!
//! Upstream: `plugins/noderesources/resource_allocation.go`.

use evenkeel_api::quantity::Quantity;
use evenkeel_component_helpers::resource;
use smallvec::SmallVec;
use std::sync::Arc;

use crate::{
    nodes::NodeRef,
    pod::{NonzeroRequests, PodInfo},
    resources::{Resources, is_scalar},
};

/// A resource in a plugin's arguments, with its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceWeight {
    /// Name of the resource.
    pub name: Box<str>,
    /// Weight, from 1 to 100.
    pub weight: i64,
}

impl ResourceWeight {
    /// Returns CPU and memory with weight 1 each.
    pub fn standard() -> Vec<Self> {
        ["cpu", "memory"].map(|name| Self { name: name.into(), weight: 1 }).into()
    }
}

/// Resources that a score takes into account, with their weights.
#[derive(Debug, Clone)]
pub(super) struct ScoredResources(Vec<(ResourceKind, i64)>);

/// Resource whose amounts a plugin scores.
#[derive(Debug, Clone)]
enum ResourceKind {
    Cpu,
    Memory,
    EphemeralStorage,
    Scalar(Arc<str>),
    /// A resource that the scheduler does not read from a node's allocatable.
    Other,
}

/// The pod's request for each of the [`ScoredResources`].
pub(super) type Requests = SmallVec<[i64; 2]>;

/// Amounts of one resource on a node where its allocatable amount is not 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amount {
    pub(super) weight: i64,
    /// Sum of the requests of the pods on the node.
    pub(super) requested: i64,
    /// Sum of the requests including the new pod.
    pub(super) requested_with_pod: i64,
    pub(super) allocatable: i64,
}

/// Requests that count for containers that state none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbsentRequests {
    /// No requests: they count as zero.
    Zero,
    /// The default requests, as in [`NonzeroRequests`].
    Default,
}

impl ScoredResources {
    pub(super) fn new(resources: &[ResourceWeight]) -> Self {
        let kind = |name: &str| match name {
            "cpu" => ResourceKind::Cpu,
            "memory" => ResourceKind::Memory,
            "ephemeral-storage" => ResourceKind::EphemeralStorage,
            name if is_scalar(name) => ResourceKind::Scalar(name.into()),
            _ => ResourceKind::Other,
        };
        Self(resources.iter().map(|resource| (kind(&resource.name), resource.weight)).collect())
    }

    /// Returns the pod's requests.
    pub(super) fn requests(&self, pod: &PodInfo) -> Requests {
        self.amounts_of(&pod.requirements.requests)
    }

    /// Returns the requests of the pod's containers, with defaults. Like upstream, it ignores pod-level requests.
    pub(super) fn requests_with_defaults(&self, pod: &PodInfo) -> Requests {
        if resource::has_pod_level_requests(&pod.pod) {
            let defaults: [(&'static str, Quantity); 2] = crate::pod::default_requests();
            let requests = resource::spec_requests(&pod.pod, &defaults);
            return self.amounts_of(&Resources::from_amounts(&requests));
        }
        let NonzeroRequests { cpu, memory } = pod.requirements.nonzero_requests;
        let pod_requests = &pod.requirements.requests;
        self.map(|kind| match kind {
            ResourceKind::Cpu => cpu,
            ResourceKind::Memory => memory,
            kind => amount_of(pod_requests, kind),
        })
    }

    /// Returns the amount of each scored resource.
    fn amounts_of(&self, pod_requests: &Resources) -> Requests {
        self.map(|kind| amount_of(pod_requests, kind))
    }

    /// Returns one value for each scored resource.
    fn map(&self, amount: impl Fn(&ResourceKind) -> i64) -> Requests {
        self.0.iter().map(|(kind, _)| amount(kind)).collect()
    }

    /// Returns the number of resources.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the amounts of the resource with this index, or `None` if the node has none of it. Extended resources
    /// only count for pods that request them.
    #[inline]
    pub(super) fn amount_on(
        &self,
        index: usize,
        node: NodeRef<'_>,
        requests: &[i64],
        absent_requests: AbsentRequests,
    ) -> Option<Amount> {
        let ((kind, weight), pod_request) = (&self.0[index], requests[index]);
        let with_defaults = absent_requests == AbsentRequests::Default;
        let (allocatable, requested) = match kind {
            ResourceKind::Cpu if with_defaults => {
                (node.allocatable_cpu(), node.nonzero_requested().cpu)
            }
            ResourceKind::Memory if with_defaults => {
                (node.allocatable_memory(), node.nonzero_requested().memory)
            }
            ResourceKind::Cpu => (node.allocatable_cpu(), node.requested_cpu()),
            ResourceKind::Memory => (node.allocatable_memory(), node.requested_memory()),
            ResourceKind::EphemeralStorage => {
                (node.allocatable_ephemeral_storage(), node.requested_ephemeral_storage())
            }
            ResourceKind::Scalar(name) if pod_request != 0 => {
                (node.allocatable_scalar(name), node.requested_scalar(name))
            }
            ResourceKind::Scalar(_) | ResourceKind::Other => (0, 0),
        };
        let requested_with_pod = requested + pod_request;
        let amount = Amount { weight: *weight, requested, requested_with_pod, allocatable };
        (allocatable != 0).then_some(amount)
    }
}

/// Returns the amount of this resource.
fn amount_of(pod_requests: &Resources, kind: &ResourceKind) -> i64 {
    match kind {
        ResourceKind::Cpu => pod_requests.cpu,
        ResourceKind::Memory => pod_requests.memory,
        ResourceKind::EphemeralStorage => pod_requests.ephemeral_storage,
        ResourceKind::Scalar(name) => pod_requests.scalar(name),
        ResourceKind::Other => 0,
    }
}
