//! Status of a DaemonSet. Upstream: `updateDaemonSetStatus`.

use super::{
    observed::{Observed, revision_hash},
    plan::DaemonSetSync,
};
use crate::{apps::revisions, conditions::Condition, pods, wire};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::plan::{Action, Outcomes, Plan, Update};
use serde::Serialize;

/// Returns the status update, the deletions of surplus revisions, and the delay until the next pod becomes available.
pub(crate) fn status(observed: &Observed, outcomes: &Outcomes, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let set = &*observed.set;
    let selector = &set.spec.selector;
    if selector.is_everything() || selector.error().is_some() || set.meta.deleting() {
        return plan;
    }
    let status = new_status(&DaemonSetSync::begin(observed, now));
    if is_changed(observed, &status) {
        let body = wire::status_body(set, &set.meta.annotations, &status);
        plan.push(Update::status(wire::target(set), body));
    }
    if outcomes.first_error().is_none_or(|error| error.namespace_terminating) {
        plan.actions.extend(deletions_beyond_history_limit(observed));
    }
    if set.spec.min_ready_seconds > 0 && status.number_ready != status.number_available {
        let wait = pods::until_next_available(
            &observed.pods.owned,
            observed.set.spec.min_ready_seconds,
            now,
        );
        plan.requeue_after(wait);
    }
    plan
}

/// Returns the status with the counts of nodes and the present conditions.
fn new_status(sync: &DaemonSetSync<'_>) -> Status {
    let set = &*sync.observed.set;
    let mut status = Status {
        observed_generation: set.meta.generation,
        conditions: set.status.conditions.iter().map(Condition::from).collect(),
        collision_count: set.status.collision_count,
        ..Status::default()
    };
    if let Some(draft) = sync.observed.history.draft.as_ref().filter(|draft| draft.collisions > 0) {
        status.collision_count = Some(draft.collisions);
    }
    for (name, node) in &sync.observed.nodes {
        // Only the oldest pod of a node counts.
        let oldest = sync.by_node.get(&**name).and_then(|pods| pods.first());
        if !sync.observed.pod_template.fit(node).should_run {
            status.number_misscheduled += i32::from(oldest.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = oldest else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pods::is_ready(pod));
        status.number_available += i32::from(sync.is_available(pod));
        status.updated_number_scheduled += i32::from(sync.is_updated(pod));
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

/// Returns whether the status differs from the present one.
fn is_changed(observed: &Observed, status: &Status) -> bool {
    let present = &observed.set.status;
    status.desired_number_scheduled != present.desired_number_scheduled
        || status.current_number_scheduled != present.current_number_scheduled
        || status.number_misscheduled != present.number_misscheduled
        || status.number_ready != present.number_ready
        || status.updated_number_scheduled != present.updated_number_scheduled
        || status.number_available != present.number_available
        || status.number_unavailable != present.number_unavailable
        || status.collision_count != present.collision_count
        || status.observed_generation > present.observed_generation
}

/// Returns the deletions of the oldest unused revisions beyond `revisionHistoryLimit`. Upstream: `cleanupHistory`.
fn deletions_beyond_history_limit(observed: &Observed) -> Vec<Action> {
    let in_use = revisions::in_use(&observed.pods.owned);
    let old = &observed.history.old;
    let limit = revisions::history_limit(observed.set.spec.revision_history_limit);
    let surplus = old.len().saturating_sub(limit);
    let unused = old.iter().filter(|revision| !in_use.contains(revision_hash(revision)));
    revisions::deletions(unused, surplus).collect()
}

/// Serialized form of a DaemonSet's status.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    current_number_scheduled: i32,
    number_misscheduled: i32,
    desired_number_scheduled: i32,
    number_ready: i32,
    observed_generation: i64,
    updated_number_scheduled: i32,
    number_available: i32,
    number_unavailable: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    collision_count: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
}
