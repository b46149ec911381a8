//! Status of a Deployment. Upstream: `syncDeploymentStatus`, `calculateStatus`, `syncRolloutStatus`.

use super::{
    annotations,
    observed::Observed,
    progress::{self, has_deadline},
    sets::PlannedSet,
    sync::{DeploymentSync, PROGRESSING, StatusPart},
};
use crate::{conditions::Condition, wire};
use evenkeel_api::{
    time::{SignedDuration, Timestamp, saturating_add},
    views::{Deployment, DeploymentStatus, ReplicaSetStatus},
};
use evenkeel_runtime::plan::{EventRecord, Failure, Outcomes, Plan, Update};
use serde::Serialize;
use std::time::Duration;

/// Maximum number of hash collisions. More collisions mean that, for example, a webhook changes the template of each
/// new ReplicaSet. Without the maximum, the controller would create an endless number of sets.
const MAX_COLLISIONS: i32 = 20;
/// Condition type: enough pods are available.
const AVAILABLE: &str = "Available";
/// Condition type: a ReplicaSet failed to create or delete pods.
const REPLICA_FAILURE: &str = "ReplicaFailure";
/// Reason of the condition after the progress deadline. Upstream: `TimedOutReason`.
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
/// Reason of the condition while the rollout progresses. Upstream: `ReplicaSetUpdatedReason`.
const UPDATED: &str = "ReplicaSetUpdated";
/// Reason of the condition after the rollout. Upstream: `NewRSAvailableReason`.
const COMPLETE: &str = "NewReplicaSetAvailable";

/// Returns the status update if anything changed, otherwise the delay until the progress deadline.
pub(crate) fn status(observed: &Observed, outcomes: &Outcomes, now: Timestamp) -> Plan {
    let sync = DeploymentSync::decide(observed, now);
    if let Some(failure) = creation_failure(observed, outcomes, now) {
        return handle_failed_creation(&sync, failure);
    }
    let present_status = Status::from(&observed.deployment.status);
    let new_status = match sync.status_part {
        StatusPart::Nothing => return Plan::nothing(),
        StatusPart::ObservedGeneration => with_observed_generation(observed),
        StatusPart::Counts => calculate_status(&sync),
        StatusPart::Rollout => rollout_status(&sync),
    };
    let mut plan = Plan::nothing();
    if new_status != present_status || sync.revision.is_some() {
        plan.push(update(&observed.deployment, &new_status, sync.revision.as_deref()));
    } else if sync.status_part == StatusPart::Rollout {
        plan.requeue = until_deadline_check(&sync, &new_status);
    }
    plan
}

/// Returns the error with which the new set's creation failed.
fn creation_failure<'o>(
    observed: &Observed,
    outcomes: &'o Outcomes,
    now: Timestamp,
) -> Option<&'o Failure> {
    outcomes.first_error()?;
    // `into_actions` consumes the sync, so this function decides again.
    let (_actions, creation_index) = DeploymentSync::decide(observed, now).into_actions();
    outcomes.0.get(creation_index?)?.error.as_ref()
}

/// Returns the present status with a new `observedGeneration`, for a Deployment with an empty selector.
fn with_observed_generation(observed: &Observed) -> Status {
    let mut status = Status::from(&observed.deployment.status);
    status.observed_generation =
        status.observed_generation.max(observed.deployment.meta.generation);
    status
}

/// Handles a failed creation of the new set. A hash collision increments `collisionCount`. Any other error sets the
/// condition `Progressing`. Upstream: `getNewReplicaSet`.
fn handle_failed_creation(sync: &DeploymentSync<'_>, failure: &Failure) -> Plan {
    let deployment = &*sync.observed.deployment;
    let mut plan = Plan::nothing();
    let mut status = Status::from(&deployment.status);
    if failure.namespace_terminating {
        return plan;
    }
    let collisions = deployment.status.collision_count.unwrap_or(0);
    if failure.is_already_exists() && collisions < MAX_COLLISIONS {
        // If the cache does not contain the set with this name yet, it may be the Deployment's own new set.
        let Some(rival) = &sync.observed.rival else { return plan };
        let is_new_set = rival.meta.is_controlled_by(&deployment.meta.uid)
            && rival.spec.template.equal_ignoring_hash(&deployment.spec.template);
        if !is_new_set {
            status.collision_count = Some(collisions.saturating_add(1));
            plan.push(update(deployment, &status, None));
        }
        return plan;
    }
    let name = sync.new_index.map(|index| &*sync.sets[index].name).unwrap_or_default();
    let text = format!("Failed to create new replica set \"{name}\": {failure}");
    if has_deadline(deployment) {
        let condition = Condition::new(PROGRESSING, "False", "ReplicaSetCreateError", &text);
        progress::set_condition(&mut status.conditions, condition, sync.now);
        if status != Status::from(&deployment.status) {
            plan.push(update(deployment, &status, None));
        }
    }
    plan.push(EventRecord::warning(sync.target.clone(), "ReplicaSetCreateError", text));
    plan
}

