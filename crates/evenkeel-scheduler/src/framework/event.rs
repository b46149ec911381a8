//! Which changes a plugin wants to be asked about, under upstream's names (`EventsToRegister`).

/// Of what something changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Resource {
    /// A pod that has a node, or is assumed to have.
    AssignedPod,
    /// Another pod that waits.
    UnscheduledPod,
    /// The waiting pod itself.
    TargetPod,
    /// A node.
    Node,
    /// A volume.
    PersistentVolume,
    /// A claim to a volume.
    PersistentVolumeClaim,
    /// The volume drivers of a node.
    CsiNode,
    /// A volume driver.
    CsiDriver,
    /// A volume's being attached.
    VolumeAttachment,
    /// How much room a volume driver has somewhere.
    CsiStorageCapacity,
    /// A class of volumes.
    StorageClass,
    /// A claim to devices.
    ResourceClaim,
    /// Devices that a driver offers.
    ResourceSlice,
    /// A class of devices.
    DeviceClass,
    /// A kind that a plugin of one's own watches.
    Other,
}

impl Resource {
    /// All of them.
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

    /// Upstream's name.
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

/// How it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Action {
    /// It is new.
    Add,
    /// It is gone.
    Delete,
    /// A node's `status.allocatable`.
    UpdateNodeAllocatable,
    /// A node's labels.
    UpdateNodeLabel,
    /// A node's taints, or that it takes pods again.
    UpdateNodeTaint,
    /// The status of a node's conditions.
    UpdateNodeCondition,
    /// A node's annotations.
    UpdateNodeAnnotation,
    /// A node's `status.declaredFeatures`.
    UpdateNodeDeclaredFeature,
    /// A pod's labels.
    UpdatePodLabel,
    /// A pod asks for less of something.
    UpdatePodScaleDown,
    /// A pod asks for more of something.
    UpdatePodScaleUp,
    /// A pod has another toleration.
    UpdatePodToleration,
    /// The last of a pod's gates is gone.
    UpdatePodSchedulingGatesEliminated,
    /// The claims that were made for a pod.
    UpdatePodGeneratedResourceClaim,
    /// Anything else. Asked for, it stands for every update.
    Update,
}

impl Action {
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// All of them.
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

    /// Upstream's name.
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

/// Changes of one resource that a plugin wants to be asked about.
///
/// ```
/// use evenkeel_scheduler::framework::{Action, Interest, Resource};
/// let nodes = Interest::new(Resource::Node, &[Action::Add, Action::UpdateNodeTaint]);
/// assert!(nodes.covers(Resource::Node, Action::Add));
/// assert!(!nodes.covers(Resource::Node, Action::UpdateNodeLabel));
/// assert!(Interest::new(Resource::Node, &[Action::Update]).covers(Resource::Node, Action::UpdateNodeLabel));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    resource: Resource,
    actions: u32,
}

impl Interest {
    /// Interest in some changes of a resource.
    pub fn new(resource: Resource, actions: &[Action]) -> Self {
        let bits = actions.iter().fold(0, |bits, action| {
            bits | match action {
                Action::Update => !(bit(Action::Add) | bit(Action::Delete)),
                action => bit(*action),
            }
        });
        Self { resource, actions: bits }
    }

    /// Interest in everything, as a plugin has that does not say.
    pub fn everything() -> Vec<Self> {
        Resource::ALL.map(|resource| Self { resource, actions: u32::MAX }).to_vec()
    }

    /// Whether the change is one of these.
    pub fn covers(&self, resource: Resource, action: Action) -> bool {
        self.resource == resource && self.actions & bit(action) != 0
    }
}

fn bit(action: Action) -> u32 {
    1 << action as u32
}
