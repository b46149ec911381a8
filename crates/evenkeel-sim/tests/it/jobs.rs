//! Jobs run to completion under faults: every pod is counted exactly once.

use crate::fixtures::{
    KINDS, MINUTE, PODS, REST, SILENCE, each, every_kind, repeated, several, web_pods,
};
use evenkeel_sim::{FaultKind, Faults, Options, World};
use serde_json::{Value, json};

pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

pub(crate) fn job(spec: &Value, annotations: &Value) -> Value {
    let mut job = json!({
        "metadata": { "name": "web" },
        "spec": { "template": {
            "metadata": { "labels": { "app": "web" }, "annotations": annotations },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "web", "image": "a" }] },
        } },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        job["spec"][key] = value.clone();
    }
    job
}

fn types(job: &Value) -> Vec<&str> {
    let conditions = job["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().filter_map(|condition| condition["type"].as_str()).collect()
}

fn phase<'a>(pods: &'a [Value], phase: &str) -> Vec<&'a Value> {
    pods.iter().filter(|pod| pod["status"]["phase"] == phase).collect()
}

/// Checks the final status of a Job, and that nothing is written afterwards.
async fn check_end(world: &mut World, conditions: [&str; 2], succeeded: usize, failed: usize) {
    world.settle(REST).await;
    let job = world.get(&format!("{JOBS}/web")).await.expect("it is there");
    let status = &job["status"];
    assert_eq!(types(&job), conditions, "{status:#}");
    let count = |field: &str| status[field].as_u64().unwrap_or(0);
    assert_eq!(
        (count("succeeded"), count("failed")),
        (succeeded as u64, failed as u64),
        "{status:#}"
    );
    assert_eq!((count("active"), count("ready"), count("terminating")), (0, 0, 0), "{status:#}");
    assert_eq!(status["uncountedTerminatedPods"], json!({}), "{status:#}");
    let pods = world.list(PODS).await;
    assert_eq!(
        (phase(&pods, "Succeeded").len(), phase(&pods, "Failed").len()),
        (succeeded, failed)
    );
    let held = pods.iter().find(|pod| !pod["metadata"]["finalizers"].is_null());
    assert!(held.is_none(), "held back for ever: {held:#?}");
    world.stays_silent(SILENCE).await;
}

/// A Job with three completions runs two pods at a time.
pub(crate) async fn completes(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    let pods = web_pods(world).await;
    let repeated = repeated(&faults);
    world.arm(faults);
    world.create(JOBS, &job(&json!({ "completions": 3, "parallelism": 2 }), &json!({}))).await;
    world.settle(MINUTE).await;
    assert!(pods.max_active() <= 2 + repeated, "too many pods: {:?}", pods.counts());
    check_end(world, ["SuccessCriteriaMet", "Complete"], 3, 0).await;
}

/// An Indexed Job completes each of four indexes once.
pub(crate) async fn indexed(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let spec = json!({ "completions": 4, "parallelism": 3, "completionMode": "Indexed" });
    world.create(JOBS, &job(&spec, &json!({}))).await;
    world.settle(MINUTE).await;
    check_end(world, ["SuccessCriteriaMet", "Complete"], 4, 0).await;
    let job = world.get(&format!("{JOBS}/web")).await.expect("it is there");
    assert_eq!(job["status"]["completedIndexes"], "0-3");
    let pods = world.list(PODS).await;
    let mut indexes: Vec<&str> = pods
        .iter()
        .filter_map(|pod| {
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str()
        })
        .collect();
    indexes.sort_unstable();
    assert_eq!(indexes, ["0", "1", "2", "3"]);
}

/// The backoff limit permits two failures, and the third fails the Job.
async fn fails(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let exits = json!({ "sim.evenkeel.dev/run-time": "3s", "sim.evenkeel.dev/exit-code": "1" });
    world.create(JOBS, &job(&json!({ "backoffLimit": 2 }), &exits)).await;
    world.settle(MINUTE).await;
    check_end(world, ["FailureTarget", "Failed"], 0, 3).await;
}

#[test]
fn completion_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 10, &completes);
}

#[test]
fn completion_with_a_crash_before_each_write() {
    each(FaultKind::CrashBefore, 10, &completes);
}

#[test]
fn indexes_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 10, &indexed);
}

#[test]
fn failure_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 8, &fails);
}

#[test]
fn completion_with_random_faults() {
    several(&Options::default(), 8, (6, 30), &KINDS, &completes);
}

#[test]
fn completion_with_every_kind_of_fault() {
    every_kind(&Options::default(), &completes);
}

#[test]
fn indexes_with_every_kind_of_fault() {
    every_kind(&Options::default(), &indexed);
}

#[test]
fn failure_with_every_kind_of_fault() {
    every_kind(&Options::default(), &fails);
}
