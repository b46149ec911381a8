//! Update strategies of StatefulSets, and feature gates that affect them.

use crate::needs::Gates;
use evenkeel_api::views::StatefulSet;

/// Update strategy, `spec.updateStrategy.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// The controller replaces pods within `maxUnavailable` ([`super::rolling`]).
    RollingUpdate,
    /// The user deletes pods, and the controller recreates them from the current template. Unknown types count as
    /// this one.
    OnDelete,
    /// The controller deletes all old pods before it creates a new one ([`super::recreate`]; KEP-3541).
    Recreate,
}

impl Strategy {
    /// Returns the set's strategy.
    pub(crate) fn of(set: &StatefulSet) -> Self {
        match &*set.spec.update_strategy.type_ {
            "RollingUpdate" => Self::RollingUpdate,
            "Recreate" => Self::Recreate,
            _ => Self::OnDelete,
        }
    }
}

/// Feature gate of `maxUnavailable` (KEP-961).
const MAX_UNAVAILABLE: &str = "MaxUnavailableStatefulSet";
/// Feature gate of [`Strategy::Recreate`].
pub(crate) const RECREATE_STRATEGY: &str = "StatefulSetRecreateStrategy";

/// Feature gates that affect the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features {
    /// Whether `maxUnavailable` counts. Otherwise it is 1.
    pub(crate) max_unavailable: bool,
    /// Whether the strategy `Recreate` is enabled.
    pub(crate) recreate: bool,
}

impl Features {
    /// Reads the gates.
    pub(crate) fn of(gates: &Gates) -> Self {
        Self {
            max_unavailable: gates.enabled(MAX_UNAVAILABLE),
            recreate: gates.enabled(RECREATE_STRATEGY),
        }
    }
}
