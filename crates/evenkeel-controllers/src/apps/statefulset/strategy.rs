//! How pods of old revisions are replaced (`updateStrategy`), and the feature gates that have a say in it.

use crate::needs::Gates;
use evenkeel_api::views::StatefulSet;

/// `updateStrategy.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Bit by bit, by the controller ([`super::rolling`]).
    RollingUpdate,
    /// When somebody deletes them, and not before. What is not known here is taken for this.
    OnDelete,
    /// All at once, before any new one is made ([`super::recreate`]; KEP-3541).
    Recreate,
}

impl Strategy {
    /// The set's.
    pub(crate) fn of(set: &StatefulSet) -> Self {
        match &*set.spec.update_strategy.type_ {
            "RollingUpdate" => Self::RollingUpdate,
            "Recreate" => Self::Recreate,
            _ => Self::OnDelete,
        }
    }
}

/// The gate of `maxUnavailable` (KEP-961).
const MAX_UNAVAILABLE: &str = "MaxUnavailableStatefulSet";
/// The gate of [`Strategy::Recreate`].
pub(crate) const RECREATE_STRATEGY: &str = "StatefulSetRecreateStrategy";

/// Feature gates that a decision asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features {
    /// `maxUnavailable` counts; without, pods are replaced one by one.
    pub(crate) max_unavailable: bool,
    /// The strategy `Recreate` is known.
    pub(crate) recreate: bool,
}

impl Features {
    /// As the gates are.
    pub(crate) fn of(gates: &Gates) -> Self {
        Self {
            max_unavailable: gates.enabled(MAX_UNAVAILABLE),
            recreate: gates.enabled(RECREATE_STRATEGY),
        }
    }
}
