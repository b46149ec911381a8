//! Status of a CronJob, and events about its Jobs.

use super::observed::Observed;
use crate::{batch::job, wire};
use evenkeel_api::{
    time::Timestamp,
    views::{Job, ObjectReference},
};
use evenkeel_runtime::plan::{Action, EventRecord, OnError, Outcomes, Plan, Update};
use serde::Serialize;

/// Returns the status update, and events about the Jobs. `plan` is the plan whose actions had these outcomes.
pub(super) fn status(observed: &Observed, plan: &Plan, outcomes: &Outcomes) -> Plan {
    let cron = &*observed.cron;
    let target = wire::target(cron);
    let mut status_plan = Plan::nothing();
    for (action, outcome) in plan.actions.iter().zip(&outcomes.0) {
        // AlreadyExists causes no event, because the Job exists and the cache will contain it.
        if let (Action::Create(_), Some(error)) = (action, &outcome.error)
            && !error.is_already_exists()
            && !error.namespace_terminating
        {
            let message = format!("Error creating job: {}", error.message);
            status_plan.push(Action::Event(EventRecord::warning(
                target.clone(),
                "FailedCreate",
                message,
            )));
        }
    }
    let next = Status::next(observed, &deleted_jobs(plan, outcomes));
    if next != Status::of(observed) {
        let body = wire::status_body(cron, &cron.meta.annotations, &next);
        status_plan.push(Update { on_error: OnError::Abort, ..Update::status(target, body) });
    }
    status_plan.actions.extend(job_events(observed).into_iter().map(Action::Event));
    status_plan
}

/// Returns the uids of the Jobs that the plan deleted.
fn deleted_jobs<'a>(plan: &'a Plan, outcomes: &Outcomes) -> Vec<&'a str> {
    let mut uids = Vec::new();
    for (action, outcome) in plan.actions.iter().zip(&outcomes.0) {
        if let Action::Delete(delete) = action
            && outcome.error.is_none()
        {
            uids.push(&*delete.target.uid);
        }
    }
    uids
}

/// Returns events about active Jobs that finished or disappeared, and about unexpected Jobs.
fn job_events(observed: &Observed) -> Vec<EventRecord> {
    let target = wire::target(&*observed.cron);
    let mut events = Vec::new();
    for job in &observed.jobs {
        let name = &job.meta.name;
        match (job::final_condition(job), observed.is_in_active_list(job)) {
            (Some(condition), true) => {
                let condition_type = &condition.type_;
                let message = format!("Saw completed job: {name}, condition: {condition_type}");
                events.push(EventRecord::normal(target.clone(), "SawCompletedJob", message));
            }
            (None, false) if !is_unrecorded(observed, job) => {
                let message =
                    format!("Saw a job that the controller did not create or forgot: {name}");
                events.push(EventRecord::warning(target.clone(), "UnexpectedJob", message));
            }
            _ => {}
        }
    }
    for active in missing_in_active_list(observed) {
        let message = format!("Active job went missing: {}", active.name);
        events.push(EventRecord::normal(target.clone(), "MissingJob", message));
    }
    events
}

/// Returns whether the CronJob created the Job, and its status lacks it.
fn is_unrecorded(observed: &Observed, job: &Job) -> bool {
    observed.unrecorded_jobs().any(|unrecorded| unrecorded.job.meta.uid == job.meta.uid)
}

/// Returns the entries of `status.active` whose Jobs are gone.
fn missing_in_active_list(observed: &Observed) -> impl Iterator<Item = &ObjectReference> {
    let is_missing = |active: &&ObjectReference| {
        observed.are_jobs_current && !observed.jobs.iter().any(|job| job.meta.uid == active.uid)
    };
    observed.cron.status.active.iter().filter(is_missing)
}

/// Serialized form of a CronJob's status.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    active: Vec<Reference<'a>>,
    #[serde(serialize_with = "wire::serialize_time", skip_serializing_if = "Option::is_none")]
    last_schedule_time: Option<Timestamp>,
    #[serde(serialize_with = "wire::serialize_time", skip_serializing_if = "Option::is_none")]
    last_successful_time: Option<Timestamp>,
}

/// Serialized form of a reference to an active Job.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    api_version: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
}

impl<'a> Reference<'a> {
    /// Returns an entry of the current status.
    fn of_entry(active: &'a ObjectReference) -> Self {
        Self {
            api_version: &active.api_version,
            kind: &active.kind,
            namespace: &active.namespace,
            name: &active.name,
            uid: &active.uid,
            resource_version: &active.resource_version,
        }
    }

    /// Returns a new entry for a Job.
    fn of_job(job: &'a Job) -> Self {
        Self {
            api_version: "batch/v1",
            kind: "Job",
            namespace: &job.meta.namespace,
            name: &job.meta.name,
            uid: &job.meta.uid,
            resource_version: &job.meta.resource_version,
        }
    }
}

impl<'a> Status<'a> {
    /// Returns the current status.
    fn of(observed: &'a Observed) -> Self {
        let status = &observed.cron.status;
        Self {
            active: status.active.iter().map(Reference::of_entry).collect(),
            last_schedule_time: status.last_schedule_time,
            last_successful_time: status.last_successful_time,
        }
    }

    /// Returns the status after the Jobs with these uids were deleted.
    fn next(observed: &'a Observed, deleted_uids: &[&str]) -> Self {
        let recorded = observed.unfinished_in_active_list().map(Reference::of_entry);
        let unrecorded = observed.unrecorded_active_jobs().map(|job| Reference::of_job(job));
        let active = recorded.chain(unrecorded);
        let succeeded = observed.jobs.iter().filter(|job| {
            job::final_condition(job).is_some_and(|condition| &*condition.type_ == "Complete")
        });
        let last_completion = succeeded.filter_map(|job| job.status.completion_time).max();
        Self {
            active: active.filter(|active| !deleted_uids.contains(&active.uid)).collect(),
            last_schedule_time: observed.last_schedule(),
            last_successful_time: observed.cron.status.last_successful_time.max(last_completion),
        }
    }
}
