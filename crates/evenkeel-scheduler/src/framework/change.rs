//! Changes in the cluster that may let a rejected pod in.

use crate::{nodes::NodeRef, pod::PodInfo};
use evenkeel_api::views::{PersistentVolume, PersistentVolumeClaim, StorageClass};

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
    /// Something about volumes came or changed.
    Storage(StorageChange<'a>),
    /// The waiting pod itself changed; its newer version is the one being asked about.
    OwnUpdate,
}

/// What about volumes came or changed, as it is now.
#[derive(Debug, Clone, Copy)]
pub enum StorageChange<'a> {
    /// A claim.
    Claim(&'a PersistentVolumeClaim),
    /// A volume.
    Volume(&'a PersistentVolume),
    /// A class of volumes.
    Class(&'a StorageClass),
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
