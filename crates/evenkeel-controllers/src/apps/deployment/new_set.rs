//! The new ReplicaSet, which has the Deployment's template. Upstream: `getNewReplicaSet`.

use super::{
    annotations,
    limits::RECREATE,
    observed,
    progress::{self, has_deadline},
    sets::SetCopy,
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
        let present = progress::condition(&self.conditions, PROGRESSING).map(|c| &*c.reason);
        if !has_deadline(deployment) || present == Some("ProgressDeadlineExceeded") {
            return;
        }
        let is_paused_reported = present == Some("DeploymentPaused");
        let (reason, text) = match (deployment.spec.paused, is_paused_reported) {
            (true, false) => ("DeploymentPaused", "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            _ => return,
        };
        let condition = Condition::new(PROGRESSING, "Unknown", reason, text);
        progress::set(&mut self.conditions, condition, self.now);
    }

    /// Updates the annotations and `minReadySeconds` of an existing new set, and the Deployment's revision.
    /// Upstream: `SetNewReplicaSetAnnotations`.
    pub(crate) fn update_new_set(&mut self) {
        let Some(index) = self.new else { return };
        let revision = self.next_revision();
        let deployment = &*self.observed.deployment;
        let set = &mut self.sets[index];
        let annotations =
            annotations::for_new_set(&set.annotations, &deployment.meta.annotations, revision);
        let min_ready_seconds = deployment.spec.min_ready_seconds;
        set.changed |= annotations != set.annotations || min_ready_seconds != set.min_ready_seconds;
        set.annotations = annotations;
        set.min_ready_seconds = min_ready_seconds;
        let revision = set.annotations.get(annotations::REVISION).unwrap_or_default().to_owned();
        let name = set.name.clone();
        self.set_revision(revision);
        if has_deadline(deployment) && progress::condition(&self.conditions, PROGRESSING).is_none()
        {
            self.progressing("FoundNewReplicaSet", &format!("Found new replica set \"{name}\""));
        }
    }

    /// Returns the new set's index in `sets`; creates the set if it is missing.
    pub(crate) fn get_or_create_new_set(&mut self) -> usize {
        if let Some(index) = self.new {
            return index;
        }
        let deployment = &*self.observed.deployment;
        let revision = self.next_revision();
        let annotations =
            annotations::for_new_set(&StrMap::default(), &deployment.meta.annotations, revision);
        let annotations = annotations::with_replicas(&annotations, self.limits);
        let mut set = SetCopy {
            present: None,
            name: observed::new_name(deployment).into(),
            replicas: 0,
            min_ready_seconds: deployment.spec.min_ready_seconds,
            annotations,
            changed: true,
            events: Vec::new(),
        };
        set.replicas = self.new_set_replicas(0);
        let name = set.name.clone();
        if set.replicas > 0 {
            let text = format!("Scaled up replica set {name} from 0 to {}", set.replicas);
            set.events.push(EventRecord::normal(self.target.clone(), "ScalingReplicaSet", text));
        }
        self.sets.push(set);
        let index = self.sets.len() - 1;
        self.new = Some(index);
        self.set_revision(revision.to_string());
        if has_deadline(deployment) {
            self.progressing(
                "NewReplicaSetCreated",
                &format!("Created new replica set \"{name}\""),
            );
        }
        index
    }

    /// Returns the size of a new set that has `present` replicas: all with `Recreate`, otherwise as many as
    /// `maxSurge` allows in addition to the old sets. Upstream: `NewRSNewReplicas`.
    pub(crate) fn new_set_replicas(&self, present: i32) -> i32 {
        let desired = self.limits.desired;
        if &*self.observed.deployment.spec.strategy.type_ == RECREATE {
            return desired;
        }
        let room = self.limits.max_replicas().saturating_sub(self.total());
        if room <= 0 {
            present
        } else {
            present.saturating_add(room.min(desired.saturating_sub(present)))
        }
    }

    fn next_revision(&self) -> i64 {
        let old =
            self.old().filter_map(|index| annotations::revision(&self.sets[index].annotations));
        old.max().unwrap_or(0).max(0).saturating_add(1)
    }

    fn set_revision(&mut self, revision: String) {
        if self.observed.deployment.meta.annotations.get(annotations::REVISION).unwrap_or_default()
            != revision
        {
            self.revision = Some(revision);
        }
    }

    fn progressing(&mut self, reason: &str, message: &str) {
        progress::set(
            &mut self.conditions,
            Condition::new(PROGRESSING, "True", reason, message),
            self.now,
        );
    }
}
