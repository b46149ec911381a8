//! Status of a ReplicaSet. Upstream: `calculateStatus`, `updateReplicaSetStatus`.

use super::{
    plan::{Observed, balance, template_error},
    set::{Counts, REPLICA_FAILURE, Set, has_all_labels},
};
use crate::{claim::cached_for_last_labels, conditions::Condition, pods, wire};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::plan::{Outcomes, Plan, Update};
use serde::Serialize;
use std::{borrow::Cow, cmp::Ordering};

/// Returns the status update if anything changed, and the delay until the next pod becomes available.
pub(crate) fn status<S: Set>(observed: &Observed<S>, outcomes: &Outcomes, now: Timestamp) -> Plan {
    let set = &*observed.set;
    let mut plan = Plan::nothing();
    if !set.has_valid_selector() {
        return plan;
    }
    // After successful actions, no status is written now. The reconciliation that observes their changes writes it.
    if !outcomes.0.is_empty() && outcomes.first_error().is_none() {
        return plan;
    }
    let failure = failure_message(observed, outcomes);
    let counts = count_pods(observed, now);
    let conditions = changed_conditions(set, failure.as_deref(), balance(observed), now);
    if counts != set.counts() || conditions.is_some() {
        let status = Status::new(counts, conditions.unwrap_or_else(|| set.conditions()));
        let body = wire::status_body(set, &set.meta().annotations, &status);
        plan.push(Update::status(wire::target(set), body));
    }
    if failure.is_none() && set.min_ready_seconds() > 0 && counts.ready != counts.available {
        let wait = pods::until_next_available(&observed.pods.owned, set.min_ready_seconds(), now);
        plan.requeue_after(wait);
    }
    plan
}

/// Returns the message of the failure condition, which is the first error of a creation or deletion. Ignores errors in
/// a terminating namespace, and NotFound errors of deletions.
fn failure_message<'a, S: Set>(
    observed: &Observed<S>,
    outcomes: &'a Outcomes,
) -> Option<Cow<'a, str>> {
    if observed.set.meta().deleting() {
        return None;
    }
    let has_too_few = balance(observed) == Ordering::Less;
    if has_too_few && let Some(error) = template_error(&*observed.set) {
        return Some(error.into());
    }
    // The plan's first actions are adoptions and releases. Their errors do not count.
    let creations_or_deletions = outcomes.0.iter().skip(observed.pods.n_actions());
    let errors = creations_or_deletions.filter_map(|outcome| outcome.error.as_ref());
    let mut counted_errors = errors.filter(|error| !error.namespace_terminating);
    if has_too_few {
        return counted_errors.next().map(|error| error.message.as_str().into());
    }
    let error = counted_errors.find(|error| !error.is_not_found())?;
    Some(format!("unable to delete pods: {}", error.message).into())
}

/// Counts the owned pods by their state.
fn count_pods<S: Set>(observed: &Observed<S>, now: Timestamp) -> Counts {
    let set = &*observed.set;
    let counts_terminating = S::COUNTS_TERMINATING && observed.features.counts_terminating;
    let mut is_fully_labeled =
        cached_for_last_labels(|labels| has_all_labels(labels, &set.template().labels));
    let min_ready_seconds = set.min_ready_seconds();
    let mut counts = Counts {
        replicas: wire::to_i32(observed.pods.owned.len()),
        terminating: counts_terminating.then(|| wire::to_i32(observed.n_terminating)),
        observed_generation: set.meta().generation,
        ..Counts::default()
    };
    for pod in &observed.pods.owned {
        counts.fully_labeled += i32::from(is_fully_labeled(&pod.meta.labels));
        if let Some(since) = pods::ready_since(pod) {
            let is_available = pods::is_available_since(since, min_ready_seconds, now);
            counts.ready += 1;
            counts.available += i32::from(is_available);
        }
    }
    counts
}

/// Returns the conditions if they change. A later failure does not change an existing failure condition.
fn changed_conditions<S: Set>(
    set: &S,
    failure: Option<&str>,
    balance: Ordering,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    match (failure, set.has_replica_failure()) {
        (Some(message), false) => {
            let reason = match balance {
                Ordering::Less => "FailedCreate",
                Ordering::Equal => "",
                Ordering::Greater => "FailedDelete",
            };
            let failure =
                Condition::new(REPLICA_FAILURE, "True", reason, message).with_transition_time(now);
            let mut conditions = set.conditions();
            conditions.push(failure);
            Some(conditions)
        }
        (None, true) => {
            let mut conditions = set.conditions();
            conditions.retain(|condition| &*condition.type_ != REPLICA_FAILURE);
            Some(conditions)
        }
        (Some(_), true) | (None, false) => None,
    }
}

/// Serialized form of a ReplicaSet's status.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    replicas: i32,
    fully_labeled_replicas: i32,
    ready_replicas: i32,
    available_replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminating_replicas: Option<i32>,
    observed_generation: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
}

impl Status {
    fn new(counts: Counts, conditions: Vec<Condition>) -> Self {
        Self {
            replicas: counts.replicas,
            fully_labeled_replicas: counts.fully_labeled,
            ready_replicas: counts.ready,
            available_replicas: counts.available,
            terminating_replicas: counts.terminating,
            observed_generation: counts.observed_generation,
            conditions,
        }
    }
}
