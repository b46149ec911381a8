//! Tests of a CronJob's schedule, concurrency policy, history limits and status.

use super::{observed::Observed, plan::plan, status::status};
use crate::fixtures::{object, owned_by};
use evenkeel_api::{
    time::{TimeZone, Timestamp},
    views::{CronJob, Job},
};
use evenkeel_runtime::plan::{Action, Failure, OnError, Outcome, Outcomes, Plan};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns the CronJob `tick`, which was created at 09:30 and runs every hour. The fields of `spec` replace its fields.
fn cron(spec: &Value) -> CronJob {
    let mut body = json!({
        "metadata": { "name": "tick", "namespace": "ns", "uid": "cron", "creationTimestamp": "2026-01-05T09:30:00Z" },
        "spec": {
            "schedule": "0 * * * *",
            "jobTemplate": {
                "metadata": { "labels": { "from": "tick" }, "annotations": { "note": "hello" } },
                "spec": { "backoffLimit": 0 },
            },
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        body["spec"][key] = value.clone();
    }
    object(&body)
}

/// Returns a Job of the CronJob that started at the time `at`. With a `condition`, the Job also finished at that time.
fn job(cron: &CronJob, name: &str, condition: Option<&str>, at: &str) -> Arc<Job> {
    let conditions = condition.map(|type_| json!([{ "type": type_, "status": "True" }]));
    let mut job: Job = object(&json!({
        "metadata": { "name": name, "namespace": "ns", "uid": name, "resourceVersion": "3" },
        "status": { "conditions": conditions, "startTime": at, "completionTime": condition.map(|_| at) },
    }));
    job.meta.owners = owned_by(cron);
    Arc::new(job)
}

/// Sets `status.active` to Jobs with these names.
fn set_active(cron: &mut CronJob, names: &[&str]) {
    let active: Vec<Value> = names
        .iter()
        .map(|name| json!({ "kind": "Job", "apiVersion": "batch/v1", "namespace": "ns", "name": name, "uid": name }))
        .collect();
    cron.status = object::<CronJob>(&json!({ "status": { "active": active } })).status;
}

fn observed(cron: &CronJob, jobs: &[Arc<Job>]) -> Observed {
    Observed::new(Arc::new(cron.clone()), jobs.to_vec(), true, TimeZone::UTC)
}

/// Returns a summary of each action.
fn action_summaries(plan: &Plan) -> Vec<String> {
    let summary = |action: &Action| match action {
        Action::Create(create) => {
            let body: Value = serde_json::from_slice(&create.body).unwrap();
            format!("create {}", body["metadata"]["name"].as_str().unwrap())
        }
        Action::Delete(delete) => format!("delete {}", delete.target.name),
        Action::Event(event) => event.reason.to_string(),
        Action::Update(_) => "update".to_owned(),
        other => panic!("{other:?}"),
    };
    plan.actions.iter().map(summary).collect()
}

#[test]
fn schedule_without_time_zone_uses_the_local_zone() {
    let vienna = evenkeel_component_helpers::cron::time_zone("Europe/Vienna").unwrap();
    let daily = cron(&json!({ "schedule": "0 12 * * *" }));
    let observed = Observed { local_zone: vienna, ..observed(&daily, &[]) };
    assert_eq!(action_summaries(&plan(&observed, time("2026-01-05T10:59:00Z"))), [""; 0]);
    let planned = plan(&observed, time("2026-01-05T11:00:00Z"));
    let [Action::Create(create)] = &planned.actions[..] else { panic!("{planned:?}") };
    let body: Value = serde_json::from_slice(&create.body).unwrap();
    let scheduled =
        &body["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(scheduled, "2026-01-05T11:00:00Z", "in UTC, as the CronJob names no zone");
}

#[test]
fn job_is_created_when_due() {
    // Spec, current time, and expected actions.
    let table: [(Value, &str, &[&str]); 7] = [
        (json!({}), "2026-01-05T09:59:59Z", &[]),
        (json!({}), "2026-01-05T10:00:00Z", &["create tick-29460120"]),
        (json!({ "suspend": true }), "2026-01-05T10:00:00Z", &[]),
        (json!({ "startingDeadlineSeconds": 60 }), "2026-01-05T10:30:00Z", &[]),
        (json!({ "timeZone": "Mars/Olympus" }), "2026-01-05T10:00:00Z", &["UnknownTimeZone"]),
        (json!({ "schedule": "often" }), "2026-01-05T10:00:00Z", &["UnparseableSchedule"]),
        (
            json!({ "schedule": "* * * * *" }),
            "2026-01-05T12:00:00Z",
            &["TooManyMissedTimes", "create tick-29460240"],
        ),
    ];
    for (spec, now, expected) in table {
        assert_eq!(
            action_summaries(&plan(&observed(&cron(&spec), &[]), time(now))),
            expected,
            "{spec} {now}"
        );
    }
}

#[test]
fn job_is_built_from_the_template() {
    let cron = cron(&json!({ "timeZone": "Asia/Tokyo" }));
    let planned = plan(&observed(&cron, &[]), time("2026-01-05T10:00:00Z"));
    let Some(Action::Create(create)) = planned.actions.first() else { panic!("{planned:?}") };
    let body: Value = serde_json::from_slice(&create.body).unwrap();
    assert_eq!(body["metadata"]["labels"], json!({ "from": "tick" }));
    assert_eq!(body["metadata"]["annotations"]["note"], "hello");
    let scheduled =
        &body["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(scheduled, "2026-01-05T19:00:00+09:00");
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "cron");
    assert_eq!(body["spec"]["backoffLimit"], 0);
    assert_eq!(planned.requeue, Some(Duration::from_millis(3_600_100)));
}

#[test]
fn concurrency_policy_decides_about_active_jobs() {
    for (policy, expected) in [
        ("Allow", vec!["create tick-29460120"]),
        ("Forbid", vec!["JobAlreadyActive"]),
        ("Replace", vec!["delete old", "create tick-29460120"]),
    ] {
        let mut cron = cron(&json!({ "concurrencyPolicy": policy }));
        set_active(&mut cron, &["old"]);
        let jobs = [job(&cron, "old", None, "2026-01-05T09:31:00Z")];
        assert_eq!(
            action_summaries(&plan(&observed(&cron, &jobs), time("2026-01-05T10:00:00Z"))),
            expected
        );
        // A finished Job does not block the next one.
        let jobs = [job(&cron, "old", Some("Complete"), "2026-01-05T09:31:00Z")];
        let planned =
            action_summaries(&plan(&observed(&cron, &jobs), time("2026-01-05T10:00:00Z")));
        assert_eq!(planned, ["create tick-29460120"]);
    }
}

/// Returns a Job of the CronJob whose annotation has the scheduled time `at`. `status.active` does not contain the Job.
fn scheduled_job(cron: &CronJob, name: &str, at: &str, condition: Option<&str>) -> Arc<Job> {
    let mut job = job(cron, name, condition, at);
    Arc::make_mut(&mut job).meta.annotations =
        [("batch.kubernetes.io/cronjob-scheduled-timestamp", at)].into_iter().collect();
    job
}

#[test]
fn forbid_counts_unfinished_jobs_that_the_status_lacks() {
    let cron = cron(&json!({ "concurrencyPolicy": "Forbid" }));
    let table = [
        (None, vec!["JobAlreadyActive"]),
        (Some("Complete"), vec!["create tick-29460180"]),
        (Some("Failed"), vec!["create tick-29460180"]),
    ];
    for (condition, expected) in table {
        let jobs = [scheduled_job(&cron, "tick-29460120", "2026-01-05T10:00:00Z", condition)];
        let planned =
            action_summaries(&plan(&observed(&cron, &jobs), time("2026-01-05T11:00:00Z")));
        assert_eq!(planned, expected, "{condition:?}");
    }
}

#[test]
fn history_limits_delete_the_oldest_finished_jobs() {
    let cron = cron(&json!({
        "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0, "suspend": true,
    }));
    let jobs = [
        job(&cron, "c", Some("Complete"), "2026-01-05T08:00:00Z"),
        job(&cron, "a", Some("Complete"), "2026-01-05T09:00:00Z"),
        job(&cron, "b", Some("Failed"), "2026-01-05T09:00:00Z"),
        job(&cron, "d", None, "2026-01-05T07:00:00Z"),
    ];
    let plan = plan(&observed(&cron, &jobs), time("2026-01-05T09:40:00Z"));
    assert_eq!(action_summaries(&plan), ["delete c", "delete b"]);
    // A failed deletion causes no backoff, which would delay the next Job.
    let is_ignored = |action: &Action| match action {
        Action::Delete(delete) => delete.on_error == OnError::Ignore,
        _ => false,
    };
    assert!(plan.actions.iter().all(is_ignored), "{plan:?}");
}

/// Runs a reconciliation whose writes all succeed. Returns a summary of each action after them, and the new status.
fn sync(cron: &CronJob, jobs: &[Arc<Job>], now: &str) -> (Vec<String>, Value) {
    let observed = observed(cron, jobs);
    let planned = plan(&observed, time(now));
    let outcomes = planned.actions.iter().map(|_| Outcome::success()).collect();
    let plan = status(&observed, &planned, &Outcomes(outcomes));
    let body = plan.actions.iter().find_map(|action| match action {
        Action::Update(update) => serde_json::from_slice::<Value>(&update.body).ok(),
        _ => None,
    });
    (action_summaries(&plan), body.unwrap_or_default()["status"].clone())
}

#[test]
fn status_tracks_active_and_finished_jobs() {
    let mut cron = cron(&json!({}));
    let now = "2026-01-05T10:00:01Z";
    let running = scheduled_job(&cron, "tick-29460120", "2026-01-05T10:00:00Z", None);
    let (actions, status) = sync(&cron, std::slice::from_ref(&running), now);
    assert_eq!(actions, ["update"]);
    assert_eq!(status["active"][0]["name"], "tick-29460120");
    assert_eq!(status["lastScheduleTime"], "2026-01-05T10:00:00Z");

    set_active(&mut cron, &["done", "gone"]);
    cron.status.last_schedule_time = Some(time("2026-01-05T10:00:00Z"));
    let jobs = [
        job(&cron, "done", Some("Complete"), "2026-01-05T09:59:00Z"),
        job(&cron, "strange", None, "2026-01-05T09:50:00Z"),
    ];
    let (actions, status) = sync(&cron, &jobs, now);
    assert_eq!(actions, ["update", "SawCompletedJob", "UnexpectedJob", "MissingJob"]);
    let expected = json!({
        "lastScheduleTime": "2026-01-05T10:00:00Z", "lastSuccessfulTime": "2026-01-05T09:59:00Z",
    });
    assert_eq!(status, expected);
}

#[test]
fn active_job_missing_from_a_stale_cache_is_kept() {
    let mut cron = cron(&json!({ "concurrencyPolicy": "Forbid" }));
    set_active(&mut cron, &["late"]);
    let observed = Observed { are_jobs_current: false, ..observed(&cron, &[]) };
    let planned = plan(&observed, time("2026-01-05T10:00:00Z"));
    assert_eq!(action_summaries(&planned), ["JobAlreadyActive"]);
    let status = status(&observed, &planned, &Outcomes(vec![Outcome::success()]));
    assert!(status.is_nothing(), "{status:?}");
}

#[test]
fn failed_create_records_an_event_except_for_already_exists() {
    let cron = cron(&json!({}));
    let observed = observed(&cron, &[]);
    let planned = plan(&observed, time("2026-01-05T10:00:00Z"));
    for (code, reason, expected) in
        [(409, "AlreadyExists", vec![]), (403, "Forbidden", vec!["FailedCreate"])]
    {
        let failure = Failure {
            code,
            reason: reason.to_owned(),
            message: "no".to_owned(),
            namespace_terminating: false,
        };
        let status = status(&observed, &planned, &Outcomes(vec![Outcome::failure(failure)]));
        assert_eq!(action_summaries(&status), expected);
    }
}
