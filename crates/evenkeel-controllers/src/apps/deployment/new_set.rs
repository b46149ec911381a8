//! The new ReplicaSet, which has the Deployment's template. Upstream: `getNewReplicaSet`.

use super::{
    annotations,
    limits::RECREATE,
    observed,
    progress::{self, has_deadline},
    sets::PlannedSet,
    status::TIMED_OUT,
    sync::{DeploymentSync, PROGRESSING},
};
use crate::conditions::Condition;
use evenkeel_api::StrMap;
use evenkeel_runtime::plan::EventRecord;

impl DeploymentSync<'_> {
    /// Sets `Progressing` when the Deployment is paused or resumed, so that the progress deadline does not
    /// count the pause. Upstream: `checkPausedConditions`.
    pub(crate) fn check_paused_conditions(&mut self) {
        let deployment = &*self.observed.deployment;
        let present_reason = progress::find_condition(&self.conditions, PROGRESSING)
            .map(|condition| &*condition.reason);
        if !has_deadline(deployment) || present_reason == Some(TIMED_OUT) {
            return;
        }
        let is_reported_paused = present_reason == Some("DeploymentPaused");
        let (reason, text) = match (deployment.spec.paused, is_reported_paused) {
            (true, false) => ("DeploymentPaused", "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            _ => return,
        };
        let condition = Condition::new(PROGRESSING, "Unknown", reason, text);
        progress::set_condition(&mut self.conditions, condition, self.now);
    }

    /// Updates the annotations and `minReadySeconds` of an existing new set, and the Deployment's revision.
    /// Upstream: `SetNewReplicaSetAnnotations`.
    pub(crate) fn update_new_set(&mut self) {
        let Some(index) = self.new_index else { return };
        let next_revision = self.next_revision();
        let deployment = &*self.observed.deployment;
        let set = &mut self.sets[index];
        let new_annotations =
            annotations::for_new_set(&set.annotations, &deployment.meta.annotations, next_revision);
        let min_ready_seconds = deployment.spec.min_ready_seconds;
        set.changed |=
            new_annotations != set.annotations || min_ready_seconds != set.min_ready_seconds;
        set.annotations = new_annotations;
        set.min_ready_seconds = min_ready_seconds;
        let revision = set.annotations.get(annotations::REVISION).unwrap_or_default().to_owned();
        let name = set.name.clone();
        self.request_revision(revision);
        let has_condition = progress::find_condition(&self.conditions, PROGRESSING).is_some();
        if has_deadline(deployment) && !has_condition {
            self.set_progressing(
                "FoundNewReplicaSet",
                &format!("Found new replica set \"{name}\""),
            );
        }
    }

    /// Returns the new set's index in `sets`. Plans its creation if it does not exist.
    pub(crate) fn get_or_create_new_set(&mut self) -> usize {
        if let Some(index) = self.new_index {
            return index;
        }
        let deployment = &*self.observed.deployment;
        let revision = self.next_revision();
        let set_annotations =
            annotations::for_new_set(&StrMap::default(), &deployment.meta.annotations, revision);
        let mut set = PlannedSet {
            existing: None,
            name: observed::new_set_name(deployment).into(),
            replicas: self.new_set_replicas(0),
            min_ready_seconds: deployment.spec.min_ready_seconds,
            annotations: annotations::with_replica_limits(&set_annotations, self.limits),
            changed: true,
            events: Vec::new(),
        };
        let name = set.name.clone();
        if set.replicas > 0 {
            let text = format!("Scaled up replica set {name} from 0 to {}", set.replicas);
            set.events.push(EventRecord::normal(self.target.clone(), "ScalingReplicaSet", text));
        }
        self.sets.push(set);
        let index = self.sets.len() - 1;
        self.new_index = Some(index);
        self.request_revision(revision.to_string());
        if has_deadline(deployment) {
            self.set_progressing(
                "NewReplicaSetCreated",
                &format!("Created new replica set \"{name}\""),
            );
        }
        index
    }

    /// Returns the number of replicas to which a new set with `present` replicas is scaled. With the strategy
    /// `Recreate`, it is the Deployment's number. Otherwise, `maxSurge` limits the sum of the replicas of all sets.
    ///
    /// Upstream: `NewRSNewReplicas`.
    pub(crate) fn new_set_replicas(&self, present: i32) -> i32 {
        let desired = self.limits.desired;
        if &*self.observed.deployment.spec.strategy.type_ == RECREATE {
            return desired;
        }
        let allowed_increase = self.limits.max_replicas().saturating_sub(self.total_replicas());
        if allowed_increase <= 0 {
            present
        } else {
            present.saturating_add(allowed_increase.min(desired.saturating_sub(present)))
        }
    }

    /// Returns the highest revision of the old sets plus one, at least 1. Upstream: `MaxRevision`.
    fn next_revision(&self) -> i64 {
        let old_revisions = self
            .old_indexes()
            .filter_map(|index| annotations::revision(&self.sets[index].annotations));
        let highest = old_revisions.fold(0, i64::max);
        highest.saturating_add(1)
    }

    /// Plans an update of the Deployment's revision, unless its annotation has this revision already.
    fn request_revision(&mut self, revision: String) {
        let annotations = &self.observed.deployment.meta.annotations;
        if annotations.get(annotations::REVISION).unwrap_or_default() != revision {
            self.revision = Some(revision);
        }
    }

    /// Sets the condition `Progressing` to `True`.
    fn set_progressing(&mut self, reason: &str, message: &str) {
        progress::set_condition(
            &mut self.conditions,
            Condition::new(PROGRESSING, "True", reason, message),
            self.now,
        );
    }
}
