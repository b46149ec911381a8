//! Status of a budget. Upstream: `updatePdbStatus`, `failSafe`.

use crate::wire;
use evenkeel_api::{
    condition::{self, FALSE, TRUE},
    map::Map,
    time::Timestamp,
    views::{MetaCondition, PodDisruptionBudget},
};
use evenkeel_runtime::plan::{Action, Update};
use serde::{Serialize, Serializer};

/// Condition type: the budget allows disruptions.
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";
/// Message of the condition after a successful sync.
const NO_MESSAGE: &str = "";

/// Counts of pods in the status of a budget, and its evicted pods. Each field has its name in the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) current_healthy: i32,
    pub(super) desired_healthy: i32,
    pub(super) expected_pods: i32,
    pub(super) disruptions_allowed: i32,
    /// Times of evictions, by the name of the evicted pod.
    pub(super) disrupted_pods: Map<Timestamp>,
}

impl Counts {
    /// Returns the counts of the current status.
    fn of(budget: &PodDisruptionBudget) -> Self {
        let status = &budget.status;
        Self {
            current_healthy: status.current_healthy,
            desired_healthy: status.desired_healthy,
            expected_pods: status.expected_pods,
            disruptions_allowed: status.disruptions_allowed,
            disrupted_pods: status.disrupted_pods.clone(),
        }
    }
}

/// Returns the update of the status to these counts, or `None` if the status is unchanged.
pub(super) fn update_counts(
    budget: &PodDisruptionBudget,
    counts: &Counts,
    now: Timestamp,
) -> Option<Action> {
    let generation = budget.meta.generation;
    let (condition_status, reason) = if counts.disruptions_allowed > 0 {
        (TRUE, "SufficientPods")
    } else {
        (FALSE, "InsufficientPods")
    };
    let present = condition::find(&budget.status.conditions, DISRUPTION_ALLOWED);
    let has_condition = present.is_some_and(|condition| {
        &*condition.status == condition_status && &*condition.reason == reason
    });
    let is_spec_observed = budget.status.observed_generation == generation;
    if has_condition && is_spec_observed && Counts::of(budget) == *counts {
        return None;
    }
    let conditions = with_condition(budget, condition_status, reason, NO_MESSAGE, generation, now);
    Some(update(budget, counts, generation, &conditions))
}

/// Returns the update to zero allowed disruptions after an error, or `None` if the status already has it. Upstream:
/// `failSafe`.
pub(super) fn fail_safe(
    budget: &PodDisruptionBudget,
    error: &str,
    now: Timestamp,
) -> Option<Action> {
    // The sync failed, so the status keeps its observed generation.
    let generation = budget.status.observed_generation;
    let conditions = with_condition(budget, FALSE, "SyncFailed", error, generation, now);
    if budget.status.disruptions_allowed == 0 && conditions == *budget.status.conditions {
        return None;
    }
    let counts = Counts { disruptions_allowed: 0, ..Counts::of(budget) };
    Some(update(budget, &counts, generation, &conditions))
}

/// Returns the conditions with `DisruptionAllowed` set. Its transition time changes only with its status.
fn with_condition(
    budget: &PodDisruptionBudget,
    status: &str,
    reason: &str,
    message: &str,
    generation: i64,
    now: Timestamp,
) -> Vec<MetaCondition> {
    let mut conditions = budget.status.conditions.to_vec();
    let present = conditions.iter_mut().find(|condition| &*condition.type_ == DISRUPTION_ALLOWED);
    let unchanged_since = match &present {
        Some(present) if &*present.status == status => present.last_transition_time,
        _ => None,
    };
    let new = MetaCondition {
        type_: DISRUPTION_ALLOWED.into(),
        status: status.into(),
        observed_generation: generation,
        last_transition_time: Some(unchanged_since.unwrap_or_else(|| wire::whole_second(now))),
        reason: reason.into(),
        message: message.into(),
    };
    match present {
        Some(present) => *present = new,
        None => conditions.push(new),
    }
    conditions
}

/// Returns the update of the budget's whole status.
fn update(
    budget: &PodDisruptionBudget,
    counts: &Counts,
    generation: i64,
    conditions: &[MetaCondition],
) -> Action {
    let status = Status {
        observed_generation: generation,
        disrupted_pods: &counts.disrupted_pods,
        disruptions_allowed: counts.disruptions_allowed,
        current_healthy: counts.current_healthy,
        desired_healthy: counts.desired_healthy,
        expected_pods: counts.expected_pods,
        conditions: conditions.iter().map(Condition).collect(),
    };
    let unchanged_annotations = &budget.meta.annotations;
    let body = wire::status_body(budget, unchanged_annotations, &status);
    Action::Update(Update::status(wire::target(budget), body))
}

/// Serialized form of a budget's status.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    observed_generation: i64,
    #[serde(serialize_with = "serialize_times", skip_serializing_if = "Map::is_empty")]
    disrupted_pods: &'a Map<Timestamp>,
    disruptions_allowed: i32,
    current_healthy: i32,
    desired_healthy: i32,
    expected_pods: i32,
    conditions: Vec<Condition<'a>>,
}

/// Serialized form of a condition. `MetaCondition` itself only has decoders.
struct Condition<'a>(&'a MetaCondition);

impl Serialize for Condition<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            #[serde(rename = "type")]
            type_: &'a str,
            status: &'a str,
            observed_generation: i64,
            #[serde(serialize_with = "wire::serialize_time")]
            last_transition_time: Option<Timestamp>,
            reason: &'a str,
            message: &'a str,
        }
        let MetaCondition {
            type_,
            status,
            observed_generation,
            last_transition_time,
            reason,
            message,
        } = self.0;
        Fields {
            type_,
            status,
            observed_generation: *observed_generation,
            last_transition_time: *last_transition_time,
            reason,
            message,
        }
        .serialize(serializer)
    }
}

/// Serializes times without fractions of a second, like upstream.
fn serialize_times<S: Serializer>(
    times: &Map<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer
        .collect_map(times.iter().map(|(name, time)| (name, wire::whole_second(*time).to_string())))
}
