//! Cluster events for which plugins register (`EventsToRegister`), under upstream's names.

/// The kind of object that changed.
///
/// Upstream: `EventResource`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EventResource {
    /// A pod that is bound to a node or assumed there.
    AssignedPod,
    /// An unscheduled pod other than the rejected one.
    UnscheduledPod,
    /// The rejected pod itself.
    TargetPod,
    /// Nodes: their allocatable resources, labels, taints, conditions, annotations and declared features.
    Node,
    /// PersistentVolumes, to which claims may bind.
    PersistentVolume,
    /// PersistentVolumeClaims, which pods refer to.
    PersistentVolumeClaim,
    /// CSINodes: drivers on a node, and their volume limits.
    CsiNode,
    /// CSIDrivers: storage capacity tracking, and whether nodes need the driver.
    CsiDriver,
    /// VolumeAttachments, which count against a node's volume limits.
    VolumeAttachment,
    /// CSIStorageCapacities: free capacity by topology and class.
    CsiStorageCapacity,
    /// StorageClasses: binding mode and allowed topologies.
    StorageClass,
    /// ResourceClaims, which pods refer to: allocations and reservations.
    ResourceClaim,
    /// ResourceSlices, and DeviceTaintRules as updates of them.
    ResourceSlice,
    /// DeviceClasses: selectors and extended resource names.
    DeviceClass,
    /// Any kind that an out-of-tree plugin watches.
    Other,
}

impl EventResource {
    /// Every resource, in the order of the discriminants.
    pub const ALL: [Self; 15] = [
        Self::AssignedPod,
        Self::UnscheduledPod,
        Self::TargetPod,
        Self::Node,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::CsiNode,
        Self::CsiDriver,
        Self::VolumeAttachment,
        Self::CsiStorageCapacity,
        Self::StorageClass,
        Self::ResourceClaim,
        Self::ResourceSlice,
        Self::DeviceClass,
        Self::Other,
    ];

    /// Returns upstream's name, used in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AssignedPod => "AssignedPod",
            Self::UnscheduledPod => "UnscheduledPod",
            Self::TargetPod => "TargetPod",
            Self::Node => "Node",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::CsiNode => "storage.k8s.io/CSINode",
            Self::CsiDriver => "storage.k8s.io/CSIDriver",
            Self::VolumeAttachment => "storage.k8s.io/VolumeAttachment",
            Self::CsiStorageCapacity => "storage.k8s.io/CSIStorageCapacity",
            Self::StorageClass => "storage.k8s.io/StorageClass",
            Self::ResourceClaim => "resource.k8s.io/ResourceClaim",
            Self::ResourceSlice => "resource.k8s.io/ResourceSlice",
            Self::DeviceClass => "resource.k8s.io/DeviceClass",
            Self::Other => "Other",
        }
    }
}

/// The kind of change of an object.
///
/// Upstream: `ActionType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ActionType {
    /// The object was added.
    Add,
    /// The object was deleted.
    Delete,
    /// `status.allocatable` of a node changed.
    UpdateNodeAllocatable,
    /// Labels of a node changed.
    UpdateNodeLabel,
    /// Taints of a node changed, or it became schedulable again.
    UpdateNodeTaint,
    /// The status of a node's conditions changed.
    UpdateNodeCondition,
    /// Annotations of a node changed.
    UpdateNodeAnnotation,
    /// `status.declaredFeatures` of a node changed.
    UpdateNodeDeclaredFeature,
    /// Labels of a pod changed.
    UpdatePodLabel,
    /// Requests of a pod decreased for some resource.
    UpdatePodScaleDown,
    /// Requests of a pod increased for some resource.
    UpdatePodScaleUp,
    /// Tolerations of a pod changed.
    UpdatePodToleration,
    /// The last scheduling gate of a pod was removed.
    UpdatePodSchedulingGatesEliminated,
    /// `status.resourceClaimStatuses` of a pod changed.
    UpdatePodGeneratedResourceClaim,
    /// Any other update. In a registration it means every update.
    Update,
}

impl ActionType {
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Every action type, in the order of the discriminants.
    pub const ALL: [Self; 15] = [
        Self::Add,
        Self::Delete,
        Self::UpdateNodeAllocatable,
        Self::UpdateNodeLabel,
        Self::UpdateNodeTaint,
        Self::UpdateNodeCondition,
        Self::UpdateNodeAnnotation,
        Self::UpdateNodeDeclaredFeature,
        Self::UpdatePodLabel,
        Self::UpdatePodScaleDown,
        Self::UpdatePodScaleUp,
        Self::UpdatePodToleration,
        Self::UpdatePodSchedulingGatesEliminated,
        Self::UpdatePodGeneratedResourceClaim,
        Self::Update,
    ];

    /// Returns upstream's name, used in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "Add",
            Self::Delete => "Delete",
            Self::UpdateNodeAllocatable => "UpdateNodeAllocatable",
            Self::UpdateNodeLabel => "UpdateNodeLabel",
            Self::UpdateNodeTaint => "UpdateNodeTaint",
            Self::UpdateNodeCondition => "UpdateNodeCondition",
            Self::UpdateNodeAnnotation => "UpdateNodeAnnotation",
            Self::UpdateNodeDeclaredFeature => "UpdateNodeDeclaredFeature",
            Self::UpdatePodLabel => "UpdatePodLabel",
            Self::UpdatePodScaleDown => "UpdatePodScaleDown",
            Self::UpdatePodScaleUp => "UpdatePodScaleUp",
            Self::UpdatePodToleration => "UpdatePodToleration",
            Self::UpdatePodSchedulingGatesEliminated => "UpdatePodSchedulingGatesEliminated",
            Self::UpdatePodGeneratedResourceClaim => "UpdatePodGeneratedResourceClaim",
            Self::Update => "Update",
        }
    }
}

/// A resource with the action types that a plugin registers for.
///
/// Upstream: `ClusterEvent`.
///
/// ```
/// use evenkeel_scheduler::framework::{ActionType, ClusterEvent, EventResource};
/// let nodes = ClusterEvent::new(EventResource::Node, &[ActionType::Add, ActionType::UpdateNodeTaint]);
/// assert!(nodes.covers(EventResource::Node, ActionType::Add));
/// assert!(!nodes.covers(EventResource::Node, ActionType::UpdateNodeLabel));
/// assert!(ClusterEvent::new(EventResource::Node, &[ActionType::Update]).covers(EventResource::Node, ActionType::UpdateNodeLabel));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterEvent {
    resource: EventResource,
    actions: u32,
}

impl ClusterEvent {
    /// Returns a registration for these action types of a resource.
    pub fn new(resource: EventResource, actions: &[ActionType]) -> Self {
        let bits = actions.iter().fold(0, |bits, action| {
            bits | match action {
                ActionType::Update => !(bit(ActionType::Add) | bit(ActionType::Delete)),
                action => bit(*action),
            }
        });
        Self { resource, actions: bits }
    }

    /// Returns registrations for every event, which upstream uses for plugins without `EventsToRegister`.
    pub fn everything() -> Vec<Self> {
        EventResource::ALL.map(|resource| Self { resource, actions: u32::MAX }).to_vec()
    }

    /// Returns whether the registration includes a change of this resource with this action type.
    pub fn covers(&self, resource: EventResource, action: ActionType) -> bool {
        self.resource == resource && self.actions & bit(action) != 0
    }
}

/// Returns the bit of an action type in a set of them.
fn bit(action: ActionType) -> u32 {
    1 << action as u32
}
