//! CronJobs: schedule, concurrency policy, history limits, active Jobs.

use super::config::ObjectReference;
use crate::Meta;
use crate::decode::{message, view};
use crate::template::JobTemplate;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// CronJob, which creates Jobs on a schedule (`batch/v1`).
    pub struct CronJob("k8s.io.api.batch.v1.CronJob") {
        /// Metadata; names of the Jobs begin with its name.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: CronJobSpec = 2 "spec",
        /// Observed state of the object.
        status: CronJobStatus = 3 "status",
    }
}

view!(CronJob, "batch", "v1", "CronJob", "cronjobs", namespaced);

message! {
    /// Desired state of a CronJob.
    pub struct CronJobSpec("k8s.io.api.batch.v1.CronJobSpec") {
        /// Cron schedule of the Jobs; see `evenkeel_component_helpers::cron`.
        schedule: Text = 1 "schedule",
        /// Time zone of the schedule; UTC if absent.
        time_zone: Option<Text> = 8 "timeZone",
        /// Seconds after a missed scheduled time within which the Job can still start; no limit if absent.
        starting_deadline_seconds: Option<i64> = 2 "startingDeadlineSeconds",
        /// `Allow` (also when empty), `Forbid` or `Replace`.
        concurrency_policy: Text = 3 "concurrencyPolicy",
        /// Whether the CronJob is suspended, so that it creates no Jobs.
        suspend: bool = 4 "suspend",
        /// Template of the Jobs.
        job_template: JobTemplate = 5 "jobTemplate",
        /// Number of successful Jobs to keep; all if absent.
        successful_jobs_history_limit: Option<i32> = 6 "successfulJobsHistoryLimit",
        /// Number of failed Jobs to keep; all if absent.
        failed_jobs_history_limit: Option<i32> = 7 "failedJobsHistoryLimit",
    }
}

message! {
    /// Observed state of a CronJob.
    pub struct CronJobStatus("k8s.io.api.batch.v1.CronJobStatus") {
        /// Jobs that have not finished.
        active: Box<[ObjectReference]> = 1 "active",
        /// Scheduled time of the last Job.
        last_schedule_time: Option<Timestamp> = 4 "lastScheduleTime",
        /// Time at which a Job last completed successfully.
        last_successful_time: Option<Timestamp> = 5 "lastSuccessfulTime",
    }
}
