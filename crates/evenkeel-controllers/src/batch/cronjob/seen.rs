//! What a CronJob's decision looks at: its Jobs, and what has become of them.

use super::run::Run;
use crate::batch::job;
use evenkeel_api::{
    time::Timestamp,
    views::{CronJob, Job, ObjectReference},
};
use std::sync::Arc;

/// A CronJob with its Jobs.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) cron: Arc<CronJob>,
    /// By name.
    pub(super) jobs: Vec<Arc<Job>>,
    /// Whether a Job that is not among `jobs` is gone: the Jobs that were seen are no older than the CronJob.
    pub(super) all: bool,
}

impl Seen {
    pub(super) fn new(cron: Arc<CronJob>, mut jobs: Vec<Arc<Job>>, all: bool) -> Self {
        jobs.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        Self { cron, jobs, all }
    }

    /// Whether the status has the Job as active.
    pub(super) fn is_active(&self, job: &Job) -> bool {
        self.cron.status.active.iter().any(|active| active.uid == job.meta.uid)
    }

    /// Jobs that the status has as active and that are, with those that are not known to be gone.
    pub(super) fn active(&self) -> impl Iterator<Item = (&ObjectReference, Option<&Arc<Job>>)> {
        let found =
            |active: &ObjectReference| self.jobs.iter().find(|job| job.meta.uid == active.uid);
        let active = self.cron.status.active.iter().map(move |active| (active, found(active)));
        active.filter(|(_, job)| job.map_or(!self.all, |job| !job::is_finished(job)))
    }

    /// Jobs that were made and that the status does not tell of yet, and for when.
    pub(super) fn new_runs(&self) -> impl Iterator<Item = (&Arc<Job>, Timestamp)> {
        let told = self.cron.status.last_schedule_time;
        let runs = self.jobs.iter().filter_map(|job| Some((job, Run::of(&self.cron, job)?.at)));
        runs.filter(move |(job, at)| told.is_none_or(|told| *at > told) && !self.is_active(job))
    }

    /// Those of them that have not ended.
    pub(super) fn new_at_work(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.new_runs().map(|(job, _)| job).filter(|job| !job::is_finished(job))
    }

    /// The time for which a Job was last made.
    pub(super) fn last_schedule(&self) -> Option<Timestamp> {
        self.cron.status.last_schedule_time.max(self.new_runs().map(|(_, at)| at).max())
    }
}
