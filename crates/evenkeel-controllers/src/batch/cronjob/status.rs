//! Status of a CronJob.

use super::observed::Observed;
use crate::{batch::job, wire};
use evenkeel_api::{
    time::Timestamp,
    views::{Job, ObjectReference},
};
use evenkeel_runtime::plan::{Action, EventRecord, OnError, Outcomes, Plan, Update};
use serde::Serialize;

/// Returns the status update and events about Jobs.
pub(super) fn status(observed: &Observed, plan: &Plan, outcomes: &Outcomes) -> Plan {
    let cron = &*observed.cron;
    let target = wire::target(cron);
    let mut after = Plan::nothing();
    for (action, outcome) in plan.actions.iter().zip(&outcomes.0) {
        // AlreadyExists causes no event: the Job exists, and the cache will contain it.
        if let (Action::Create(_), Some(error)) = (action, &outcome.error)
            && !error.is_already_exists()
            && !error.namespace_terminating
        {
            let message = format!("Error creating job: {}", error.message);
            after.push(Action::Event(EventRecord::warning(
                target.clone(),
                "FailedCreate",
                message,
            )));
        }
    }
    let next = Status::next(observed, &deleted(plan, outcomes));
    let events = events(observed).into_iter().map(Action::Event);
    if next == Status::of(observed) {
        after.actions.extend(events);
        return after;
    }
    let body = wire::status_body(cron, &cron.meta.annotations, &next);
    after.push(Update { on_error: OnError::Abort, ..Update::status(target, body) });
    after.actions.extend(events);
    after
}

/// Returns the uids of the deleted Jobs.
fn deleted<'a>(plan: &'a Plan, outcomes: &Outcomes) -> Vec<&'a str> {
    let done = plan.actions.iter().zip(&outcomes.0).filter(|(_, outcome)| outcome.error.is_none());
    let uids = done.filter_map(|(action, _)| match action {
        Action::Delete(delete) => Some(&*delete.target.uid),
        _ => None,
    });
    uids.collect()
}

/// Returns events about active Jobs that finished or disappeared, and about unexpected Jobs.
fn events(observed: &Observed) -> Vec<EventRecord> {
    let target = wire::target(&*observed.cron);
    let mut events = Vec::new();
    for job in &observed.jobs {
        let name = &job.meta.name;
        match job::finished(job) {
            Some(condition) if observed.is_active(job) => {
                let condition_type = &condition.type_;
                let message = format!("Saw completed job: {name}, condition: {condition_type}");
                events.push(EventRecord::normal(target.clone(), "SawCompletedJob", message));
            }
            None if !observed.is_active(job)
                && !observed.new_runs().any(|(new, _)| new.meta.uid == job.meta.uid) =>
            {
                let message =
                    format!("Saw a job that the controller did not create or forgot: {name}");
                events.push(EventRecord::warning(target.clone(), "UnexpectedJob", message));
            }
            Some(_) | None => {}
        }
    }
    for active in missing(observed) {
        let message = format!("Active job went missing: {}", active.name);
        events.push(EventRecord::normal(target.clone(), "MissingJob", message));
    }
    events
}

/// Returns the entries of `status.active` whose Jobs are gone.
fn missing(observed: &Observed) -> impl Iterator<Item = &ObjectReference> {
    let is_missing = |active: &&ObjectReference| {
        observed.cache_is_current && !observed.jobs.iter().any(|job| job.meta.uid == active.uid)
    };
    observed.cron.status.active.iter().filter(is_missing)
}

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
    fn new(active: &'a ObjectReference) -> Self {
        Self {
            api_version: &active.api_version,
            kind: &active.kind,
            namespace: &active.namespace,
            name: &active.name,
            uid: &active.uid,
            resource_version: &active.resource_version,
        }
    }

    fn to(job: &'a Job) -> Self {
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
            active: status.active.iter().map(Reference::new).collect(),
            last_schedule_time: status.last_schedule_time,
            last_successful_time: status.last_successful_time,
        }
    }

    /// Returns the new status.
    fn next(observed: &'a Observed, deleted: &[&str]) -> Self {
        let old = observed.active().map(|(active, _)| Reference::new(active));
        let active = old.chain(observed.unrecorded_active().map(|job| Reference::to(job)));
        let succeeded = observed.jobs.iter().filter(|job| {
            job::finished(job).is_some_and(|condition| &*condition.type_ == "Complete")
        });
        let last = succeeded.filter_map(|job| job.status.completion_time).max();
        Self {
            active: active.filter(|active| !deleted.contains(&active.uid)).collect(),
            last_schedule_time: observed.last_schedule(),
            last_successful_time: observed.cron.status.last_successful_time.max(last),
        }
    }
}
