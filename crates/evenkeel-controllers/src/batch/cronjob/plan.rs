//! Jobs that a CronJob creates and deletes. Upstream: `syncCronJob` in `cronjob_controllerv2.go`.
//!
//! A Job's name contains its scheduled time, so the API server accepts the Job only once. A later reconciliation
//! observes the Job and updates the status, even if the controller crashed in between.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `schedule`, `timeZone` | `times::of`, `times::due` |
//! | `startingDeadlineSeconds`, missed times (`MissSchedule`, `TooManyMissedTimes`) | `due_time`, `times::due` |
//! | `concurrencyPolicy`: `Allow`, `Forbid` | `apply_concurrency_policy` |
//! | `concurrencyPolicy`: `Replace` | `replace_active_jobs` |
//! | `suspend` | `plan` |
//! | `successfulJobsHistoryLimit`, `failedJobsHistoryLimit` | `history::surplus` |
//! | `jobTemplate`, the Job's name, annotation `batch.kubernetes.io/cronjob-scheduled-timestamp` | `run::job_name`, `run::job_json` |
//! | `status.active`, `status.lastScheduleTime`, `status.lastSuccessfulTime` | `status::next` |

use super::{
    history,
    observed::Observed,
    run::Run,
    times::{MissedSchedules, ScheduleError, ZonedSchedule},
};
use crate::wire;
use evenkeel_api::{
    View,
    time::{SignedDuration, Timestamp},
    views::{CronJob, Job, ObjectReference},
};
use evenkeel_runtime::plan::{
    Action, Create, Delete, EventRecord, OnError, Plan, Propagation, Target,
};

/// Deletes finished Jobs beyond the history limits, then creates the Job that is due. Upstream: `syncCronJob`,
/// `cleanupFinishedJobs`.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let cron = &*observed.cron;
    let mut plan = Plan::nothing();
    for job in history::surplus(cron, &observed.jobs) {
        // The reconciliation at the next scheduled time repeats a failed deletion. A retry with backoff could start
        // after that time.
        let deletion = job_deletion(cron, wire::target(&**job));
        plan.push(Delete { on_error: OnError::Ignore, ..deletion });
    }
    if cron.meta.deleting() {
        return plan;
    }
    if let Some(schedule) = parse_schedule(observed, &mut plan)
        && !cron.spec.suspend
    {
        start_due_job(observed, &schedule, now, &mut plan);
    }
    plan
}

