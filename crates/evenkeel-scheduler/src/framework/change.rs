//! Changes in the cluster that may let a rejected pod in.

use std::{any::Any, sync::Arc};

use super::{Action, Resource};
use crate::pod::PodInfo;
use evenkeel_api::views::{
    CsiDriver, CsiNode, CsiStorageCapacity, DeviceClass, DeviceTaintRule, Node, PersistentVolume,
    PersistentVolumeClaim, ResourceClaim, ResourceSlice, StorageClass, VolumeAttachment,
};

/// Something changed. It can be kept: a pod that is on its way when it happens is asked about it when it comes back.
#[derive(Debug, Clone)]
pub enum Change {
    /// A node came, changed or went.
    Node(Edit<Arc<Node>>),
    /// A pod got a node, changed on it, or left it (by ending, by being deleted, or because it was not bound after all).
    AssignedPod(Edit<PodInfo>),
    /// The waiting pod itself changed; its newer version is the one being asked about.
    OwnUpdate {
        /// As it was.
        old: PodInfo,
        /// As it is.
        new: PodInfo,
    },
    /// An object of another kind came, changed or went.
    Object(ObjectChange),
}

/// Which object beside pods and nodes changed, and how. Those kinds are told of that some plugin asked for
/// ([`Handle::watch`](super::Handle::watch)).
#[derive(Debug, Clone)]
pub enum ObjectChange {
    /// A claim to a volume.
    Claim(Edit<Arc<PersistentVolumeClaim>>),
    /// A volume.
    Volume(Edit<Arc<PersistentVolume>>),
    /// A class of volumes.
    Class(Edit<Arc<StorageClass>>),
    /// The drivers of a node.
    CsiNode(Edit<Arc<CsiNode>>),
    /// A driver of volumes.
    CsiDriver(Edit<Arc<CsiDriver>>),
    /// How much room a driver has somewhere.
    CsiStorageCapacity(Edit<Arc<CsiStorageCapacity>>),
    /// A volume's being attached.
    VolumeAttachment(Edit<Arc<VolumeAttachment>>),
    /// A claim to devices.
    ResourceClaim(Edit<Arc<ResourceClaim>>),
    /// Devices that a driver offers.
    ResourceSlice(Edit<Arc<ResourceSlice>>),
    /// A class of devices.
    DeviceClass(Edit<Arc<DeviceClass>>),
    /// A taint on devices; registered for with what offers them.
    DeviceTaintRule(Edit<Arc<DeviceTaintRule>>),
    /// Of a kind that a plugin of one's own watches.
    Other(Edit<Arc<dyn AnyObject>>),
}

/// An object of a kind that this crate does not name.
pub trait AnyObject: Any + Send + Sync + std::fmt::Debug {}

impl<T: Any + Send + Sync + std::fmt::Debug> AnyObject for T {}

/// How an object changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit<T> {
    /// It is new.
    Added(T),
    /// It changed.
    Updated {
        /// As it was.
        old: T,
        /// As it is.
        new: T,
    },
    /// It is gone; as it was.
    Deleted(T),
}

impl<T> Edit<T> {
    /// As it was, if it was there.
    pub fn before(&self) -> Option<&T> {
        match self {
            Self::Added(_) => None,
            Self::Updated { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    /// As it is, if it is there.
    pub fn now(&self) -> Option<&T> {
        match self {
            Self::Added(new) | Self::Updated { new, .. } => Some(new),
            Self::Deleted(_) => None,
        }
    }

    /// Whether it is new.
    pub fn is_added(&self) -> bool {
        matches!(self, Self::Added(_))
    }

    /// What plugins register for.
    pub fn action(&self) -> Action {
        match self {
            Self::Added(_) => Action::Add,
            Self::Updated { .. } => Action::Update,
            Self::Deleted(_) => Action::Delete,
        }
    }
}

impl ObjectChange {
    /// Of what, and how; what plugins register for.
    pub fn event(&self) -> (Resource, Action) {
        match self {
            Self::Claim(edit) => (Resource::PersistentVolumeClaim, edit.action()),
            Self::Volume(edit) => (Resource::PersistentVolume, edit.action()),
            Self::Class(edit) => (Resource::StorageClass, edit.action()),
            Self::CsiNode(edit) => (Resource::CsiNode, edit.action()),
            Self::CsiDriver(edit) => (Resource::CsiDriver, edit.action()),
            Self::CsiStorageCapacity(edit) => (Resource::CsiStorageCapacity, edit.action()),
            Self::VolumeAttachment(edit) => (Resource::VolumeAttachment, edit.action()),
            Self::ResourceClaim(edit) => (Resource::ResourceClaim, edit.action()),
            Self::ResourceSlice(edit) => (Resource::ResourceSlice, edit.action()),
            Self::DeviceClass(edit) => (Resource::DeviceClass, edit.action()),
            // What devices bear is part of them.
            Self::DeviceTaintRule(_) => (Resource::ResourceSlice, Action::Update),
            Self::Other(edit) => (Resource::Other, edit.action()),
        }
    }
}

/// Whether a change is worth another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hint {
    /// It may let the pod in.
    Queue,
    /// It does not.
    Skip,
    /// That could not be told: the pod is tried again.
    Unsure,
}

impl Hint {
    /// [`Hint::Queue`] if `worth`.
    pub fn when(worth: bool) -> Self {
        if worth { Self::Queue } else { Self::Skip }
    }
}
