//! CronJobs.

use super::config::ObjectReference;
use crate::Meta;
use crate::decode::{message, view};
use crate::template::JobTemplate;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Creates Jobs on a schedule (`batch/v1`).
    pub struct CronJob("k8s.io.api.batch.v1.CronJob") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: CronJobSpec = 2 "spec",
        /// Observed state of the object.
        status: CronJobStatus = 3 "status",
    }
}

view!(CronJob, "batch", "v1", "CronJob", "cronjobs", true);

message! {
    /// Desired state of a CronJob.
    pub struct CronJobSpec("k8s.io.api.batch.v1.CronJobSpec") {
        /// When Jobs are made; see [`crate::cron`].
        schedule: Text = 1 "schedule",
        /// The zone that the schedule is of; UTC where absent.
        time_zone: Option<Text> = 8 "timeZone",
        /// How many seconds late a Job may be made.
        starting_deadline_seconds: Option<i64> = 2 "startingDeadlineSeconds",
        /// `Allow` (also when empty), `Forbid` or `Replace`.
        concurrency_policy: Text = 3 "concurrencyPolicy",
        /// Whether no Jobs are made for now.
        suspend: bool = 4 "suspend",
        /// What Jobs are made from.
        job_template: JobTemplate = 5 "jobTemplate",
        /// How many Jobs are kept that succeeded; all where absent.
        successful_jobs_history_limit: Option<i32> = 6 "successfulJobsHistoryLimit",
        /// How many Jobs are kept that failed; all where absent.
        failed_jobs_history_limit: Option<i32> = 7 "failedJobsHistoryLimit",
    }
}

message! {
    /// Observed state of a CronJob: active Jobs, last times.
    pub struct CronJobStatus("k8s.io.api.batch.v1.CronJobStatus") {
        /// Jobs that have not ended.
        active: Box<[ObjectReference]> = 1 "active",
        /// The time for which a Job was last made.
        last_schedule_time: Option<Timestamp> = 4 "lastScheduleTime",
        /// When a Job last succeeded.
        last_successful_time: Option<Timestamp> = 5 "lastSuccessfulTime",
    }
}
