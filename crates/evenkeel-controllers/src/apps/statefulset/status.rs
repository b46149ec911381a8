//! Status of a StatefulSet. Upstream: `updateStatefulSetStatus`.

use super::{
    identity,
    observed::{Observed, UpdateRevision},
    plan::{Created, PodOperation, StatefulSetSync, failure_event, is_running_and_ready},
    recreate,
};
use crate::{
    apps::revisions,
    conditions::Condition,
    pods::{self, revision_of},
    wire,
};
use evenkeel_api::{Text, time::Timestamp, views::Pod};
use evenkeel_runtime::plan::{Action, EventRecord, Outcomes, Plan, Update};
use serde::Serialize;

/// Returns the status update, events about failures, and the delay until the next pod becomes available.
pub(crate) fn status(observed: &Observed, outcomes: &Outcomes, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    if observed.set.spec.selector.error().is_some() {
        return plan;
    }
    if recreate::is_disabled(observed) {
        plan.actions.extend(deletions_beyond_history_limit(observed));
        return plan;
    }
    let sync = StatefulSetSync::decide(observed, now);
    plan.actions.extend(failure_events(&sync, outcomes).into_iter().map(Action::Event));
    let status = new_status(&sync, outcomes);
    if is_changed(observed, &status) {
        let body = wire::status_body(&*observed.set, &observed.set.meta.annotations, &status);
        plan.push(Update::status(wire::target(&*observed.set), body));
    }
    plan.actions.extend(deletions_beyond_history_limit(observed));
    if observed.set.spec.min_ready_seconds > 0 && status.ready_replicas != status.available_replicas
    {
        let wait = pods::until_next_available(
            &observed.pods.owned,
            observed.set.spec.min_ready_seconds,
            now,
        );
        plan.requeue_after(wait);
    }
    plan
}

/// Returns events about failed creations. An AlreadyExists error causes no event, because it only shows that the cache
/// is stale.
fn failure_events(sync: &StatefulSetSync<'_>, outcomes: &Outcomes) -> Vec<EventRecord> {
    let set = &sync.observed.set.meta.name;
    let mut events = Vec::new();
    for creation in &sync.creations {
        let Some(outcome) = outcomes.0.get(creation.action_index) else { continue };
        let Some(error) = &outcome.error else { continue };
        if error.is_already_exists() || error.namespace_terminating {
            continue;
        }
        let pod_failure =
            |pod: &str, error: &str| failure_event(&sync.target, PodOperation::Create, pod, error);
        match &creation.object {
            Created::Pod(pod) => events.push(pod_failure(pod, &error.message)),
            Created::Claim { claim, pod } => {
                let text = format!(
                    "Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {error}"
                );
                events.push(EventRecord::warning(sync.target.clone(), "FailedCreate", text));
                events.push(pod_failure(pod, &format!("failed to create PVC {claim}: {error}")));
            }
        }
    }
    events
}

/// Returns the status with the counts of pods and the revisions. Upstream: `updateStatefulSet`, `updateStatus`.
fn new_status(sync: &StatefulSetSync<'_>, outcomes: &Outcomes) -> Status {
    let observed = sync.observed;
    let set = &*observed.set;
    let current = observed.current_revision_name();
    let update = observed.update_revision.name();
    let pods: Vec<&Pod> = observed
        .pods
        .owned
        .iter()
        .map(|pod| &**pod)
        .filter(|pod| identity::ordinal(pod).is_some() && !pod.status.phase.is_empty())
        .collect();
    let count = |matches: &dyn Fn(&Pod) -> bool| {
        wire::to_i32(pods.iter().filter(|pod| matches(pod)).count())
    };
    let count_revision =
        |revision: &str| count(&|pod| !pod.meta.deleting() && revision_of(pod) == revision);
    let mut status = Status {
        observed_generation: set.meta.generation,
        replicas: count(&|_| true),
        ready_replicas: count(&is_running_and_ready),
        current_replicas: count_revision(current) - deleted_old_pods(sync, outcomes),
        updated_replicas: count_revision(update),
        current_revision: current.into(),
        update_revision: update.into(),
        collision_count: match &observed.update_revision {
            UpdateRevision::Created { draft, .. } => draft.collisions,
            _ => set.status.collision_count.unwrap_or(0),
        },
        conditions: set.status.conditions.iter().map(Condition::from).collect(),
        available_replicas: count(&|pod| is_running_and_ready(pod) && sync.is_available(pod)),
    };
    // After a complete update, its revision becomes the current one. Upstream: `completeUpdate`.
    let desired = identity::replicas(set);
    let is_complete = status.updated_replicas == desired
        && status.ready_replicas == desired
        && status.replicas == desired;
    if is_complete {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
    recreate::set_progressing_condition(&mut status.conditions, sync, is_complete);
    status
}

/// Returns the number of old pods that this reconciliation deleted, although the cache still contains them.
fn deleted_old_pods(sync: &StatefulSetSync<'_>, outcomes: &Outcomes) -> i32 {
    let deletions = sync.old_pod_deletions.iter().filter_map(|index| outcomes.0.get(*index));
    let deleted = deletions.filter(|outcome| outcome.error.is_none() && outcome.succeeded > 0);
    wire::to_i32(deleted.count())
}

/// Returns whether the status differs from the present one.
fn is_changed(observed: &Observed, status: &Status) -> bool {
    let present = &observed.set.status;
    status.observed_generation > present.observed_generation
        || status.replicas != present.replicas
        || status.current_replicas != present.current_replicas
        || status.ready_replicas != present.ready_replicas
        || status.updated_replicas != present.updated_replicas
        || status.available_replicas != present.available_replicas
        || status.current_revision != present.current_revision
        || status.update_revision != present.update_revision
        || !present.conditions.iter().map(Condition::from).eq(status.conditions.iter().cloned())
}

/// Returns the deletions of the oldest unused revisions beyond `revisionHistoryLimit`. Upstream: `truncateHistory`.
fn deletions_beyond_history_limit(observed: &Observed) -> impl Iterator<Item = Action> {
    let in_use = revisions::in_use(&observed.pods.owned);
    let current = observed.current_revision_name();
    let update = observed.update_revision.name();
    let unused: Vec<_> = observed
        .history
        .iter()
        .filter(|revision| {
            let name = &*revision.meta.name;
            name != current && name != update && !in_use.contains(name)
        })
        .collect();
    let limit = revisions::history_limit(observed.set.spec.revision_history_limit);
    let surplus = unused.len().saturating_sub(limit);
    revisions::deletions(unused.into_iter(), surplus)
}

/// Serialized form of a StatefulSet's status.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    observed_generation: i64,
    replicas: i32,
    ready_replicas: i32,
    current_replicas: i32,
    updated_replicas: i32,
    current_revision: Text,
    update_revision: Text,
    collision_count: i32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    available_replicas: i32,
}
