//! Status of a StatefulSet. Upstream: `updateStatefulSetStatus`.

use super::{
    identity,
    observed::{Observed, Update},
    plan::{Created, StatefulSetSync, failed, is_running_and_ready},
    recreate,
};
use crate::{
    apps::revisions,
    conditions::Condition,
    pods::{self, revision_of},
    wire,
};
use evenkeel_api::{Text, time::Timestamp, views::Pod};
use evenkeel_runtime::plan::{Action, EventRecord, Outcomes, Plan, Update as Write};
use serde::Serialize;

/// Returns the status update, events about failures, and the delay until the next pod becomes available.
pub(crate) fn status(observed: &Observed, outcomes: &Outcomes, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    if observed.set.spec.selector.error().is_some() {
        return plan;
    }
    if recreate::is_disabled(observed) {
        plan.actions.extend(beyond_history_limit(observed));
        return plan;
    }
    let sync = StatefulSetSync::decide(observed, now);
    plan.actions.extend(failures(&sync, outcomes).map(Action::Event));
    let status = counted(&sync, outcomes);
    if is_changed(observed, &status) {
        let body = wire::status_body(&*observed.set, &observed.set.meta.annotations, &status);
        plan.push(Write::status(wire::target(&*observed.set), body));
    }
    plan.actions.extend(beyond_history_limit(observed));
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

/// Returns events about failed creations. An AlreadyExists error causes none: it only shows that the cache is stale.
fn failures(sync: &StatefulSetSync<'_>, outcomes: &Outcomes) -> impl Iterator<Item = EventRecord> {
    let events = sync.created.iter().flat_map(|(index, created)| {
        let error = outcomes.0.get(*index).and_then(|outcome| outcome.error.as_ref())?;
        if error.is_already_exists() || error.namespace_terminating {
            return None;
        }
        let set = &sync.observed.set.meta.name;
        Some(match created {
            Created::Pod(pod) => vec![failed(&sync.target, "Create", pod, &error.message)],
            Created::Claim { claim, pod } => {
                let text = format!(
                    "Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {error}"
                );
                let of_pod = format!("failed to create PVC {claim}: {error}");
                vec![
                    EventRecord::warning(sync.target.clone(), "FailedCreate", text),
                    failed(&sync.target, "Create", pod, &of_pod),
                ]
            }
        })
    });
    events.flatten().collect::<Vec<_>>().into_iter()
}

fn counted(sync: &StatefulSetSync<'_>, outcomes: &Outcomes) -> Status {
    let observed = sync.observed;
    let set = &*observed.set;
    let (current, update) = (observed.current_name(), observed.update.name());
    let pods: Vec<&Pod> = observed
        .pods
        .owned
        .iter()
        .map(|pod| &**pod)
        .filter(|pod| identity::ordinal(pod).is_some() && !pod.status.phase.is_empty())
        .collect();
    let count = |counts: &dyn Fn(&Pod) -> bool| {
        i32::try_from(pods.iter().filter(|pod| counts(pod)).count()).unwrap_or(i32::MAX)
    };
    let of = |revision: &str| count(&|pod| !pod.meta.deleting() && revision_of(pod) == revision);
    // Pods of the current revision that this reconciliation deleted, although the cache still contains them.
    let replaced = sync.replaced.iter().filter(|index| {
        outcomes
            .0
            .get(**index)
            .is_some_and(|outcome| outcome.error.is_none() && outcome.succeeded > 0)
    });
    let mut status = Status {
        observed_generation: set.meta.generation,
        replicas: count(&|_| true),
        ready_replicas: count(&is_running_and_ready),
        current_replicas: of(current) - i32::try_from(replaced.count()).unwrap_or(i32::MAX),
        updated_replicas: of(update),
        current_revision: current.into(),
        update_revision: update.into(),
        collision_count: match &observed.update {
            Update::Created(draft, _) => draft.collisions,
            _ => set.status.collision_count.unwrap_or(0),
        },
        conditions: set.status.conditions.iter().map(Condition::from).collect(),
        available_replicas: count(&|pod| is_running_and_ready(pod) && sync.is_available(pod)),
    };
    // The update is complete: its revision becomes the current one. Upstream: `completeUpdate`.
    let desired = identity::replicas(set);
    let complete =
        [status.updated_replicas, status.ready_replicas, status.replicas] == [desired; 3];
    if complete {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
    recreate::set_progressing_condition(&mut status.conditions, sync, complete);
    status
}

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
fn beyond_history_limit(observed: &Observed) -> impl Iterator<Item = Action> {
    let in_use = revisions::in_use(&observed.pods.owned);
    let (current, update) = (observed.current_name(), observed.update.name());
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
    revisions::delete(unused.into_iter(), surplus)
}

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
