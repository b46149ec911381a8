//! Why a pod cannot run on a node.

use smallvec::SmallVec;
use std::borrow::Cow;

/// A reason as it stands in events: `Insufficient cpu`.
pub type Reason = Cow<'static, str>;

/// Passed, or why not.
pub type Filtered = Result<(), Rejection>;

/// Why a plugin rejected a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// At least one reason.
    pub reasons: SmallVec<[Reason; 1]>,
    /// What could help.
    pub severity: Severity,
}

/// What could help against a rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Removing pods from the node. Upstream: `Unschedulable`.
    Unschedulable,
    /// Nothing that preemption can do. Upstream: `UnschedulableAndUnresolvable`.
    Unresolvable,
    /// Something that the plugin waits for; when it comes the pod is tried at once. Upstream: `Pending`.
    Pending,
    /// Nothing of this cluster: something went wrong. Upstream: `Error`.
    Error,
}

impl Severity {
    /// Upstream's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::Unresolvable => "UnschedulableAndUnresolvable",
            Self::Pending => "Pending",
            Self::Error => "Error",
        }
    }
}

impl Rejection {
    /// Removing pods could help.
    pub fn unschedulable(reason: impl Into<Reason>) -> Self {
        Self { reasons: [reason.into()].into_iter().collect(), severity: Severity::Unschedulable }
    }

    /// Removing pods could not help.
    pub fn unresolvable(reason: impl Into<Reason>) -> Self {
        Self { reasons: [reason.into()].into_iter().collect(), severity: Severity::Unresolvable }
    }

    /// The plugin waits for something.
    pub fn pending(reason: impl Into<Reason>) -> Self {
        Self { reasons: [reason.into()].into_iter().collect(), severity: Severity::Pending }
    }

    /// Something went wrong.
    pub fn error(reason: impl Into<Reason>) -> Self {
        Self { reasons: [reason.into()].into_iter().collect(), severity: Severity::Error }
    }
}
