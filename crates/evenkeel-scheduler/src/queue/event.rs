//! Cluster events that move pods between the queues.

use std::{fmt, sync::Arc};

use crate::framework::{ActionType, Change, EventResource};

/// An event that may make pods schedulable.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// An object in the cluster changed.
    Change {
        resource: EventResource,
        action: ActionType,
        change: Change,
        /// Uid of the only pod that the event may requeue, or `None` if it may requeue all pods.
        target: Option<Arc<str>>,
    },
    /// A plugin activated the pod with this uid, regardless of the plugins that rejected it.
    Activate(Arc<str>),
}

impl Event {
    pub(crate) fn new(resource: EventResource, action: ActionType, change: Change) -> Self {
        Self::Change { resource, action, change, target: None }
    }

    /// Returns the label of the event in metrics.
    pub(crate) fn label(&self) -> EventLabel {
        match self {
            Self::Change { resource, action, .. } => EventLabel::Change(*resource, *action),
            Self::Activate(_) => EventLabel::ForceActivate,
        }
    }
}

/// Reason why a pod entered a queue: the `event` label of upstream's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EventLabel {
    Change(EventResource, ActionType),
    ForceActivate,
    ScheduleAttemptFailure,
    BackoffComplete,
    PopFromBackoffQ,
    UnschedulableTimeout,
}

impl EventLabel {
    pub(crate) const NEW_POD: Self = Self::Change(EventResource::UnscheduledPod, ActionType::Add);
}

impl fmt::Display for EventLabel {
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
