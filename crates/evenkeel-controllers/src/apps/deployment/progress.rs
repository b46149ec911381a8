//! Conditions of a rollout: progress, completion and deadline. Upstream: `progress.go`.

use super::sync::DeploymentSync;
use crate::{conditions::Condition, wire};
use evenkeel_api::{time::Timestamp, views::Deployment};

/// Returns the condition of this type. Upstream: `GetDeploymentCondition`.
pub(crate) fn find_condition<'c>(
    conditions: &'c [Condition],
    type_: &str,
) -> Option<&'c Condition> {
    conditions.iter().find(|condition| &*condition.type_ == type_)
}

/// Sets a condition, unless status and reason are unchanged. The transition time changes only with the status. Times
/// that `new` lacks become `now`. Upstream: `SetDeploymentCondition`.
pub(crate) fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition, now: Timestamp) {
    let present = find_condition(conditions, &new.type_);
    if present
        .is_some_and(|condition| condition.status == new.status && condition.reason == new.reason)
    {
        return;
    }
    let now = wire::whole_second(now);
    new.last_update_time.get_or_insert(now);
    if let Some(present) = present
        && present.status == new.status
        && present.last_transition_time.is_some()
    {
        new.last_transition_time = present.last_transition_time;
    }
    new.last_transition_time.get_or_insert(now);
    remove_condition(conditions, &new.type_);
    conditions.push(new);
}

/// Removes the condition of this type. Upstream: `RemoveDeploymentCondition`.
pub(crate) fn remove_condition(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| &*condition.type_ != type_);
}

/// Returns whether the Deployment has a progress deadline. Upstream: `HasProgressDeadline`.
pub(crate) fn has_deadline(deployment: &Deployment) -> bool {
    deployment.spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

/// Returns whether the status in the cache shows a complete rollout. Upstream: `DeploymentComplete`.
pub(crate) fn is_stored_status_complete(sync: &DeploymentSync<'_>) -> bool {
    let deployment = &*sync.observed.deployment;
    let status = &deployment.status;
    let desired = sync.limits.desired;
    status.updated_replicas == desired
        && status.replicas == desired
        && status.available_replicas == desired
        && status.observed_generation >= deployment.meta.generation
}
