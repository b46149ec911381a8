//! Under faults, scheduled work happens exactly once for each scheduled time.

use crate::{
    fixtures::{MINUTE, PODS, REST, SILENCE, each, every_kind},
    jobs::{JOBS, job},
};
use evenkeel_sim::{FaultKind, Faults, Options, World};
use serde_json::json;
use std::collections::BTreeSet;

const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";

/// A CronJob creates a Job every five minutes. Each Job is deleted a minute after it finished. The controllers skip no Job,
/// create none twice, and leave none behind.
pub(crate) async fn runs_on_time(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let once = job(&json!({"ttlSecondsAfterFinished": 60}), &json!({}));
    let spec = json!({"schedule": "*/5 * * * *", "jobTemplate": {"spec": once["spec"]}});
    world.create(CRON_JOBS, &json!({"metadata": {"name": "often"}, "spec": spec})).await;
    let mut seen = BTreeSet::new();
    for _ in 0..60 {
        world.pass(MINUTE / 4).await;
        for job in world.list(JOBS).await {
            let time =
                &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
            let new = seen.insert((time.to_string(), job["metadata"]["uid"].to_string()));
            let times: BTreeSet<&String> = seen.iter().map(|(time, _)| time).collect();
            assert!(!new || times.len() == seen.len(), "two Jobs of one time: {seen:#?}");
        }
    }
    assert_eq!(seen.len(), 3, "{seen:#?}");
    world.merge(&format!("{CRON_JOBS}/often"), &json!({"spec": {"suspend": true}})).await;
    world.settle(2 * MINUTE).await;
    assert!(world.list(JOBS).await.is_empty() && world.list(PODS).await.is_empty());
    let cron = world.get(&format!("{CRON_JOBS}/often")).await.expect("it is there");
    assert!(cron["status"]["active"].as_array().is_none_or(Vec::is_empty), "{cron:#}");
    world.stays_silent(SILENCE).await;
}

#[test]
fn with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 10, &runs_on_time);
}

#[test]
fn cron_job_with_every_kind_of_fault() {
    every_kind(&Options::default(), &runs_on_time);
}