/// Parses the schedule, and records an event about an invalid one. A suspended CronJob may have an unparseable
/// schedule, but no unknown time zone.
fn parse_schedule(observed: &Observed, plan: &mut Plan) -> Option<ZonedSchedule> {
    let cron = &*observed.cron;
    let warning =
        |reason, message: String| EventRecord::warning(wire::target(cron), reason, message);
    let schedule = &cron.spec.schedule;
    match ZonedSchedule::of(cron, &observed.local_zone) {
        Err(ScheduleError::Zone(error)) => {
            let zone = cron.spec.time_zone.as_deref().unwrap_or_default();
            let message = format!("invalid timeZone: {zone:?}: {error}");
            plan.push(Action::Event(warning("UnknownTimeZone", message)));
            None
        }
        Err(ScheduleError::Schedule(error)) if !cron.spec.suspend => {
            let message = format!("unparseable schedule: {schedule:?} : {error}");
            plan.push(Action::Event(warning("UnparseableSchedule", message)));
            None
        }
        Err(ScheduleError::Schedule(_)) => None,
        Ok(zoned_schedule) => {
            if schedule.contains("TZ") && !cron.spec.suspend {
                let message = format!(
                    "CRON_TZ or TZ used in schedule {schedule:?} is not officially supported, see \
                     https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                );
                plan.push(Action::Event(warning("UnsupportedSchedule", message)));
            }
            Some(zoned_schedule)
        }
    }
}

/// Creates the Job of the most recent scheduled time, if deadline and concurrency policy allow it. Upstream:
/// `syncCronJob`.
fn start_due_job(observed: &Observed, schedule: &ZonedSchedule, now: Timestamp, plan: &mut Plan) {
    let cron = &*observed.cron;
    let Some(at) = due_time(observed, schedule, now, plan) else { return };
    let run = Run { at };
    let name = run.job_name(cron);
    let job_exists = observed.jobs.iter().any(|job| *job.meta.name == *name)
        || cron.status.active.iter().any(|active| *active.name == *name);
    if job_exists || observed.last_schedule() == Some(at) {
        return;
    }
    if apply_concurrency_policy(observed, plan) {
        // `status` records an event about a failure, except for AlreadyExists.
        let done =
            EventRecord::normal(wire::target(cron), "SuccessfulCreate", "Created job {name}");
        plan.push(Create {
            done: Some(done),
            ..Create::new(Job::kind(), &cron.meta.namespace, run.job_json(cron))
        });
    }
}

/// Returns the most recent scheduled time, if its Job may still start: `startingDeadlineSeconds` has not passed. Requeues
/// the CronJob for the next time, and records events about missed times.
fn due_time(
    observed: &Observed,
    schedule: &ZonedSchedule,
    now: Timestamp,
    plan: &mut Plan,
) -> Option<Timestamp> {
    let cron = &*observed.cron;
    let warn = |plan: &mut Plan, reason, message: String| {
        plan.push(Action::Event(EventRecord::warning(wire::target(cron), reason, message)));
    };
    let deadline = cron.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let not_before = deadline.and_then(|deadline| now.checked_sub(deadline).ok());
    let due = match schedule.due(cron, not_before, now) {
        Ok(due) => due,
        Err(error) => {
            let message = format!("invalid schedule: {} : {error}", cron.spec.schedule);
            warn(plan, "InvalidSchedule", message);
            return None;
        }
    };
    if let Some(delay) = schedule.until_next(cron, now) {
        plan.requeue_after(delay);
    }
    let at = due.at?;
    if due.missed == MissedSchedules::Many {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or \
                       check clock skew";
        warn(plan, "TooManyMissedTimes", message.to_owned());
    }
    if not_before.is_some_and(|not_before| at < not_before) {
        let scheduled = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {scheduled}");
        warn(plan, "MissSchedule", message);
        return None;
    }
    Some(at)
}

/// Applies `concurrencyPolicy`. Returns whether a Job may start: with `Forbid`, only if no other one is active. With
/// `Replace`, deletes the active ones.
fn apply_concurrency_policy(observed: &Observed, plan: &mut Plan) -> bool {
    let cron = &*observed.cron;
    let has_active_job = observed.unfinished_in_active_list().next().is_some()
        || observed.unrecorded_active_jobs().next().is_some();
    match &*cron.spec.concurrency_policy {
        "Forbid" if has_active_job => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            let target = wire::target(cron);
            plan.push(Action::Event(EventRecord::normal(target, "JobAlreadyActive", message)));
            false
        }
        "Replace" => {
            replace_active_jobs(observed, plan);
            true
        }
        _ => true,
    }
}

/// Deletes the active Jobs for `concurrencyPolicy: Replace`. If a deletion fails, the new Job is not created. Upstream:
/// the branch `ReplaceConcurrent` of `syncCronJob`.
fn replace_active_jobs(observed: &Observed, plan: &mut Plan) {
    let cron = &*observed.cron;
    for active in observed.unfinished_in_active_list() {
        let deletion = job_deletion(cron, job_target(active));
        plan.push(Delete { on_error: OnError::SkipRest, ..deletion });
    }
}

/// Returns the Job of an entry in `status.active`.
fn job_target(active: &ObjectReference) -> Target {
    Target::new(Job::kind(), &active.namespace, &active.name, &active.uid)
}

/// Returns the deletion of a Job, with its events.
fn job_deletion(cron: &CronJob, job: Target) -> Delete {
    let target = wire::target(cron);
    let done = format!("Deleted job {}", job.name);
    Delete {
        propagation: Some(Propagation::Background),
        done: Some(EventRecord::normal(target.clone(), "SuccessfulDelete", done)),
        failed: Some(EventRecord::warning(target, "FailedDelete", "Deleted job: {error}")),
        ..Delete::new(job)
    }
}
