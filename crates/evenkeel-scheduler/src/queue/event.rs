//! What may move pods from one queue to another.

use std::{fmt, sync::Arc};

use crate::framework::{Action, Change, Resource};

/// Something that happened.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// The cluster changed.
    Change {
        resource: Resource,
        action: Action,
        change: Change,
        /// Only this pod is concerned.
        only: Option<Arc<str>>,
    },
    /// This pod is to be tried, whatever rejected it.
    Activate(Arc<str>),
}

impl Event {
    pub(crate) fn new(resource: Resource, action: Action, change: Change) -> Self {
        Self::Change { resource, action, change, only: None }
    }

    pub(crate) fn label(&self) -> Label {
        match self {
            Self::Change { resource, action, .. } => Label::Change(*resource, *action),
            Self::Activate(_) => Label::ForceActivate,
        }
    }
}

/// Why a pod came into a queue: upstream's label `event`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Label {
    Change(Resource, Action),
    ForceActivate,
    ScheduleAttemptFailure,
    BackoffComplete,
    PopFromBackoffQ,
    UnschedulableTimeout,
}

impl Label {
    pub(crate) const NEW_POD: Self = Self::Change(Resource::UnscheduledPod, Action::Add);
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(resource, action) => {
                write!(f, "{}{}", resource.as_str(), action.as_str())
            }
            Self::ForceActivate => f.write_str("ForceActivate"),
            Self::ScheduleAttemptFailure => f.write_str("ScheduleAttemptFailure"),
            Self::BackoffComplete => f.write_str("BackoffComplete"),
            Self::PopFromBackoffQ => f.write_str("PopFromBackoffQ"),
            Self::UnschedulableTimeout => f.write_str("UnschedulableTimeout"),
        }
    }
}
