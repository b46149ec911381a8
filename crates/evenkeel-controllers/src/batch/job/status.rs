//! Status of a Job. Upstream: `trackJobStatusAndRemoveFinalizers`, `enactJobFinished`.

use super::{
    end::FinishedCondition,
    manage::PodChange,
    observed::Observed,
    plan::{Decision, Record, can_remove_finalizer, record_to_add},
    pod,
};
use crate::{conditions::Condition, pods, wire};
use evenkeel_api::{Text, time::Timestamp, views::JobStatus};
use evenkeel_runtime::plan::{Action, EventRecord, OnError, Outcome, Outcomes, Plan, Update};
use serde::Serialize;
use std::{collections::HashSet, time::Duration};

/// Maximum number of uids in `uncountedTerminatedPods`, about 20 kB. Upstream: `MaxUncountedPods`.
const MAX_UNCOUNTED: usize = 500;

/// Returns the status update with its events, if anything changed. Requeues the Job if another step follows.
pub(super) fn status(
    observed: &Observed,
    decision: &Decision,
    outcomes: &Outcomes,
    now: Timestamp,
) -> Plan {
    if !observed.is_completion_mode_known() {
        return Plan::nothing();
    }
    let results = ActionResults::new(observed, decision, outcomes);
    let mut new_status = NewStatus::new(observed, &results, now);
    new_status.set_interim_condition(observed, decision, &results);
    new_status.record_finished_pods(observed);
    let n_tracked = new_status.count_recorded_pods(observed, &results);
    new_status.set_final_condition(observed, n_tracked);
    new_status.into_plan(observed)
}

/// Results of the plan's actions.
#[derive(Debug, Default)]
struct ActionResults<'a> {
    /// Number of created pods.
    created: usize,
    /// Number of deleted pods.
    deleted: usize,
    /// Number of deleted pods that were ready.
    deleted_ready: usize,
    /// Whether all deletions succeeded.
    all_deleted: bool,
    /// Uids of pods that lost the finalizer.
    finalizers_removed: HashSet<&'a str>,
}

impl<'a> ActionResults<'a> {
    /// Assigns the outcomes to the actions. [`super::plan::plan`] adds the actions in the same order.
    fn new(observed: &'a Observed, decision: &'a Decision, outcomes: &Outcomes) -> Self {
        let mut outcomes = outcomes.0.iter().skip(observed.pods.n_actions());
        let has_succeeded =
            |outcome: Option<&Outcome>| outcome.is_some_and(|outcome| outcome.error.is_none());
        let mut results = Self { all_deleted: true, ..Self::default() };
        for pod in &decision.finalizers_to_remove {
            if has_succeeded(outcomes.next()) {
                results.finalizers_removed.insert(&pod.meta.uid);
            }
        }
        match &decision.pod_change {
            Some(PodChange::Create(_)) => {
                results.created = outcomes.by_ref().map(|outcome| outcome.succeeded as usize).sum();
            }
            // The removals of these pods' finalizers precede their deletions.
            Some(PodChange::Delete(pods)) => {
                let n_tracked = pods.iter().filter(|pod| pod::is_tracked(pod)).count();
                outcomes.by_ref().take(n_tracked).for_each(drop);
            }
            _ => {}
        }
        for pod in decision.pods_to_delete(observed) {
            let is_deleted = has_succeeded(outcomes.next());
            results.all_deleted &= is_deleted;
            results.deleted += usize::from(is_deleted);
            results.deleted_ready += usize::from(is_deleted && pods::is_ready(pod));
        }
        results
    }
}

/// The new status, and events about it.
struct NewStatus {
    body: Body,
    conditions: Vec<Condition>,
    /// Condition of a Job that has finished or is about to.
    end: Option<FinishedCondition>,
    events: Vec<EventRecord>,
    /// Whether `uncountedTerminatedPods` lacks finished pods because it reached its limit.
    is_uncounted_full: bool,
    now: Timestamp,
}

impl NewStatus {
    /// Returns the present conditions with the counts after the plan's actions.
    fn new(observed: &Observed, results: &ActionResults<'_>, now: Timestamp) -> Self {
        let job = &*observed.job;
        let counts = &observed.counts;
        let mut body = Body::of(&job.status);
        if body.start_time.is_none() && !job.spec.suspend {
            body.start_time = Some(now);
        }
        let active = counts.active.len() + results.created;
        body.active = wire::to_i32(active.saturating_sub(results.deleted));
        body.ready = Some(wire::to_i32(counts.ready.saturating_sub(results.deleted_ready)));
        body.terminating = Some(wire::to_i32(counts.terminating + results.deleted));
        let conditions = job.status.conditions.iter().map(Condition::from).collect();
        Self { body, conditions, end: None, events: Vec::new(), is_uncounted_full: false, now }
    }

