//! NodeResourcesFit: rejects nodes without enough resources, and scores the others by a scoring strategy.
//!
//! Upstream: `plugins/noderesources/fit.go`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | requests of CPU, memory, ephemeral storage, extended resources; number of pods | `check_resource`, `InsufficientResources` |
//! | `ignoredResources`, `ignoredResourceGroups` | `ignores` |
//! | `scoringStrategy`: `LeastAllocated`, `MostAllocated` | `Strategy`, `score::weighted_mean` |
//! | `scoringStrategy`: `RequestedToCapacityRatio` | `Strategy`, `score::weighted_mean_by_shape` |
//! | extended resources backed by devices (KEP-5004) | `devices_provide` |

mod hint;
mod score;
#[cfg(test)]
mod tests;

use smallvec::SmallVec;
use std::sync::Arc;

pub use super::amounts::ResourceWeight;
use super::{amounts::ScoredResources, resource_classes::ResourceClasses, shape::Shape};
use crate::{
    framework::{
        ActionType, Change, ClusterEvent, Code, CycleState, EventResource, Filter, Handle, Plugin,
        PreScore, QueueingHint, Reason, Score, Status, StatusResult,
    },
    nodes::NodeRef,
    pod::PodInfo,
    resources::is_extended,
};

/// The NodeResourcesFit plugin.
#[derive(Debug, Clone)]
pub struct NodeResourcesFit {
    ignored_resources: Vec<Box<str>>,
    ignored_groups: Vec<Box<str>>,
    strategy: Strategy,
    scored_resources: ScoredResources,
    /// DeviceClasses that provide extended resources through [`DynamicResources`](super::DynamicResources). `None` if
    /// the feature gate `DRAExtendedResource` is off.
    device_classes: Option<Arc<ResourceClasses>>,
}

/// Arguments of [`NodeResourcesFit`].
///
/// Upstream: `NodeResourcesFitArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Extended resources that the filter ignores.
    pub ignored_resources: Vec<Box<str>>,
    /// Groups of extended resources that the filter ignores. A group is the part of the name before the slash.
    pub ignored_resource_groups: Vec<Box<str>>,
    /// Scoring strategy. Default: `LeastAllocated`.
    pub strategy: Strategy,
    /// Resources that the score considers, with their weights. Default: CPU and memory, weight 1 each.
    pub resources: Vec<ResourceWeight>,
    /// Feature gate `DRAExtendedResource`. Default: true.
    pub extended_resources: bool,
}

/// Scoring strategy of the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    /// `LeastAllocated`: prefers nodes with a large unrequested fraction of their resources.
    LeastAllocated,
    /// `MostAllocated`: prefers nodes with a small unrequested fraction of their resources.
    MostAllocated,
    /// `RequestedToCapacityRatio`: maps utilization to a score by this shape.
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
    /// Returns the plugin with these arguments.
    pub fn new(args: Args) -> Self {
        Self {
            scored_resources: ScoredResources::new(&args.resources),
            device_classes: args.extended_resources.then(Arc::default),
            ignored_resources: args.ignored_resources,
            ignored_groups: args.ignored_resource_groups,
            strategy: args.strategy,
        }
    }

    /// Returns whether a DeviceClass provides the extended resource, so that nodes need not advertise it.
    fn devices_provide(&self, name: &str) -> bool {
        self.device_classes.as_ref().is_some_and(|classes| classes.class_of(name).is_some())
    }

    /// Returns whether the filter ignores a resource.
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
        if let Some(device_classes) = &self.device_classes {
            device_classes.subscribe(handle);
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
        if self.device_classes.is_some() {
            events.push(ClusterEvent::new(
                EventResource::DeviceClass,
                &[ActionType::Add, ActionType::Update],
            ));
        }
        events
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        hint::hint(pod, change, &|name| self.devices_provide(name))
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
        let requests = &pod.requirements.requests;
        let mut insufficient = InsufficientResources::default();
        // Removing pods can help, so this reason leaves `unresolvable` false.
        if node.pods().len() + 1 > node.pods_allowed() {
            insufficient.reasons.push(Reason::Borrowed("Too many pods"));
        }
        insufficient.check_resource(
            "Insufficient cpu",
            requests.cpu,
            node.requested_cpu(),
            node.allocatable_cpu(),
        );
        insufficient.check_resource(
            "Insufficient memory",
            requests.memory,
            node.requested_memory(),
            node.allocatable_memory(),
        );
        insufficient.check_resource(
            "Insufficient ephemeral-storage",
            requests.ephemeral_storage,
            node.requested_ephemeral_storage(),
            node.allocatable_ephemeral_storage(),
        );
        for (name, amount) in &requests.scalars {
            let used = node.requested_scalar(name);
            let allocatable = node.allocatable_scalar(name);
            let is_insufficient =
                *amount > 0 && *amount > allocatable - used && !self.ignores(name);
            // DynamicResources checks a resource that the node does not advertise and devices provide.
            let is_left_to_devices = || allocatable == 0 && self.devices_provide(name);
            if is_insufficient && !is_left_to_devices() {
                insufficient.unresolvable |= *amount > allocatable;
                insufficient.reasons.push(Reason::Owned(format!("Insufficient {name}")));
            }
        }
        insufficient.into_status()
    }
}

/// Reasons why a node has too few resources.
///
/// Upstream: `InsufficientResource`.
#[derive(Default)]
struct InsufficientResources {
    reasons: SmallVec<[Reason; 1]>,
    /// Whether the node would have too few resources even without its pods.
    unresolvable: bool,
}

impl InsufficientResources {
    /// Adds the reason if the node, with `used` of its `allocatable` amount in use, cannot provide the requested
    /// amount.
    fn check_resource(
        &mut self,
        reason: &'static str,
        requested: i64,
        used: i64,
        allocatable: i64,
    ) {
        if requested > 0 && requested > allocatable - used {
            self.unresolvable |= requested > allocatable;
            self.reasons.push(Reason::Borrowed(reason));
        }
    }

    /// Returns the rejection of the node, or `Ok` if there is no reason.
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
