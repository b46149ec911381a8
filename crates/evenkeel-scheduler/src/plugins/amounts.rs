//! What scores count: some resources of a node, how much of each is allocated, and what a pod would add.
//!
//! Upstream: `plugins/noderesources/resource_allocation.go`.

use evenkeel_api::{quantity::Quantity, requests};
use smallvec::SmallVec;
use std::sync::Arc;

use crate::{
    nodes::NodeRef,
    pod::PodInfo,
    resources::{Resources, is_scalar},
};

/// A resource in arguments, and what it weighs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceWeight {
    /// Its name.
    pub name: Box<str>,
    /// 1 to 100.
    pub weight: i64,
}

impl ResourceWeight {
    /// CPU and memory, alike.
    pub fn standard() -> Vec<Self> {
        ["cpu", "memory"].map(|name| Self { name: name.into(), weight: 1 }).into()
    }
}

/// The resources that a score counts.
#[derive(Debug, Clone)]
pub(super) struct Counted(Vec<(Kind, i64)>);

#[derive(Debug, Clone)]
enum Kind {
    Cpu,
    Memory,
    EphemeralStorage,
    Scalar(Arc<str>),
    /// Nodes have none of it that the scheduler knows of.
    Other,
}

/// How much a pod asks of each counted resource.
pub(super) type Asked = SmallVec<[i64; 2]>;

/// One resource of a node that has some of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amount {
    pub(super) weight: i64,
    /// What the pods there ask for.
    pub(super) before: i64,
    /// The same with the new pod.
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
        Self(resources.iter().map(|one| (kind(&one.name), one.weight)).collect())
    }

    /// What the pod asks for.
    pub(super) fn asked(&self, pod: &PodInfo) -> Asked {
        self.of(&pod.asks.requests)
    }

    /// What the pod's containers ask for, with a floor for those that do not say. Upstream leaves out here what is set for the
    /// pod as a whole.
    pub(super) fn asked_with_floor(&self, pod: &PodInfo) -> Asked {
        if requests::sets_pod_level(&pod.pod) {
            let floor: [(&'static str, Quantity); 2] = crate::pod::floor();
            return self.of(&Resources::from_amounts(&requests::of_specs(&pod.pod, &floor)));
        }
        let (cpu, memory) = pod.asks.scored;
        let asks = &pod.asks.requests;
        self.each(|kind| match kind {
            Kind::Cpu => cpu,
            Kind::Memory => memory,
            other => of_kind(asks, other),
        })
    }

    fn of(&self, asks: &Resources) -> Asked {
        self.each(|kind| of_kind(asks, kind))
    }

    fn each(&self, amount: impl Fn(&Kind) -> i64) -> Asked {
        self.0.iter().map(|(kind, _)| amount(kind)).collect()
    }

    /// How many resources are counted.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The `n`th resource, if the node has some of it, with a floor under what its pods ask for or without. Extended resources
    /// count for pods that ask for them.
    #[inline]
    pub(super) fn on(
        &self,
        n: usize,
        node: NodeRef<'_>,
        asked: &[i64],
        floored: bool,
    ) -> Option<Amount> {
        let ((kind, weight), asked) = (&self.0[n], asked[n]);
        let (allocatable, before) = match kind {
            Kind::Cpu if floored => (node.cpu(), node.scored().0),
            Kind::Memory if floored => (node.memory(), node.scored().1),
            Kind::Cpu => (node.cpu(), node.requested_cpu()),
            Kind::Memory => (node.memory(), node.requested_memory()),
            Kind::EphemeralStorage => {
                (node.ephemeral_storage(), node.requested_ephemeral_storage())
            }
            Kind::Scalar(name) if asked != 0 => (node.scalar(name), node.requested_scalar(name)),
            Kind::Scalar(_) | Kind::Other => (0, 0),
        };
        let amount = Amount { weight: *weight, before, after: before + asked, allocatable };
        (allocatable != 0).then_some(amount)
    }
}

fn of_kind(asks: &Resources, kind: &Kind) -> i64 {
    match kind {
        Kind::Cpu => asks.cpu,
        Kind::Memory => asks.memory,
        Kind::EphemeralStorage => asks.ephemeral_storage,
        Kind::Scalar(name) => asks.scalar(name),
        Kind::Other => 0,
    }
}