    /// Sets the interim condition (`FailureTarget` or `SuccessCriteriaMet`), or the condition `Suspended`.
    fn set_interim_condition(
        &mut self,
        observed: &Observed,
        decision: &Decision,
        results: &ActionResults<'_>,
    ) {
        if decision.end.is_some() {
            // Set the condition only after all deletions succeeded. Once the Job has finished, the controller could not
            // count pods that are still active.
            if results.all_deleted {
                self.end = decision.end.clone();
            }
        } else if self.is_complete(observed) {
            self.end = Some(FinishedCondition::completed());
        } else if decision.pod_change.is_some() {
            self.update_suspended_condition(observed);
        }
        if let Some(end) = &self.end
            && !end.announced
        {
            let condition = Condition::new(end.interim_type(), "True", &end.reason, &end.message);
            self.conditions
                .push(condition.with_transition_time(self.now).with_probe_time(self.now));
        }
    }

    /// Returns whether enough pods succeeded and no pod is active.
    fn is_complete(&self, observed: &Observed) -> bool {
        let has_enough_successes = match observed.job.spec.completions {
            None => observed.counts.succeeded > 0,
            Some(_) => observed.counts.succeeded >= pod::completions(&observed.job) as usize,
        };
        has_enough_successes && self.body.active == 0
    }

    /// Sets the condition `Suspended` if the Job was suspended or resumed, and adapts the start time.
    fn update_suspended_condition(&mut self, observed: &Observed) {
        let job = &*observed.job;
        let (status, reason, message) = if job.spec.suspend {
            ("True", "JobSuspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Job resumed")
        };
        let new = Condition::new("Suspended", status, reason, message);
        let new = new.with_transition_time(self.now).with_probe_time(self.now);
        match self.conditions.iter_mut().find(|condition| &*condition.type_ == "Suspended") {
            Some(old) if old.equal_apart_from_times(&new) => return,
            Some(old) => *old = new,
            // A Job that was never suspended gets no condition.
            None if !job.spec.suspend => return,
            None => self.conditions.push(new),
        }
        // `activeDeadlineSeconds` counts from the start time.
        if !job.spec.suspend {
            self.body.start_time = Some(self.now);
        } else if observed.clears_start_time {
            self.body.start_time = None;
        }
        let event_reason = if job.spec.suspend { "Suspended" } else { "Resumed" };
        self.events.push(EventRecord::normal(wire::target(job), event_reason, message));
    }

    /// Adds finished pods to `completedIndexes` or to `uncountedTerminatedPods`.
    fn record_finished_pods(&mut self, observed: &Observed) {
        let mut indexes = Vec::new();
        let mut succeeded = Vec::new();
        let mut failed = Vec::new();
        let n_uncounted = self.body.uncounted_terminated_pods.len();
        for pod in observed.controlled_pods().iter().filter(|pod| pod::is_tracked(pod)) {
            if !can_remove_finalizer(observed, pod, self.end.as_ref()) {
                continue;
            }
            let Some(record) = record_to_add(observed, pod, self.end.as_ref()) else { continue };
            if n_uncounted + indexes.len() + succeeded.len() + failed.len() >= MAX_UNCOUNTED {
                self.is_uncounted_full = true;
                break;
            }
            match record {
                Record::Index(index) => indexes.push(index),
                Record::Succeeded => succeeded.push(pod.meta.uid.clone()),
                Record::Failed => failed.push(pod.meta.uid.clone()),
            }
        }
        let uncounted = &mut self.body.uncounted_terminated_pods;
        uncounted.succeeded.extend(succeeded);
        uncounted.failed.extend(failed);
        if let Some(counts) = &observed.counts.indexes {
            let completed = counts.recorded.with(indexes);
            self.body.succeeded = wire::to_i32(completed.total());
            self.body.completed_indexes = completed.to_string().into();
            self.body.failed_indexes = counts.failed().map(|failed| failed.to_string().into());
        }
    }

    /// Moves pods without the finalizer from `uncountedTerminatedPods` to the counters. Returns the number of
    /// pods that still have it. Upstream: `flushUncountedAndRemoveFinalizers`.
    fn count_recorded_pods(&mut self, observed: &Observed, results: &ActionResults<'_>) -> usize {
        let still_tracked: HashSet<&str> = observed
            .controlled_pods()
            .iter()
            .filter(|pod| pod::is_tracked(pod))
            .map(|pod| &*pod.meta.uid)
            .filter(|uid| !results.finalizers_removed.contains(uid))
            .collect();
        let remove_untracked = |uids: &mut Vec<Text>| {
            let before = uids.len();
            uids.retain(|uid| still_tracked.contains(&**uid));
            wire::to_i32(before - uids.len())
        };
        let uncounted = &mut self.body.uncounted_terminated_pods;
        self.body.succeeded += remove_untracked(&mut uncounted.succeeded);
        self.body.failed += remove_untracked(&mut uncounted.failed);
        still_tracked.len()
    }

