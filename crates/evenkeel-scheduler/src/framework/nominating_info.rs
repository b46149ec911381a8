//! NominatingInfo: effect of a failed attempt on the pod's nomination.

use std::sync::Arc;

/// Change of `status.nominatedNodeName` after a failed attempt.
///
/// Upstream: `NominatingInfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NominatingInfo {
    /// The pod keeps its nomination, if it has one.
    #[default]
    Keep,
    /// The pod loses its nomination.
    Clear,
    /// This node is nominated for the pod.
    Node(Arc<str>),
}

impl NominatingInfo {
    /// Returns the new `status.nominatedNodeName`, which is empty for [`Self::Clear`], or `None` for [`Self::Keep`].
    pub fn node_name(&self) -> Option<&str> {
        match self {
            Self::Keep => None,
            Self::Clear => Some(""),
            Self::Node(node) => Some(node),
        }
    }
}
