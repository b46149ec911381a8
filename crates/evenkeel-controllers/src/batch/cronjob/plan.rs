//! Which Jobs a CronJob makes and deletes.
//!
//! A Job is made under a name that follows from its time, so that it is made once; the pass that sees it tells of it in the
//! status. What is told there is read off the Jobs, and a crash in between changes nothing.
//!
//! | documented | where |
//! |---|---|
//! | `schedule`, `timeZone` | `times::of`, `times::due` |
//! | `startingDeadlineSeconds`, missed times (`MissSchedule`, `TooManyMissedTimes`) | `start`, `times::due` |
//! | `concurrencyPolicy`: `Allow`, `Forbid`, `Replace` | `start` |
//! | `suspend` | `plan` |
//! | `successfulJobsHistoryLimit`, `failedJobsHistoryLimit` | `history::surplus` |
//! | `jobTemplate`, the Job's name, annotation `batch.kubernetes.io/cronjob-scheduled-timestamp` | `run::name`, `run::body` |
//! | `status.active`, `status.lastScheduleTime`, `status.lastSuccessfulTime` | `status::next` |

use super::{
    history,
    run::Run,
    seen::Seen,
    times::{Times, Unusable},
};
use crate::wire;
use evenkeel_api::{
    View,
    time::{SignedDuration, Timestamp},
    views::{CronJob, Job, ObjectReference},
};
use evenkeel_runtime::plan::{Action, Create, Delete, Note, OnError, Plan, Propagation, Target};

/// What to do: Jobs that are too old go; then, if a time has come, its Job is made.
pub(super) fn plan(seen: &Seen, now: Timestamp) -> Plan {
    let cron = &*seen.cron;
    let mut plan = Plan::nothing();
    for job in history::surplus(cron, &seen.jobs) {
        // One that cannot be deleted is tried again with the next time: a back-off would have times missed.
        let delete = delete(cron, wire::target(&**job));
        plan.push(Delete { on_error: OnError::Ignore, ..delete });
    }
    if cron.meta.deleting() {
        return plan;
    }
    match times(cron, &mut plan) {
        Some(times) if !cron.spec.suspend => start(seen, &times, now, &mut plan),
        Some(_) | None => {}
    }
    plan
}

/// The CronJob's times, or a word to its owner. One that is suspended need not have any.
fn times(cron: &CronJob, plan: &mut Plan) -> Option<Times> {
    let warn = |reason, message: String| Note::warning(wire::target(cron), reason, message);
    let schedule = &cron.spec.schedule;
    match Times::of(cron) {
        Err(Unusable::Zone(why)) => {
            let zone = cron.spec.time_zone.as_deref().unwrap_or_default();
            plan.push(Action::Event(warn(
                "UnknownTimeZone",
                format!("invalid timeZone: {zone:?}: {why}"),
            )));
            None
        }
        Err(Unusable::Schedule(why)) if !cron.spec.suspend => {
            let message = format!("unparseable schedule: {schedule:?} : {why}");
            plan.push(Action::Event(warn("UnparseableSchedule", message)));
            None
        }
        Err(Unusable::Schedule(_)) => None,
        Ok(times) => {
            if schedule.contains("TZ") && !cron.spec.suspend {
                let message = format!(
                    "CRON_TZ or TZ used in schedule {schedule:?} is not officially supported, see \
                     https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                );
                plan.push(Action::Event(warn("UnsupportedSchedule", message)));
            }
            Some(times)
        }
    }
}

fn start(seen: &Seen, times: &Times, now: Timestamp, plan: &mut Plan) {
    let cron = &*seen.cron;
    let target = wire::target(cron);
    let deadline = cron.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let not_before = deadline.and_then(|deadline| now.checked_sub(deadline).ok());
    let due = match times.due(cron, not_before, now) {
        Ok(due) => due,
        Err(why) => {
            let message = format!("invalid schedule: {} : {why}", cron.spec.schedule);
            return plan.push(Action::Event(Note::warning(target, "InvalidSchedule", message)));
        }
    };
    if let Some(next) = times.until_next(cron, now) {
        plan.requeue_after(next);
    }
    let Some(at) = due.at else { return };
    if due.too_many {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or \
                       check clock skew";
        plan.push(Action::Event(Note::warning(target.clone(), "TooManyMissedTimes", message)));
    }
    if not_before.is_some_and(|not_before| at < not_before) {
        let when = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {when}");
        return plan.push(Action::Event(Note::warning(target, "MissSchedule", message)));
    }
    let run = Run { at };
    let name = run.name(cron);
    let is_there = seen.jobs.iter().any(|job| *job.meta.name == *name)
        || cron.status.active.iter().any(|active| *active.name == *name);
    if is_there || seen.last_schedule() == Some(at) {
        return;
    }
    let busy = seen.active().next().is_some() || seen.new_at_work().next().is_some();
    match &*cron.spec.concurrency_policy {
        "Forbid" if busy => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            return plan.push(Action::Event(Note::normal(target, "JobAlreadyActive", message)));
        }
        "Replace" => {
            for (active, _) in seen.active() {
                let delete = Delete { on_error: OnError::SkipRest, ..delete(cron, named(active)) };
                plan.push(delete);
            }
        }
        _ => {}
    }
    // That the name is taken is told of in the status, where it can be told from other errors.
    plan.push(Create {
        done: Some(Note::normal(target, "SuccessfulCreate", "Created job {name}")),
        ..Create::new(Job::kind(), &cron.meta.namespace, run.body(cron, &times.zone))
    });
}

fn named(active: &ObjectReference) -> Target {
    Target::new(Job::kind(), &active.namespace, &active.name, &active.uid)
}

fn delete(cron: &CronJob, job: Target) -> Delete {
    let target = wire::target(cron);
    let done = format!("Deleted job {}", job.name);
    Delete {
        propagation: Some(Propagation::Background),
        done: Some(Note::normal(target.clone(), "SuccessfulDelete", done)),
        failed: Some(Note::warning(target, "FailedDelete", "Deleted job: {error}")),
        ..Delete::new(job)
    }
}
