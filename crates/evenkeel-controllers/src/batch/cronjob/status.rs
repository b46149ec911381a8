//! A CronJob's status: which Jobs run, when the last one was made, and when one last succeeded.

use super::seen::Seen;
use crate::{batch::job, wire};
use evenkeel_api::{
    time::Timestamp,
    views::{Job, ObjectReference},
};
use evenkeel_runtime::plan::{Action, Note, OnError, Outcomes, Plan, Update};
use serde::Serialize;

/// What follows from the Jobs that were seen.
pub(super) fn status(seen: &Seen, plan: &Plan, outcomes: &Outcomes) -> Plan {
    let cron = &*seen.cron;
    let target = wire::target(cron);
    let mut after = Plan::nothing();
    for (action, outcome) in plan.actions.iter().zip(&outcomes.0) {
        // A Job of that name is there already, or will be seen soon: nothing that its owner must be told.
        if let (Action::Create(_), Some(error)) = (action, &outcome.error)
            && !error.is_already_exists()
            && !error.namespace_terminating
        {
            let message = format!("Error creating job: {}", error.message);
            after.push(Action::Event(Note::warning(target.clone(), "FailedCreate", message)));
        }
    }
    let next = Status::next(seen, &deleted(plan, outcomes));
    let notes = notes(seen).into_iter().map(Action::Event);
    if next == Status::of(seen) {
        after.actions.extend(notes);
        return after;
    }
    let body = wire::status_body(cron, &cron.meta.annotations, &next);
    after.push(Update { on_error: OnError::Abort, ..Update::status(target, body) });
    after.actions.extend(notes);
    after
}

/// Uids of the Jobs that were deleted.
fn deleted<'a>(plan: &'a Plan, outcomes: &Outcomes) -> Vec<&'a str> {
    let done = plan.actions.iter().zip(&outcomes.0).filter(|(_, outcome)| outcome.error.is_none());
    let uids = done.filter_map(|(action, _)| match action {
        Action::Delete(delete) => Some(&*delete.target.uid),
        _ => None,
    });
    uids.collect()
}

/// What became of Jobs that were active, and Jobs that nobody expected.
fn notes(seen: &Seen) -> Vec<Note> {
    let target = wire::target(&*seen.cron);
    let mut notes = Vec::new();
    for job in &seen.jobs {
        let name = &job.meta.name;
        match job::finished(job) {
            Some(condition) if seen.is_active(job) => {
                let how = &condition.type_;
                let message = format!("Saw completed job: {name}, condition: {how}");
                notes.push(Note::normal(target.clone(), "SawCompletedJob", message));
            }
            None if !seen.is_active(job)
                && !seen.new_runs().any(|(new, _)| new.meta.uid == job.meta.uid) =>
            {
                let message =
                    format!("Saw a job that the controller did not create or forgot: {name}");
                notes.push(Note::warning(target.clone(), "UnexpectedJob", message));
            }
            Some(_) | None => {}
        }
    }
    for active in missing(seen) {
        let message = format!("Active job went missing: {}", active.name);
        notes.push(Note::normal(target.clone(), "MissingJob", message));
    }
    notes
}

/// Jobs that the status has as active and that are gone.
fn missing(seen: &Seen) -> impl Iterator<Item = &ObjectReference> {
    let gone = |active: &&ObjectReference| {
        seen.all && !seen.jobs.iter().any(|job| job.meta.uid == active.uid)
    };
    seen.cron.status.active.iter().filter(gone)
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    active: Vec<Reference<'a>>,
    #[serde(serialize_with = "wire::time", skip_serializing_if = "Option::is_none")]
    last_schedule_time: Option<Timestamp>,
    #[serde(serialize_with = "wire::time", skip_serializing_if = "Option::is_none")]
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
    /// As it is.
    fn of(seen: &'a Seen) -> Self {
        let status = &seen.cron.status;
        Self {
            active: status.active.iter().map(Reference::new).collect(),
            last_schedule_time: status.last_schedule_time,
            last_successful_time: status.last_successful_time,
        }
    }

    /// As it is to be.
    fn next(seen: &'a Seen, deleted: &[&str]) -> Self {
        let old = seen.active().map(|(active, _)| Reference::new(active));
        let active = old.chain(seen.new_at_work().map(|job| Reference::to(job)));
        let succeeded = seen.jobs.iter().filter(|job| {
            job::finished(job).is_some_and(|condition| &*condition.type_ == "Complete")
        });
        let last = succeeded.filter_map(|job| job.status.completion_time).max();
        Self {
            active: active.filter(|active| !deleted.contains(&active.uid)).collect(),
            last_schedule_time: seen.last_schedule(),
            last_successful_time: seen.cron.status.last_successful_time.max(last),
        }
    }
}
