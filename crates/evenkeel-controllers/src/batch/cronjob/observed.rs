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
    pub(super) cache_is_current: bool,
    /// Time zone of a schedule without one.
    pub(super) local_zone: TimeZone,
}

impl Observed {
    pub(super) fn new(
        cron: Arc<CronJob>,
        mut jobs: Vec<Arc<Job>>,
        cache_is_current: bool,
        local_zone: TimeZone,
    ) -> Self {
        jobs.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        Self { cron, jobs, cache_is_current, local_zone }
    }

    /// Whether `status.active` has the Job. Upstream: `inActiveList`.
    pub(super) fn is_active(&self, job: &Job) -> bool {
        self.cron.status.active.iter().any(|active| active.uid == job.meta.uid)
    }

    /// Returns the entries of `status.active` whose Job is not finished. Omits a missing Job if the cache is current.
    pub(super) fn active(&self) -> impl Iterator<Item = (&ObjectReference, Option<&Arc<Job>>)> {
        let found =
            |active: &ObjectReference| self.jobs.iter().find(|job| job.meta.uid == active.uid);
        let active = self.cron.status.active.iter().map(move |active| (active, found(active)));
        active.filter(|(_, job)| job.map_or(!self.cache_is_current, |job| !job::is_finished(job)))
    }

    /// Returns the Jobs that the status lacks, with their scheduled times.
    pub(super) fn new_runs(&self) -> impl Iterator<Item = (&Arc<Job>, Timestamp)> {
        let last_schedule = self.cron.status.last_schedule_time;
        let runs = self.jobs.iter().filter_map(|job| Some((job, Run::of(&self.cron, job)?.at)));
        runs.filter(move |(job, at)| {
            last_schedule.is_none_or(|last_schedule| *at > last_schedule) && !self.is_active(job)
        })
    }

    /// Returns the unfinished Jobs that the status lacks.
    pub(super) fn unrecorded_active(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.new_runs().map(|(job, _)| job).filter(|job| !job::is_finished(job))
    }

    /// Returns the last time at which a Job was scheduled, including Jobs that the status lacks.
    pub(super) fn last_schedule(&self) -> Option<Timestamp> {
        self.cron.status.last_schedule_time.max(self.new_runs().map(|(_, at)| at).max())
    }
}
