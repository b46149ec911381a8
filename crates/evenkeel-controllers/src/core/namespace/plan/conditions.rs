//! Types of a terminating namespace's conditions, with upstream's reasons and messages.

use crate::conditions::Condition;

/// Condition type. A condition of this type is true while the deletion has a problem.
pub(super) struct ConditionType {
    name: &'static str,
    /// Reason while the deletion has the problem. The message then states the problem.
    true_reason: &'static str,
    /// Reason without the problem.
    false_reason: &'static str,
    /// Message without the problem.
    false_message: &'static str,
}

/// Condition about groups whose resources cannot be discovered.
pub(super) const DISCOVERY_FAILURE: ConditionType = ConditionType {
    name: "NamespaceDeletionDiscoveryFailure",
    true_reason: "DiscoveryFailed",
    false_reason: "ResourcesDiscovered",
    false_message: "All resources successfully discovered",
};
/// Condition about group versions that cannot be parsed.
pub(super) const GROUP_VERSION_PARSING_FAILURE: ConditionType = ConditionType {
    name: "NamespaceDeletionGroupVersionParsingFailure",
    true_reason: "GroupVersionParsingFailed",
    false_reason: "ParsedGroupVersions",
    false_message: "All legacy kube types successfully parsed",
};
/// Condition about objects whose deletion failed.
pub(super) const CONTENT_FAILURE: ConditionType = ConditionType {
    name: "NamespaceDeletionContentFailure",
    true_reason: "ContentDeletionFailed",
    false_reason: "ContentDeleted",
    false_message: "All content successfully deleted, may be waiting on finalization",
};
/// Condition about objects that remain.
pub(super) const CONTENT_REMAINING: ConditionType = ConditionType {
    name: "NamespaceContentRemaining",
    true_reason: "SomeResourcesRemain",
    false_reason: "ContentRemoved",
    false_message: "All content successfully removed",
};
/// Condition about finalizers of the objects that remain.
pub(super) const FINALIZERS_REMAINING: ConditionType = ConditionType {
    name: "NamespaceFinalizersRemaining",
    true_reason: "SomeFinalizersRemain",
    false_reason: "ContentHasNoFinalizers",
    false_message: "All content-preserving finalizers finished",
};

impl ConditionType {
    /// Returns the condition, true with the problem as its message, or false without a problem.
    pub(super) fn evaluate(&self, problem: Option<String>) -> Condition {
        match problem {
            Some(message) => Condition::new(self.name, "True", self.true_reason, &message),
            None => Condition::new(self.name, "False", self.false_reason, self.false_message),
        }
    }
}