/// Returns the status with current counts and the condition `Available`. Upstream: `calculateStatus`.
fn calculate_status(sync: &DeploymentSync<'_>) -> Status {
    let deployment = &*sync.observed.deployment;
    let sum = |count: fn(&ReplicaSetStatus) -> i32| {
        sync.sets.iter().fold(0, |sum: i32, set| sum.saturating_add(count(set.status())))
    };
    let available = sync.total_available();
    let mut status = Status {
        observed_generation: deployment.meta.generation,
        replicas: sum(|status| status.replicas),
        updated_replicas: sync.new_index.map_or(0, |index| sync.sets[index].status().replicas),
        ready_replicas: sum(|status| status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: sync.total_replicas().saturating_sub(available).max(0),
        terminating_replicas: if sync.observed.counts_terminating {
            terminating_replicas(sync)
        } else {
            None
        },
        conditions: sync.conditions.clone(),
        collision_count: deployment.status.collision_count,
    };
    let condition = if available >= sync.limits.min_available() {
        Condition::new(
            AVAILABLE,
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        let text = "Deployment does not have minimum availability.";
        Condition::new(AVAILABLE, "False", "MinimumReplicasUnavailable", text)
    };
    progress::set_condition(&mut status.conditions, condition, sync.now);
    status
}

/// Returns the number of terminating pods of all sets, or `None` if a set does not report it. A set that the ReplicaSet
/// controller has not observed yet counts as 0. Upstream: `GetTerminatingReplicaCountForReplicaSets`.
fn terminating_replicas(sync: &DeploymentSync<'_>) -> Option<i32> {
    let mut sum: i32 = 0;
    for status in sync.sets.iter().map(PlannedSet::status) {
        let is_observed = status.observed_generation != 0;
        match status.terminating_replicas {
            Some(count) => sum = sum.saturating_add(count),
            None if is_observed => return None,
            None => {}
        }
    }
    Some(sum)
}

/// Returns the status with current counts and the conditions `Available`, `Progressing` and `ReplicaFailure`. Upstream:
/// `syncRolloutStatus`.
fn rollout_status(sync: &DeploymentSync<'_>) -> Status {
    let mut status = calculate_status(sync);
    let deployment = &*sync.observed.deployment;
    if has_deadline(deployment) {
        let present = progress::find_condition(&sync.conditions, PROGRESSING);
        let is_reported_complete = status.replicas == status.updated_replicas
            && present.is_some_and(|condition| &*condition.reason == COMPLETE);
        if !is_reported_complete {
            set_progressing_condition(sync, present, &mut status);
        }
    } else {
        progress::remove_condition(&mut status.conditions, PROGRESSING);
    }
    match replica_failure(sync) {
        Some(condition) => progress::set_condition(&mut status.conditions, condition, sync.now),
        None => progress::remove_condition(&mut status.conditions, REPLICA_FAILURE),
    }
    status
}

/// Sets `Progressing` to complete, progressing or timed out, or leaves it unchanged. Upstream: `syncRolloutStatus`.
fn set_progressing_condition(
    sync: &DeploymentSync<'_>,
    present: Option<&Condition>,
    status: &mut Status,
) {
    let subject = match sync.new_index {
        Some(index) => format!("ReplicaSet \"{}\"", sync.sets[index].name),
        None => format!("Deployment \"{}\"", sync.observed.deployment.meta.name),
    };
    let (value, reason, text) = if is_complete(sync, status) {
        ("True", COMPLETE, format!("{subject} has successfully progressed."))
    } else if is_progressing(&sync.observed.deployment.status, status) {
        ("True", UPDATED, format!("{subject} is progressing."))
    } else if is_timed_out(sync, present) {
        ("False", TIMED_OUT, format!("{subject} has timed out progressing."))
    } else {
        return;
    };
    let mut condition = Condition::new(PROGRESSING, value, reason, &text);
    if reason == UPDATED {
        // Progress renews the update time, even if status and reason stay the same. The transition time stays.
        if let Some(present) = present.filter(|condition| &*condition.status == "True") {
            condition.last_transition_time = present.last_transition_time;
        }
        progress::remove_condition(&mut status.conditions, PROGRESSING);
    }
    progress::set_condition(&mut status.conditions, condition, sync.now);
}

/// Returns whether all desired pods are updated and available, and no others exist. Upstream: `DeploymentComplete`.
fn is_complete(sync: &DeploymentSync<'_>, status: &Status) -> bool {
    let desired = sync.limits.desired;
    status.updated_replicas == desired
        && status.replicas == desired
        && status.available_replicas == desired
}

/// Returns whether more pods are updated, ready or available than before, or fewer old pods exist. Upstream:
/// `DeploymentProgressing`.
fn is_progressing(before: &DeploymentStatus, after: &Status) -> bool {
    let old_before = before.replicas.saturating_sub(before.updated_replicas);
    let old_after = after.replicas.saturating_sub(after.updated_replicas);
    after.updated_replicas > before.updated_replicas
        || old_after < old_before
        || after.ready_replicas > before.ready_replicas
        || after.available_replicas > before.available_replicas
}

/// Returns whether the rollout exceeded its progress deadline. `present` is the condition `Progressing`. Upstream:
/// `DeploymentTimedOut`.
fn is_timed_out(sync: &DeploymentSync<'_>, present: Option<&Condition>) -> bool {
    match present {
        Some(condition) if &*condition.reason == COMPLETE => false,
        Some(condition) if &*condition.reason == TIMED_OUT => true,
        Some(condition) => deadline(sync, condition) < sync.now,
        None => false,
    }
}

/// Returns the progress deadline, which is `progressDeadlineSeconds` after the condition's last update.
fn deadline(sync: &DeploymentSync<'_>, condition: &Condition) -> Timestamp {
    let seconds = sync.observed.deployment.spec.progress_deadline_seconds.unwrap_or(i32::MAX);
    let from = condition.last_update_time.unwrap_or(Timestamp::UNIX_EPOCH);
    saturating_add(from, SignedDuration::from_secs(seconds.into()))
}

/// Returns the delay until one second after the progress deadline, or `None` if no deadline applies. Upstream:
/// `requeueStuckDeployment`.
fn until_deadline_check(sync: &DeploymentSync<'_>, status: &Status) -> Option<Duration> {
    let condition = progress::find_condition(&sync.conditions, PROGRESSING)?;
    if !has_deadline(&sync.observed.deployment)
        || is_complete(sync, status)
        || &*condition.reason == TIMED_OUT
    {
        return None;
    }
    let remaining = deadline(sync, condition).duration_since(sync.now);
    Some(Duration::try_from(remaining).unwrap_or_default() + Duration::from_secs(1))
}

/// Like [`until_deadline_check`], with the status that the planned changes lead to.
pub(super) fn until_deadline_check_after_plan(sync: &DeploymentSync<'_>) -> Option<Duration> {
    until_deadline_check(sync, &rollout_status(sync))
}

/// Returns the condition `ReplicaFailure` of the new set. If it has none, returns that of an old set.
fn replica_failure(sync: &DeploymentSync<'_>) -> Option<Condition> {
    let new_then_old = sync.new_index.into_iter().chain(sync.old_indexes());
    let mut conditions = new_then_old.flat_map(|index| &sync.sets[index].status().conditions);
    let condition = conditions.find(|condition| &*condition.type_ == REPLICA_FAILURE)?;
    let mut condition = Condition::from(condition);
    condition.last_update_time = condition.last_transition_time;
    Some(condition)
}

/// Returns the update of the status and, if `revision` is set, of the revision annotation.
fn update(deployment: &Deployment, status: &Status, revision: Option<&str>) -> Update {
    let annotations = &deployment.meta.annotations;
    let body = match revision {
        Some(revision) => wire::status_body(
            deployment,
            &annotations.with(annotations::REVISION, revision),
            status,
        ),
        None => wire::status_body(deployment, annotations, status),
    };
    Update::status(wire::target(deployment), body)
}

/// Serialized form of a Deployment's status.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    observed_generation: i64,
    replicas: i32,
    updated_replicas: i32,
    ready_replicas: i32,
    available_replicas: i32,
    unavailable_replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminating_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collision_count: Option<i32>,
}

impl From<&DeploymentStatus> for Status {
    fn from(status: &DeploymentStatus) -> Self {
        Self {
            observed_generation: status.observed_generation,
            replicas: status.replicas,
            updated_replicas: status.updated_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            unavailable_replicas: status.unavailable_replicas,
            terminating_replicas: status.terminating_replicas,
            conditions: status.conditions.iter().map(Condition::from).collect(),
            collision_count: status.collision_count,
        }
    }
}
