//! Observed state of a CronJob and its Jobs.

use super::run::Run;
use crate::batch::job;
use evenkeel_api::{
    time::{TimeZone, Timestamp},
    views::{CronJob, Job, ObjectReference},
};
use std::sync::Arc;

/// A CronJob with its Jobs.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) cron: Arc<CronJob>,
    /// Jobs of the CronJob, by name.
    pub(super) jobs: Vec<Arc<Job>>,
    /// Whether the cache of Jobs is at least as new as the CronJob. If so, a Job that `jobs` lacks does not exist.
    pub(super) are_jobs_current: bool,
    /// Time zone of a schedule that names none.
    pub(super) local_zone: TimeZone,
}

/// A Job that the CronJob created.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduledJob<'a> {
    pub(super) job: &'a Arc<Job>,
    /// The scheduled time.
    pub(super) at: Timestamp,
}

impl Observed {
    pub(super) fn new(
        cron: Arc<CronJob>,
        mut jobs: Vec<Arc<Job>>,
        are_jobs_current: bool,
        local_zone: TimeZone,
    ) -> Self {
        jobs.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        Self { cron, jobs, are_jobs_current, local_zone }
    }

    /// Returns whether `status.active` has the Job. Upstream: `inActiveList`.
    pub(super) fn is_in_active_list(&self, job: &Job) -> bool {
        self.cron.status.active.iter().any(|active| active.uid == job.meta.uid)
    }

    /// Returns the entries of `status.active` whose Job is not finished. Omits a missing Job if the cache is current.
    pub(super) fn unfinished_in_active_list(&self) -> impl Iterator<Item = &ObjectReference> {
        self.cron.status.active.iter().filter(|active| {
            match self.jobs.iter().find(|job| job.meta.uid == active.uid) {
                Some(job) => !job::is_finished(job),
                None => !self.are_jobs_current,
            }
        })
    }

    /// Returns the Jobs that the CronJob created after the last update of its status.
    pub(super) fn unrecorded_jobs(&self) -> impl Iterator<Item = ScheduledJob<'_>> {
        let last_schedule = self.cron.status.last_schedule_time;
        self.jobs.iter().filter_map(move |job| {
            let at = Run::of(&self.cron, job)?.at;
            let is_unrecorded = last_schedule.is_none_or(|last_schedule| at > last_schedule)
                && !self.is_in_active_list(job);
            is_unrecorded.then_some(ScheduledJob { job, at })
        })
    }

    /// Returns the unfinished Jobs of [`Self::unrecorded_jobs`].
    pub(super) fn unrecorded_active_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.unrecorded_jobs().map(|scheduled| scheduled.job).filter(|job| !job::is_finished(job))
    }

    /// Returns the last time at which a Job was scheduled, including Jobs that the status lacks.
    pub(super) fn last_schedule(&self) -> Option<Timestamp> {
        let last_unrecorded = self.unrecorded_jobs().map(|scheduled| scheduled.at).max();
        self.cron.status.last_schedule_time.max(last_unrecorded)
    }
}
