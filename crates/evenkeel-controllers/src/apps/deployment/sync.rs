//! State of one sync: the ReplicaSets after the planned changes, and the resulting actions.

use super::{
    annotations,
    limits::{ROLLING_UPDATE, RolloutLimits},
    observed::Observed,
    sets::PlannedSet,
};
use crate::{conditions::Condition, wire};
use evenkeel_api::{time::Timestamp, views::ReplicaSet};
use evenkeel_runtime::plan::{Action, Delete, EventRecord, OnError, Rewrite, Target};

/// Condition type of a rollout's progress. Upstream: `DeploymentProgressing`.
pub(crate) const PROGRESSING: &str = "Progressing";

/// Part of the status that the sync writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusPart {
    /// The status stays as it is.
    Nothing,
    /// The update sets only `observedGeneration`.
    ObservedGeneration,
    /// Counts and the condition `Available`.
    Counts,
    /// Counts, `Available` and `Progressing`.
    Rollout,
}

/// State of one sync. Upstream: `syncDeployment`.
pub(crate) struct DeploymentSync<'a> {
    /// The observed state.
    pub(crate) observed: &'a Observed,
    /// The current time.
    pub(crate) now: Timestamp,
    /// The Deployment, as the object of events and owner references.
    pub(crate) target: Target,
    /// Limits of the rolling update.
    pub(crate) limits: RolloutLimits,
    /// ReplicaSets after the planned changes, oldest first. A created one is last.
    pub(crate) sets: Vec<PlannedSet<'a>>,
    /// Index in `sets` of the new set, which has the Deployment's template.
    pub(crate) new_index: Option<usize>,
    /// The Deployment's new annotation `deployment.kubernetes.io/revision`.
    pub(crate) revision: Option<String>,
    /// The Deployment's new conditions.
    pub(crate) conditions: Vec<Condition>,
    /// Events to record before any write.
    pub(crate) events: Vec<EventRecord>,
    /// Old ReplicaSets to delete.
    pub(crate) sets_to_delete: Vec<Target>,
    /// The patch of the Deployment itself.
    pub(crate) rewrite: Option<Rewrite>,
    /// Part of the status that the sync writes.
    pub(crate) status_part: StatusPart,
}

impl<'a> DeploymentSync<'a> {
    /// Returns the state before any change.
    pub(super) fn begin(observed: &'a Observed, now: Timestamp) -> Self {
        let deployment = &*observed.deployment;
        Self {
            observed,
            now,
            target: wire::target(deployment),
            limits: RolloutLimits::resolve(deployment),
            sets: observed.sets.iter().map(PlannedSet::unchanged).collect(),
            new_index: observed.new_index,
            revision: None,
            conditions: deployment.status.conditions.iter().map(Condition::from).collect(),
            events: Vec::new(),
            sets_to_delete: Vec::new(),
            rewrite: None,
            status_part: StatusPart::Rollout,
        }
    }

    /// Returns whether the strategy is `RollingUpdate`.
    pub(crate) fn is_rolling(&self) -> bool {
        &*self.observed.deployment.spec.strategy.type_ == ROLLING_UPDATE
    }

    /// Returns the indexes of old sets, oldest first. Upstream: `FindOldReplicaSets`.
    pub(crate) fn old_indexes(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let new = self.new_index;
        (0..self.sets.len()).filter(move |index| Some(*index) != new)
    }

    /// Returns the sum of all sets' planned `spec.replicas`. Upstream: `GetReplicaCountForReplicaSets`.
    pub(crate) fn total_replicas(&self) -> i32 {
        self.sets.iter().fold(0, |total, set| total.saturating_add(set.replicas))
    }

    /// Returns the number of available pods of all sets. Upstream: `GetAvailableReplicaCountForReplicaSets`.
    pub(crate) fn total_available(&self) -> i32 {
        self.sets.iter().fold(0, |total, set| total.saturating_add(set.status().available_replicas))
    }

    /// Scales a set, and updates its annotations if the size changes. Returns whether it changes. Upstream:
    /// `scaleReplicaSet` without `forceUpdate`.
    pub(crate) fn scale_replica_set(&mut self, index: usize, replicas: i32) -> bool {
        let is_resized = self.sets[index].replicas != replicas;
        if is_resized {
            self.scale_and_annotate(index, replicas);
        }
        is_resized
    }

    /// Scales a set, and updates its annotations even if the size stays. Upstream: `scaleReplicaSet` with
    /// `forceUpdate`.
    pub(crate) fn scale_and_annotate(&mut self, index: usize, replicas: i32) {
        let set = &mut self.sets[index];
        let is_resized = set.replicas != replicas;
        if !is_resized && annotations::are_replicas_current(&set.annotations, self.limits) {
            return;
        }
        if is_resized && set.existing.is_some() {
            let direction = if set.replicas < replicas { "up" } else { "down" };
            let name = &set.name;
            let from = set.replicas;
            let text = format!("Scaled {direction} replica set {name} from {from} to {replicas}");
            set.events.push(EventRecord::normal(self.target.clone(), "ScalingReplicaSet", text));
        }
        set.annotations = annotations::with_replica_limits(&set.annotations, self.limits);
        set.replicas = replicas;
        set.changed = true;
    }

    /// Deletes the oldest sets beyond `revisionHistoryLimit`, if they have no pods. Upstream: `cleanupDeployment`.
    pub(crate) fn cleanup_deployment(&mut self) {
        let limit = match self.observed.deployment.spec.revision_history_limit {
            None | Some(i32::MAX) => return,
            Some(limit) => limit,
        };
        let Ok(limit) = usize::try_from(limit) else { return };
        let mut candidates: Vec<&ReplicaSet> = self
            .old_indexes()
            .filter_map(|index| self.sets[index].existing)
            .map(|set| &**set)
            .filter(|set| !set.meta.deleting())
            .collect();
        // `old_indexes` is sorted by age and the sort is stable, so the oldest set of equal revisions comes first.
        candidates.sort_by_key(|set| annotations::revision(&set.meta.annotations).unwrap_or(0));
        let surplus = candidates.len().saturating_sub(limit);
        let unused = candidates[..surplus].iter().filter(|set| {
            set.status.replicas == 0
                && set.spec.replicas.unwrap_or(1) == 0
                && set.meta.generation <= set.status.observed_generation
        });
        self.sets_to_delete = unused.map(|set| wire::target(*set)).collect();
    }

    /// Returns the actions in order, and the index among them of the new set's creation.
    pub(crate) fn into_actions(self) -> (Vec<Action>, Option<usize>) {
        let mut actions: Vec<Action> = Vec::new();
        if self.status_part != StatusPart::ObservedGeneration {
            actions.extend(self.observed.claims.actions(&self.target));
        }
        actions.extend(self.events.into_iter().map(Action::Event));
        let deployment = &*self.observed.deployment;
        let mut creation_index = None;
        // Create the new set before others change.
        let (created, existing): (Vec<_>, Vec<_>) =
            self.sets.into_iter().partition(|set| set.existing.is_none());
        for set in created {
            creation_index = Some(actions.len());
            actions.push(set.into_create_action(deployment, &self.target));
        }
        for set in existing.into_iter().filter(|set| set.changed) {
            actions.extend(set.into_update_actions());
        }
        actions.extend(self.sets_to_delete.into_iter().map(|target| {
            Action::Delete(Delete { on_error: OnError::Abort, ..Delete::new(target) })
        }));
        actions.extend(self.rewrite.map(Action::Rewrite));
        (actions, creation_index)
    }
}
