//! The status of a set: counts of its pods, and whether making or deleting them failed.

use super::{
    plan::{Seen, balance, unusable},
    set::{Counts, REPLICA_FAILURE, Set, has_all},
};
use crate::{claim::of_labels, conditions::Condition, pods, wire};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::plan::{Outcomes, Plan, Update};
use serde::Serialize;
use std::{borrow::Cow, cmp::Ordering, time::Duration};

/// What follows from the pods that were seen and from how the actions went: an update if anything changed, and a time to
/// look again where pods become available by mere time. A pass that did what it wanted to leaves that to the next one.
pub(crate) fn status<S: Set>(seen: &Seen<S>, outcomes: &Outcomes, now: Timestamp) -> Plan {
    let set = &*seen.set;
    let mut plan = Plan::nothing();
    if !set.selects() {
        return plan;
    }
    // What was made or deleted shows in a moment, and the pass that sees it tells all of it at once.
    if !outcomes.0.is_empty() && outcomes.first_error().is_none() {
        return plan;
    }
    let failure = failure(seen, outcomes);
    let counts = counts(seen, now);
    let conditions = changed_conditions(set, failure.as_deref(), balance(seen), now);
    if counts != set.counts() || conditions.is_some() {
        let status = Body::new(counts, conditions.unwrap_or_else(|| set.conditions()));
        let body = wire::status_body(set, &set.meta().annotations, &status);
        plan.push(Update::status(wire::target(set), body));
    }
    if failure.is_none() && set.min_ready_seconds() > 0 && counts.ready != counts.available {
        plan.requeue_after(next_check(seen, now));
    }
    plan
}

/// What the failure condition says: the first error of making or deleting pods. A namespace that is being deleted takes
/// no pods, and that is nobody's failure.
fn failure<'a, S: Set>(seen: &Seen<S>, outcomes: &'a Outcomes) -> Option<Cow<'a, str>> {
    if seen.set.meta().deleting() {
        return None;
    }
    let too_few = balance(seen) == Ordering::Less;
    if too_few && let Some(why) = unusable(&*seen.set) {
        return Some(why.into());
    }
    let managed = outcomes.0.iter().skip(seen.pods.n_actions());
    let mut errors = managed.filter_map(|outcome| outcome.error.as_ref());
    let error =
        errors.find(|error| !error.namespace_terminating && (too_few || !error.is_not_found()))?;
    Some(match too_few {
        true => error.message.as_str().into(),
        false => format!("unable to delete pods: {}", error.message).into(),
    })
}

fn counts<S: Set>(seen: &Seen<S>, now: Timestamp) -> Counts {
    let set = &*seen.set;
    let mut fully_labeled = of_labels(|labels| has_all(labels, &set.template().labels));
    let min_ready_seconds = set.min_ready_seconds();
    let mut counts = Counts {
        replicas: count(seen.pods.owned.len()),
        terminating: (S::COUNTS_TERMINATING && seen.rules.counts_terminating)
            .then(|| count(seen.n_terminating)),
        observed_generation: set.meta().generation,
        ..Counts::default()
    };
    for pod in &seen.pods.owned {
        counts.fully_labeled += i32::from(fully_labeled(&pod.meta.labels));
        counts.ready += i32::from(pods::is_ready(pod));
        counts.available += i32::from(pods::is_available(pod, min_ready_seconds, now));
    }
    counts
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The conditions, if they change. A failure that is told of already is not told again.
fn changed_conditions<S: Set>(
    set: &S,
    failure: Option<&str>,
    balance: Ordering,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    match (failure, set.tells_failure()) {
        (Some(message), false) => {
            let reason = match balance {
                Ordering::Less => "FailedCreate",
                Ordering::Equal => "",
                Ordering::Greater => "FailedDelete",
            };
            let new = Condition::new(REPLICA_FAILURE, "True", reason, message).transitioned(now);
            Some(set.conditions().into_iter().chain([new]).collect())
        }
        (None, true) => {
            Some(set.conditions().into_iter().filter(|c| &*c.type_ != REPLICA_FAILURE).collect())
        }
        (Some(_), true) | (None, false) => None,
    }
}

/// When the first pod becomes available that is only ready now.
fn next_check<S: Set>(seen: &Seen<S>, now: Timestamp) -> Duration {
    let min_ready_seconds = seen.set.min_ready_seconds();
    let waits =
        seen.pods.owned.iter().filter_map(|pod| pods::until_available(pod, min_ready_seconds, now));
    waits.min().unwrap_or(Duration::from_secs(u64::try_from(min_ready_seconds).unwrap_or(0)))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
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

impl Body {
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
