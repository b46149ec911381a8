//! NodeResourcesFit: no node is given more than it has; among those with room, the emptiest, the fullest, or those as full as an
//! administrator wants are best.
//!
//! Upstream: `plugins/noderesources/fit.go`.

mod hint;
mod score;
#[cfg(test)]
mod tests;

use smallvec::SmallVec;
use std::sync::Arc;

pub use super::amounts::ResourceWeight;
use super::{amounts::Counted, resource_classes::ResourceClasses, shape::Shape};
use crate::{
    framework::{
        ActionType, Change, ClusterEvent, Code, CycleState, EventResource, Filter, Handle, Plugin,
        PreScore, QueueingHint, Reason, Score, Status, StatusResult,
    },
    nodes::NodeRef,
    pod::PodInfo,
    resources::is_extended,
};

/// Counts CPU, memory, local storage, extended resources and pods.
#[derive(Debug, Clone)]
pub struct NodeResourcesFit {
    ignored_resources: Vec<Box<str>>,
    ignored_groups: Vec<Box<str>>,
    strategy: Strategy,
    counted: Counted,
    /// Extended resources that are devices, which [`DynamicResources`](super::DynamicResources) gives where a node does not
    /// offer them itself; `None` where that cannot be.
    devices: Option<Arc<ResourceClasses>>,
}

/// Arguments of [`NodeResourcesFit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Extended resources that are not looked at.
    pub ignored_resources: Vec<Box<str>>,
    /// The same, by what stands before the slash.
    pub ignored_resource_groups: Vec<Box<str>>,
    /// Which nodes are best.
    pub strategy: Strategy,
    /// What that is judged by.
    pub resources: Vec<ResourceWeight>,
    /// Whether extended resources can be devices.
    pub extended_resources: bool,
}

/// Which nodes are best.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    /// The emptiest.
    LeastAllocated,
    /// The fullest.
    MostAllocated,
    /// By how full they would be.
    RequestedToCapacityRatio(Shape),
}

impl Default for Args {
    fn default() -> Self {
        Self {
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
            strategy: Strategy::LeastAllocated,
            resources: ResourceWeight::standard(),
            extended_resources: true,
        }
    }
}

impl Default for NodeResourcesFit {
    fn default() -> Self {
        Self::new(Args::default())
    }
}

impl NodeResourcesFit {
    /// With arguments.
    pub fn new(args: Args) -> Self {
        let counted = Counted::new(&args.resources);
        let devices = args.extended_resources.then(Arc::default);
        let Args { ignored_resources, ignored_resource_groups, strategy, .. } = args;
        let ignored_groups = ignored_resource_groups;
        Self { ignored_resources, ignored_groups, strategy, counted, devices }
    }

    /// Whether a resource is given as devices by nodes that do not offer it.
    fn is_devices(&self, name: &str) -> bool {
        self.devices.as_ref().is_some_and(|devices| devices.class_of(name).is_some())
    }

    /// Whether a resource is not looked at.
    fn ignores(&self, name: &str) -> bool {
        let group = name.split('/').next().unwrap_or_default();
        is_extended(name)
            && (self.ignored_resources.iter().any(|ignored| **ignored == *name)
                || self.ignored_groups.iter().any(|ignored| **ignored == *group))
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn connect(&self, handle: &Handle) {
        if let Some(devices) = &self.devices {
            devices.follow(handle);
        }
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let mut events = vec![
            ClusterEvent::new(
                EventResource::AssignedPod,
                &[ActionType::Delete, ActionType::UpdatePodScaleDown],
            ),
            ClusterEvent::new(EventResource::TargetPod, &[ActionType::UpdatePodScaleDown]),
            ClusterEvent::new(
                EventResource::Node,
                &[ActionType::Add, ActionType::UpdateNodeAllocatable],
            ),
        ];
        if self.devices.is_some() {
            events.push(ClusterEvent::new(
                EventResource::DeviceClass,
                &[ActionType::Add, ActionType::Update],
            ));
        }
        events
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        hint::hint(pod, change, &|name| self.is_devices(name))
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_pre_score(&self) -> Option<&dyn PreScore> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl Filter for NodeResourcesFit {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let asks = &pod.asks.requests;
        let mut short = Short::default();
        if node.pods().len() + 1 > node.pods_allowed() {
            short.reasons.push(Reason::Borrowed("Too many pods"));
        }
        short.check("Insufficient cpu", asks.cpu, node.requested_cpu(), node.cpu());
        short.check("Insufficient memory", asks.memory, node.requested_memory(), node.memory());
        let storage = (node.requested_ephemeral_storage(), node.ephemeral_storage());
        short.check("Insufficient ephemeral-storage", asks.ephemeral_storage, storage.0, storage.1);
        for (name, amount) in &asks.scalars {
            let (used, most) = (node.requested_scalar(name), node.scalar(name));
            let is_short = *amount > 0 && *amount > most - used && !self.ignores(name);
            if is_short && !(most == 0 && self.is_devices(name)) {
                short.unresolvable |= *amount > most;
                short.reasons.push(Reason::Owned(format!("Insufficient {name}")));
            }
        }
        short.into_status()
    }
}

/// What a node is short of.
#[derive(Default)]
struct Short {
    reasons: SmallVec<[Reason; 1]>,
    /// Even an empty node would be.
    unresolvable: bool,
}

impl Short {
    fn check(&mut self, reason: &'static str, asked: i64, used: i64, most: i64) {
        if asked > 0 && asked > most - used {
            self.unresolvable |= asked > most;
            self.reasons.push(Reason::Borrowed(reason));
        }
    }

    fn into_status(self) -> StatusResult {
        if self.reasons.is_empty() {
            return Ok(());
        }
        let code = if self.unresolvable {
            Code::UnschedulableAndUnresolvable
        } else {
            Code::Unschedulable
        };
        Err(Status { reasons: self.reasons, code })
    }
}
