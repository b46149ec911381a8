//! Status that a plugin returns for a pod on a node.

use smallvec::SmallVec;
use std::borrow::Cow;

/// A reason in the words of events, such as `Insufficient cpu`.
pub type Reason = Cow<'static, str>;

/// `Ok` for upstream's code Success, else the status of the rejection.
pub type StatusResult = Result<(), Status>;

/// Rejection of a pod by a plugin.
///
/// Upstream: `framework.Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// At least one reason.
    pub reasons: SmallVec<[Reason; 1]>,
    /// Code that determines whether preemption or an event may help.
    pub code: Code,
}

/// Code of a rejection.
///
/// Upstream: `framework.Code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Preemption on the node may help.
    Unschedulable,
    /// Preemption cannot help.
    UnschedulableAndUnresolvable,
    /// The plugin waits for an event that it registered for. After that event the pod skips its
    /// backoff.
    Pending,
    /// The plugin failed.
    Error,
}

/// Rejection of a pod, or failure of a plugin, with the plugin's index in the profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginRejection {
    pub(crate) plugin: usize,
    pub(crate) status: Status,
}

impl PluginRejection {
    /// Returns the rejection by a plugin. Prefixes the message of an error with the extension point and the plugin's
    /// name.
    pub(crate) fn new(plugin: usize, status: Status, point: &str, name: &str) -> Self {
        if status.code != Code::Error {
            return Self { plugin, status };
        }
        let reasons = status.reasons.join(", ");
        let status = Status::error(format!("running {point} plugin \"{name}\": {reasons}"));
        Self { plugin, status }
    }
}

impl Code {
    /// Returns upstream's name, used in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Self::Pending => "Pending",
            Self::Error => "Error",
        }
    }
}

impl Status {
    fn new(code: Code, reason: impl Into<Reason>) -> Self {
        Self { reasons: [reason.into()].into_iter().collect(), code }
    }

    /// Returns a status with code [`Code::Unschedulable`].
    pub fn unschedulable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Unschedulable, reason)
    }

    /// Returns a status with code [`Code::UnschedulableAndUnresolvable`].
    pub fn unresolvable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::UnschedulableAndUnresolvable, reason)
    }

    /// Returns a status with code [`Code::Pending`].
    pub fn pending(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Pending, reason)
    }

    /// Returns a status with code [`Code::Error`].
    pub fn error(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Error, reason)
    }
}
