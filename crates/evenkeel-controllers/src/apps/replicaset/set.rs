//! Common view of ReplicaSets and ReplicationControllers.

use crate::conditions::Condition;
use evenkeel_api::{
    StrMap, View,
    template::Template,
    views::{ReplicaSet, ReplicationController},
};

/// Condition type for failed creations and deletions. Upstream: `ReplicaSetReplicaFailure`.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// A kind with `replicas`, a selector and a pod template.
pub(crate) trait Set: View {
    /// Whether the kind has `status.terminatingReplicas`.
    const COUNTS_TERMINATING: bool;
    /// Returns `spec.replicas`; 1 if the field is absent.
    fn replicas(&self) -> i32;
    /// Seconds that a pod must be ready to count as available (`spec.minReadySeconds`).
    fn min_ready_seconds(&self) -> i32;
    /// Returns whether the selector can be evaluated. The controller skips a set with an invalid one.
    fn has_valid_selector(&self) -> bool;
    /// Returns whether the set may adopt an orphan with these labels. An empty selector adopts nothing.
    fn may_adopt(&self, labels: &StrMap) -> bool;
    /// Returns whether the selector matches these labels.
    fn matches(&self, labels: &StrMap) -> bool;
    /// Returns the pod template.
    fn template(&self) -> &Template;
    /// Counts in the current status.
    fn counts(&self) -> Counts;
    /// Conditions in the current status.
    fn conditions(&self) -> Vec<Condition>;
    /// Returns whether the status has the condition `ReplicaFailure`.
    fn has_replica_failure(&self) -> bool;
}

/// Counts of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Number of active pods.
    pub(crate) replicas: i32,
    /// Number of pods with all labels of the template.
    pub(crate) fully_labeled: i32,
    /// Number of ready pods.
    pub(crate) ready: i32,
    /// Number of available pods.
    pub(crate) available: i32,
    /// Number of terminating pods, for kinds with this field.
    pub(crate) terminating: Option<i32>,
    /// `metadata.generation` of the observed spec.
    pub(crate) observed_generation: i64,
}

/// Implements [`Set`] for a kind. The kinds differ only in the arguments.
macro_rules! set {
    ($kind:ty, counts_terminating: $counts_terminating:literal, |$set:ident| has_valid_selector: $has_valid_selector:expr, terminating: $terminating:expr) => {
        impl Set for $kind {
            const COUNTS_TERMINATING: bool = $counts_terminating;

            fn replicas(&self) -> i32 {
                self.spec.replicas.unwrap_or(1)
            }

            fn min_ready_seconds(&self) -> i32 {
                self.spec.min_ready_seconds
            }

            fn has_valid_selector(&self) -> bool {
                let $set = self;
                $has_valid_selector
            }

            fn may_adopt(&self, labels: &StrMap) -> bool {
                !self.spec.selector.is_empty() && self.matches(labels)
            }

            fn matches(&self, labels: &StrMap) -> bool {
                self.spec.selector.matches(labels)
            }

            fn template(&self) -> &Template {
                &self.spec.template
            }

            fn counts(&self) -> Counts {
                let $set = self;
                Counts {
                    replicas: self.status.replicas,
                    fully_labeled: self.status.fully_labeled_replicas,
                    ready: self.status.ready_replicas,
                    available: self.status.available_replicas,
                    terminating: $terminating,
                    observed_generation: self.status.observed_generation,
                }
            }

            fn conditions(&self) -> Vec<Condition> {
                self.status.conditions.iter().map(Condition::from).collect()
            }

            fn has_replica_failure(&self) -> bool {
                self.status.conditions.iter().any(|condition| &*condition.type_ == REPLICA_FAILURE)
            }
        }
    };
}

set!(ReplicaSet, counts_terminating: true,
    |set| has_valid_selector: set.spec.selector.error().is_none(), terminating: set.status.terminating_replicas);
set!(ReplicationController, counts_terminating: false,
    |_set| has_valid_selector: true, terminating: None);

/// Returns whether all of `required` are among `labels`.
pub(crate) fn has_all_labels(labels: &StrMap, required: &StrMap) -> bool {
    required.iter().all(|(key, value)| labels.get(key) == Some(value))
}
