//! Cluster changes that may make an unschedulable pod schedulable.

use std::{any::Any, sync::Arc};

use super::{ActionType, EventResource};
use crate::pod::PodInfo;
use evenkeel_api::views::{
    CsiDriver, CsiNode, CsiStorageCapacity, DeviceClass, DeviceTaintRule, Node, PersistentVolume,
    PersistentVolumeClaim, ResourceClaim, ResourceSlice, StorageClass, VolumeAttachment,
};

/// A change of an object. It owns the object, so that the queue can replay the change for pods in flight.
#[derive(Debug, Clone)]
pub enum Change {
    /// A node was added, updated or deleted.
    Node(Delta<Arc<Node>>),
    /// A pod was assigned to a node, was updated there, or left it. A pod leaves its node when it finishes, is deleted,
    /// or is not bound after all.
    AssignedPod(Delta<PodInfo>),
    /// The unschedulable pod itself was updated. Queueing hints receive the new version.
    TargetPodUpdate {
        /// The pod before the update.
        old: PodInfo,
        /// The pod after the update.
        new: PodInfo,
    },
    /// An object of another kind was added, updated or deleted.
    Object(ObjectChange),
}

/// A change of an object that is neither pod nor node. The scheduler reports only kinds that a plugin watches
/// ([`Handle::watch`](super::Handle::watch)).
#[derive(Debug, Clone)]
pub enum ObjectChange {
    /// A PersistentVolumeClaim changed.
    PersistentVolumeClaim(Delta<Arc<PersistentVolumeClaim>>),
    /// A PersistentVolume changed.
    PersistentVolume(Delta<Arc<PersistentVolume>>),
    /// A StorageClass changed.
    StorageClass(Delta<Arc<StorageClass>>),
    /// A CSINode changed.
    CsiNode(Delta<Arc<CsiNode>>),
    /// A CSIDriver changed.
    CsiDriver(Delta<Arc<CsiDriver>>),
    /// A CSIStorageCapacity changed.
    CsiStorageCapacity(Delta<Arc<CsiStorageCapacity>>),
    /// A VolumeAttachment changed.
    VolumeAttachment(Delta<Arc<VolumeAttachment>>),
    /// A ResourceClaim changed.
    ResourceClaim(Delta<Arc<ResourceClaim>>),
    /// A ResourceSlice changed.
    ResourceSlice(Delta<Arc<ResourceSlice>>),
    /// A DeviceClass changed.
    DeviceClass(Delta<Arc<DeviceClass>>),
    /// A DeviceTaintRule changed. Plugins register for ResourceSlice to receive it.
    DeviceTaintRule(Delta<Arc<DeviceTaintRule>>),
    /// An object of a kind that an out-of-tree plugin watches changed.
    Other(Delta<Arc<dyn AnyObject>>),
}

/// An object of a kind that this crate does not name.
pub trait AnyObject: Any + Send + Sync + std::fmt::Debug {}

impl<T: Any + Send + Sync + std::fmt::Debug> AnyObject for T {}

/// Addition, update or deletion of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta<T> {
    /// The object was added.
    Added(T),
    /// The object was updated.
    Updated {
        /// The object before the update.
        old: T,
        /// The object after the update.
        new: T,
    },
    /// The object was deleted. This is its last known state.
    Deleted(T),
}

impl<T> Delta<T> {
    /// Returns the object before the change, or `None` if it was added.
    pub fn before(&self) -> Option<&T> {
        match self {
            Self::Added(_) => None,
            Self::Updated { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    /// Returns the object after the change, or `None` if it was deleted.
    pub fn after(&self) -> Option<&T> {
        match self {
            Self::Added(new) | Self::Updated { new, .. } => Some(new),
            Self::Deleted(_) => None,
        }
    }

    /// Returns whether the object was added.
    pub fn is_added(&self) -> bool {
        matches!(self, Self::Added(_))
    }

    /// Returns the action type under which plugins register for the change.
    pub fn action(&self) -> ActionType {
        match self {
            Self::Added(_) => ActionType::Add,
            Self::Updated { .. } => ActionType::Update,
            Self::Deleted(_) => ActionType::Delete,
        }
    }
}

impl ObjectChange {
    /// Returns the resource and action type under which plugins register for the change.
    pub fn event(&self) -> (EventResource, ActionType) {
        match self {
            Self::PersistentVolumeClaim(edit) => {
                (EventResource::PersistentVolumeClaim, edit.action())
            }
            Self::PersistentVolume(edit) => (EventResource::PersistentVolume, edit.action()),
            Self::StorageClass(edit) => (EventResource::StorageClass, edit.action()),
            Self::CsiNode(edit) => (EventResource::CsiNode, edit.action()),
            Self::CsiDriver(edit) => (EventResource::CsiDriver, edit.action()),
            Self::CsiStorageCapacity(edit) => (EventResource::CsiStorageCapacity, edit.action()),
            Self::VolumeAttachment(edit) => (EventResource::VolumeAttachment, edit.action()),
            Self::ResourceClaim(edit) => (EventResource::ResourceClaim, edit.action()),
            Self::ResourceSlice(edit) => (EventResource::ResourceSlice, edit.action()),
            Self::DeviceClass(edit) => (EventResource::DeviceClass, edit.action()),
            // Upstream merges these taints into the slices' devices before plugins see them.
            Self::DeviceTaintRule(_) => (EventResource::ResourceSlice, ActionType::Update),
            Self::Other(edit) => (EventResource::Other, edit.action()),
        }
    }
}

/// Result of a plugin's queueing hint.
///
/// Upstream: `QueueingHint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueingHint {
    /// The change may make the pod schedulable.
    Queue,
    /// The change does not help the pod. Upstream: `QueueSkip`.
    Skip,
    /// The hint failed. The queue treats this as `Queue`.
    Error,
}

impl QueueingHint {
    /// Returns [`QueueingHint::Queue`] if `queue` is true, else [`QueueingHint::Skip`].
    pub fn when(queue: bool) -> Self {
        if queue { Self::Queue } else { Self::Skip }
    }
}