    /// Sets the final condition once the status has the interim condition, and all pods are counted and terminal.
    /// `n_tracked` is the number of pods that still have the finalizer.
    fn set_final_condition(&mut self, observed: &Observed, n_tracked: usize) {
        let Some(end) = self.end.as_ref().filter(|end| end.announced) else { return };
        if n_tracked > 0 || self.body.terminating != Some(0) {
            return;
        }
        let target = wire::target(&*observed.job);
        let condition = Condition::new(end.final_type(), "True", &end.reason, &end.message);
        self.conditions.push(condition.with_transition_time(self.now).with_probe_time(self.now));
        if end.complete {
            self.body.completion_time = Some(self.now);
            let completions = observed.job.spec.completions;
            if completions.is_some_and(|completions| self.body.succeeded > completions) {
                let message = "Too many succeeded pods running after completion count reached";
                let event = EventRecord::warning(target.clone(), "TooManySucceededPods", message);
                self.events.push(event);
            }
            self.events.push(EventRecord::normal(target, "Completed", "Job completed"));
        } else {
            self.events.push(EventRecord::warning(
                target,
                failure_event_reason(&end.reason),
                &*end.message,
            ));
        }
    }

    /// Returns the status update and the events, or an empty plan if the status is unchanged.
    fn into_plan(self, observed: &Observed) -> Plan {
        let job = &*observed.job;
        let mut plan = Plan::nothing();
        let old: Vec<Condition> = job.status.conditions.iter().map(Condition::from).collect();
        if self.body == Body::of(&job.status) && self.conditions == old {
            return plan;
        }
        // The next reconciliation removes finalizers of recorded pods, or sets the final condition.
        let has_next_step = self.is_uncounted_full
            || self.body.uncounted_terminated_pods.len() > 0
            || self.end.as_ref().is_some_and(|end| !end.announced)
            || *self.body.completed_indexes != *job.status.completed_indexes;
        let status = Status { body: self.body, conditions: self.conditions };
        let body = wire::status_body(job, &job.meta.annotations, &status);
        plan.push(Update { on_error: OnError::Abort, ..Update::status(wire::target(job), body) });
        plan.actions.extend(self.events.into_iter().map(Action::Event));
        if has_next_step {
            plan.requeue_after(Duration::ZERO);
        }
        plan
    }
}

/// Returns the reason of the event about a failed Job, by the reason of its condition.
fn failure_event_reason(reason: &str) -> &'static str {
    const REASONS: [&str; 5] = [
        "BackoffLimitExceeded",
        "DeadlineExceeded",
        "PodFailurePolicy",
        "MaxFailedIndexesExceeded",
        "FailedIndexes",
    ];
    REASONS.into_iter().find(|candidate| *candidate == reason).unwrap_or("Failed")
}

/// Serialized form of a Job's status.
#[derive(Serialize)]
struct Status {
    #[serde(flatten)]
    body: Body,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
}

/// The status without its conditions.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(serialize_with = "wire::serialize_time", skip_serializing_if = "Option::is_none")]
    start_time: Option<Timestamp>,
    #[serde(serialize_with = "wire::serialize_time", skip_serializing_if = "Option::is_none")]
    completion_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_zero")]
    active: i32,
    #[serde(skip_serializing_if = "is_zero")]
    succeeded: i32,
    #[serde(skip_serializing_if = "is_zero")]
    failed: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminating: Option<i32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    completed_indexes: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_indexes: Option<Text>,
    uncounted_terminated_pods: Uncounted,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<i32>,
}

/// Uids of finished pods that the counters do not include yet (`uncountedTerminatedPods`).
#[derive(Debug, Default, PartialEq, Serialize)]
struct Uncounted {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    succeeded: Vec<Text>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<Text>,
}

impl Uncounted {
    /// Returns the number of recorded uids.
    fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }
}

impl Body {
    fn of(status: &JobStatus) -> Self {
        let uncounted = status.uncounted_terminated_pods.as_deref();
        Self {
            start_time: status.start_time,
            completion_time: status.completion_time,
            active: status.active,
            succeeded: status.succeeded,
            failed: status.failed,
            terminating: status.terminating,
            completed_indexes: status.completed_indexes.clone(),
            failed_indexes: status.failed_indexes.clone(),
            uncounted_terminated_pods: uncounted.map_or_else(Uncounted::default, |pods| {
                Uncounted { succeeded: pods.succeeded.to_vec(), failed: pods.failed.to_vec() }
            }),
            ready: status.ready,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(n: &i32) -> bool {
    *n == 0
}
