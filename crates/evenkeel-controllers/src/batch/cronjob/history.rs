//! History limits of finished Jobs. Upstream: `cleanupFinishedJobs`.

use crate::batch::job;
use evenkeel_api::views::{CronJob, Job};
use std::{cmp::Ordering, sync::Arc};

/// Returns the oldest successful Jobs beyond `successfulJobsHistoryLimit`, then the oldest failed ones beyond
/// `failedJobsHistoryLimit`.
pub(super) fn surplus<'a>(cron: &CronJob, jobs: &'a [Arc<Job>]) -> Vec<&'a Arc<Job>> {
    let successful = finished_with("Complete", jobs);
    let failed = finished_with("Failed", jobs);
    let mut surplus = oldest_beyond(cron.spec.successful_jobs_history_limit, successful);
    surplus.extend(oldest_beyond(cron.spec.failed_jobs_history_limit, failed));
    surplus
}

/// Returns the finished Jobs whose final condition has this type, except those that are being deleted.
fn finished_with<'a>(condition_type: &str, jobs: &'a [Arc<Job>]) -> Vec<&'a Arc<Job>> {
    let finished = jobs.iter().filter(|job| {
        let condition = job::final_condition(job);
        !job.meta.deleting()
            && condition.is_some_and(|condition| &*condition.type_ == condition_type)
    });
    finished.collect()
}

/// Returns the oldest Jobs beyond the limit; none without a limit.
fn oldest_beyond(limit: Option<i32>, mut jobs: Vec<&Arc<Job>>) -> Vec<&Arc<Job>> {
    let Some(limit) = limit else { return Vec::new() };
    jobs.sort_by(|a, b| by_start(a, b));
    jobs.truncate(jobs.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
    jobs
}

/// Orders by start time; Jobs without one come last. Upstream: `byJobStartTime`.
fn by_start(a: &Job, b: &Job) -> Ordering {
    let start_rank = |job: &Job| (job.status.start_time.is_none(), job.status.start_time);
    start_rank(a).cmp(&start_rank(b)).then_with(|| a.meta.name.cmp(&b.meta.name))
}
