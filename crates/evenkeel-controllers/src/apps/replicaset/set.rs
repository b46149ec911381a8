//! The two kinds that keep a number of like pods, seen as one.

use evenkeel_api::{
    StrMap, View,
    template::Template,
    views::{ReplicaSet, ReplicationController},
};

use crate::conditions::Condition;

/// The condition that tells of pods that could not be made or deleted.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// A kind that keeps a number of like pods.
pub(crate) trait Set: View {
    /// Whether its status counts terminating pods.
    const COUNTS_TERMINATING: bool;
    /// Pods asked for; 1 where nobody said.
    fn replicas(&self) -> i32;
    /// Seconds that a pod must be ready for before it is available.
    fn min_ready_seconds(&self) -> i32;
    /// Whether its selector can be read. One that cannot stops the set, and only the set.
    fn selects(&self) -> bool;
    /// Whether it would adopt an object with these labels: one whose selector is empty is not meant to.
    fn could_take(&self, labels: &StrMap) -> bool;
    /// Whether its selector matches these labels.
    fn matches(&self, labels: &StrMap) -> bool;
    /// What its pods are made from.
    fn template(&self) -> &Template;
    /// The counts that its status has now.
    fn counts(&self) -> Counts;
    /// The conditions that its status has now.
    fn conditions(&self) -> Vec<Condition>;
    /// Whether its status tells of a failure.
    fn tells_failure(&self) -> bool;
}

/// The numbers of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Active pods.
    pub(crate) replicas: i32,
    /// Those that have all labels of the template.
    pub(crate) fully_labeled: i32,
    /// Those that are ready.
    pub(crate) ready: i32,
    /// Those that are available.
    pub(crate) available: i32,
    /// Pods being deleted, for the kind that counts them.
    pub(crate) terminating: Option<i32>,
    /// The generation that was acted upon.
    pub(crate) observed_generation: i64,
}

/// Both kinds name their fields alike, but for what is given here.
macro_rules! set {
    ($kind:ty, counts_terminating: $counts_terminating:literal, |$set:ident| selects: $selects:expr, terminating: $terminating:expr) => {
        impl Set for $kind {
            const COUNTS_TERMINATING: bool = $counts_terminating;

            fn replicas(&self) -> i32 {
                self.spec.replicas.unwrap_or(1)
            }

            fn min_ready_seconds(&self) -> i32 {
                self.spec.min_ready_seconds
            }

            fn selects(&self) -> bool {
                let $set = self;
                $selects
            }

            fn could_take(&self, labels: &StrMap) -> bool {
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

            fn tells_failure(&self) -> bool {
                self.status.conditions.iter().any(|c| &*c.type_ == REPLICA_FAILURE)
            }
        }
    };
}

set!(ReplicaSet, counts_terminating: true,
    |set| selects: set.spec.selector.error().is_none(), terminating: set.status.terminating_replicas);
set!(ReplicationController, counts_terminating: false, |_set| selects: true, terminating: None);

/// Whether all of `wanted` are among `labels`.
pub(crate) fn has_all(labels: &StrMap, wanted: &StrMap) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}
