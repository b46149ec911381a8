//! The Job of one scheduled time: name and body. Upstream: `getJobFromTemplate2`.

use crate::wire;
use evenkeel_api::{
    View,
    time::Timestamp,
    views::{CronJob, Job},
};
use evenkeel_component_helpers::cron;
use evenkeel_runtime::plan::Target;
use jiff::tz::TimeZone;
use serde_json::json;

/// Annotation of a Job with its scheduled time, in the CronJob's `timeZone`, or in UTC without one. Upstream:
/// `CronJobScheduledTimestampAnnotation`.
const SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// A run of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The scheduled time.
    pub(super) at: Timestamp,
}

impl Run {
    /// Returns the run that created the Job, or `None` if the Job's name does not match its scheduled time.
    pub(super) fn of(cron: &CronJob, job: &Job) -> Option<Self> {
        let run = Self { at: job.meta.annotations.get(SCHEDULED_TIMESTAMP)?.parse().ok()? };
        (*run.job_name(cron) == *job.meta.name).then_some(run)
    }

    /// Returns the Job's name: the CronJob's and the time in minutes. Upstream: `getJobName`.
    pub(super) fn job_name(self, cron: &CronJob) -> String {
        format!("{}-{}", cron.meta.name, self.at.as_second() / 60)
    }

    /// Returns the Job's body.
    pub(super) fn job_json(self, cron: &CronJob) -> Vec<u8> {
        let zone =
            cron.spec.time_zone.as_deref().and_then(cron::time_zone).unwrap_or(TimeZone::UTC);
        let template = &cron.spec.job_template;
        let annotations = template.annotations.with(SCHEDULED_TIMESTAMP, &self.rfc3339(&zone));
        let owner = wire::controller_reference(&Target::of(CronJob::kind(), &cron.meta)).to_json();
        let meta = json!({
            "name": self.job_name(cron), "namespace": &*cron.meta.namespace,
            "labels": wire::json_map(&template.labels), "annotations": wire::json_map(&annotations),
        });
        let meta = meta.to_string();
        // Both parts are JSON objects, so they can be joined as text.
        let open_meta = meta.strip_suffix('}').unwrap_or_default();
        format!(
            r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{open_meta},"ownerReferences":[{owner}]}},"spec":{}}}"#,
            template.spec
        )
        .into_bytes()
    }

    /// Formats the time as RFC 3339 in the time zone.
    fn rfc3339(self, zone: &TimeZone) -> String {
        let at = self.at.to_zoned(zone.clone());
        if at.offset().is_zero() {
            return at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        }
        at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }
}
