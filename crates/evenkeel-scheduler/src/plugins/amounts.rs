//! Resource amounts for scores: allocatable and requested amounts of the configured resources on a node.
//!
//! Upstream: `plugins/noderesources/resource_allocation.go`.

use evenkeel_api::quantity::Quantity;
use evenkeel_component_helpers::resource;
use smallvec::SmallVec;
use std::sync::Arc;

use crate::{
    nodes::NodeRef,
    pod::PodInfo,
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
pub(super) struct Counted(Vec<(Kind, i64)>);

#[derive(Debug, Clone)]
enum Kind {
    Cpu,
    Memory,
    EphemeralStorage,
    Scalar(Arc<str>),
    /// A resource that the scheduler does not read from a node's allocatable.
    Other,
}

/// The pod's requests for the counted resources.
pub(super) type Requests = SmallVec<[i64; 2]>;

/// Amounts of one resource on a node where its allocatable amount is not 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amount {
    pub(super) weight: i64,
    /// Sum of the requests of the pods on the node.
    pub(super) before: i64,
    /// Sum of the requests including the new pod.
    pub(super) after: i64,
    pub(super) allocatable: i64,
}

impl Counted {
    pub(super) fn new(resources: &[ResourceWeight]) -> Self {
        let kind = |name: &str| match name {
            "cpu" => Kind::Cpu,
            "memory" => Kind::Memory,
            "ephemeral-storage" => Kind::EphemeralStorage,
            name if is_scalar(name) => Kind::Scalar(name.into()),
            _ => Kind::Other,
        };
        Self(resources.iter().map(|resource| (kind(&resource.name), resource.weight)).collect())
    }

    /// Returns the pod's requests.
    pub(super) fn requests(&self, pod: &PodInfo) -> Requests {
        self.amounts_of(&pod.asks.requests)
    }

    /// Returns the requests of the pod's containers, with defaults. As upstream, it ignores pod-level requests here.
    pub(super) fn requests_with_defaults(&self, pod: &PodInfo) -> Requests {
        if resource::has_pod_level_requests(&pod.pod) {
            let floor: [(&'static str, Quantity); 2] = crate::pod::default_requests();
            return self
                .amounts_of(&Resources::from_amounts(&resource::spec_requests(&pod.pod, &floor)));
        }
        let (cpu, memory) = pod.asks.scored;
        let pod_requests = &pod.asks.requests;
        self.each(|kind| match kind {
            Kind::Cpu => cpu,
            Kind::Memory => memory,
            other => of_kind(pod_requests, other),
        })
    }

    fn amounts_of(&self, pod_requests: &Resources) -> Requests {
        self.each(|kind| of_kind(pod_requests, kind))
    }

    fn each(&self, amount: impl Fn(&Kind) -> i64) -> Requests {
        self.0.iter().map(|(kind, _)| amount(kind)).collect()
    }

    /// Returns the number of counted resources.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the amounts of the resource with this index, or `None` if the node has none of it.
    /// `with_defaults` includes default requests. Extended resources only count for pods that request them.
    #[inline]
    pub(super) fn on(
        &self,
        index: usize,
        node: NodeRef<'_>,
        requests: &[i64],
        with_defaults: bool,
    ) -> Option<Amount> {
        let ((kind, weight), requested) = (&self.0[index], requests[index]);
        let (allocatable, before) = match kind {
            Kind::Cpu if with_defaults => (node.cpu(), node.scored().0),
            Kind::Memory if with_defaults => (node.memory(), node.scored().1),
            Kind::Cpu => (node.cpu(), node.requested_cpu()),
            Kind::Memory => (node.memory(), node.requested_memory()),
            Kind::EphemeralStorage => {
                (node.ephemeral_storage(), node.requested_ephemeral_storage())
            }
            Kind::Scalar(name) if requested != 0 => {
                (node.scalar(name), node.requested_scalar(name))
            }
            Kind::Scalar(_) | Kind::Other => (0, 0),
        };
        let amount = Amount { weight: *weight, before, after: before + requested, allocatable };
        (allocatable != 0).then_some(amount)
    }
}

fn of_kind(pod_requests: &Resources, kind: &Kind) -> i64 {
    match kind {
        Kind::Cpu => pod_requests.cpu,
        Kind::Memory => pod_requests.memory,
        Kind::EphemeralStorage => pod_requests.ephemeral_storage,
        Kind::Scalar(name) => pod_requests.scalar(name),
        Kind::Other => 0,
    }
}
