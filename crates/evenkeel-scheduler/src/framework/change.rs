//! Changes in the cluster that may let a rejected pod in.

use std::any::Any;

use crate::{nodes::NodeRef, pod::PodInfo};
use evenkeel_api::views::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeAttachment,
};

/// Something changed.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// A node came.
    NodeAdded(NodeRef<'a>),
    /// A node changed.
    NodeUpdated(NodeRef<'a>, NodeAspects),
    /// A pod was bound.
    PodAssigned(&'a PodInfo),
    /// A pod that was bound ended or was deleted, or asks for less.
    PodGone(&'a PodInfo),
    /// An object of another kind came, changed or went.
    Object(ObjectChange<'a>),
    /// The waiting pod itself changed; its newer version is the one being asked about.
    OwnUpdate,
}

/// Which object beside pods and nodes changed, and how. Those kinds are told of that some plugin asked for
/// ([`Handle::watch`](super::Handle::watch)).
#[derive(Debug, Clone, Copy)]
pub enum ObjectChange<'a> {
    /// A claim to a volume.
    Claim(Edit<'a, PersistentVolumeClaim>),
    /// A volume.
    Volume(Edit<'a, PersistentVolume>),
    /// A class of volumes.
    Class(Edit<'a, StorageClass>),
    /// The drivers of a node.
    CsiNode(Edit<'a, CsiNode>),
    /// A driver of volumes.
    CsiDriver(Edit<'a, CsiDriver>),
    /// How much room a driver has somewhere.
    CsiStorageCapacity(Edit<'a, CsiStorageCapacity>),
    /// A volume's being attached.
    VolumeAttachment(Edit<'a, VolumeAttachment>),
    /// Of a kind that a plugin of one's own watches.
    Other(Edit<'a, dyn Any>),
}

/// How an object changed.
#[derive(Debug)]
pub enum Edit<'a, T: ?Sized> {
    /// It is new.
    Added(&'a T),
    /// It changed.
    Updated {
        /// As it was.
        old: &'a T,
        /// As it is.
        new: &'a T,
    },
    /// It is gone; as it was.
    Deleted(&'a T),
}

impl<T: ?Sized> Clone for Edit<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Edit<'_, T> {}

impl<'a, T: ?Sized> Edit<'a, T> {
    /// As it was, if it was there.
    pub fn before(self) -> Option<&'a T> {
        match self {
            Self::Added(_) => None,
            Self::Updated { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    /// As it is, if it is there.
    pub fn now(self) -> Option<&'a T> {
        match self {
            Self::Added(new) | Self::Updated { new, .. } => Some(new),
            Self::Deleted(_) => None,
        }
    }

    /// Whether it is new.
    pub fn is_added(self) -> bool {
        matches!(self, Self::Added(_))
    }
}

/// What of a node changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeAspects {
    /// `status.allocatable`.
    pub allocatable: bool,
    /// `metadata.labels`.
    pub labels: bool,
    /// `spec.taints` or `spec.unschedulable`.
    pub taints: bool,
    /// `status.declaredFeatures`.
    pub declared_features: bool,
}

impl NodeAspects {
    /// Whether nothing that matters changed.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Whether a change is worth another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// It may let the pod in.
    Queue,
    /// It does not.
    Skip,
}

impl Hint {
    /// [`Hint::Queue`] if `worth`.
    pub fn when(worth: bool) -> Self {
        if worth { Self::Queue } else { Self::Skip }
    }
}
