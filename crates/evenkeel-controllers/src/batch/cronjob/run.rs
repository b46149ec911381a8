//! The Job of one time: its name, by which it is made once only, and its body.

use crate::wire;
use evenkeel_api::{
    View,
    time::Timestamp,
    views::{CronJob, Job},
};
use evenkeel_runtime::plan::Target;
use jiff::tz::TimeZone;
use serde_json::json;

/// On a Job, the time for which it was made, in the CronJob's zone.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The time for which it is.
    pub(super) at: Timestamp,
}

impl Run {
    /// The run that a Job is, if it is one: it has the name and the time of one.
    pub(super) fn of(cron: &CronJob, job: &Job) -> Option<Self> {
        let run = Self { at: job.meta.annotations.get(SCHEDULED)?.parse().ok()? };
        (*run.name(cron) == *job.meta.name).then_some(run)
    }

    /// The Job's name: the CronJob's, and the time in minutes.
    pub(super) fn name(self, cron: &CronJob) -> String {
        format!("{}-{}", cron.meta.name, self.at.as_second() / 60)
    }

    /// The Job's body.
    pub(super) fn body(self, cron: &CronJob, zone: &TimeZone) -> Vec<u8> {
        let template = &cron.spec.job_template;
        let annotations = template.annotations.with(SCHEDULED, &self.written(zone));
        let owner = wire::controller_reference(&Target::of(CronJob::kind(), &cron.meta)).to_json();
        let labels: serde_json::Map<_, _> =
            template.labels.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        let meta = json!({
            "name": self.name(cron), "namespace": &*cron.meta.namespace,
            "labels": labels, "annotations": annotations,
        });
        let meta = meta.to_string();
        // Both are JSON objects: the one is only just made, the other canonical.
        let meta = meta.strip_suffix('}').unwrap_or_default();
        format!(
            r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{meta},"ownerReferences":[{owner}]}},"spec":{}}}"#,
            template.spec
        )
        .into_bytes()
    }

    /// RFC 3339 in the zone.
    fn written(self, zone: &TimeZone) -> String {
        let at = self.at.to_zoned(zone.clone());
        if at.offset().is_zero() {
            return at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        }
        at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }
}
