//! History limits of finished Jobs. Upstream: `cleanupFinishedJobs`.

use crate::batch::job;
use evenkeel_api::views::{CronJob, Job};
use std::{cmp::Ordering, sync::Arc};

/// Returns the oldest successful Jobs beyond `successfulJobsHistoryLimit`, then the oldest failed ones beyond
/// `failedJobsHistoryLimit`.
pub(super) fn surplus<'a>(cron: &CronJob, jobs: &'a [Arc<Job>]) -> Vec<&'a Arc<Job>> {
    let finished = |type_: &str| -> Vec<&'a Arc<Job>> {
        let finished = jobs.iter().filter(|job| {
            !job.meta.deleting() && job::finished(job).is_some_and(|c| &*c.type_ == type_)
        });
        finished.collect()
    };
    let mut surplus = oldest(finished("Complete"), cron.spec.successful_jobs_history_limit);
    surplus.extend(oldest(finished("Failed"), cron.spec.failed_jobs_history_limit));
    surplus
}

/// Returns the oldest Jobs beyond the limit; none without a limit.
fn oldest(mut jobs: Vec<&Arc<Job>>, limit: Option<i32>) -> Vec<&Arc<Job>> {
    let Some(limit) = limit else { return Vec::new() };
    jobs.sort_by(|a, b| by_start(a, b));
    jobs.truncate(jobs.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
    jobs
}

/// Orders by start time; Jobs without one come last. Upstream: `byJobStartTime`.
fn by_start(a: &Job, b: &Job) -> Ordering {
    let (x, y) = (a.status.start_time, b.status.start_time);
    x.is_none().cmp(&y.is_none()).then(x.cmp(&y)).then_with(|| a.meta.name.cmp(&b.meta.name))
}
