//! Jobs, from their start to their deletion.

use crate::{
    cluster::{Cluster, condition, items},
    objects::pod_spec,
    pods::is_active,
};
use serde_json::{Value, json};

/// Returns a Job with this spec, whose pods have these annotations.
pub(crate) fn job(name: &str, spec: &Value, annotations: &Value) -> Value {
    let mut template =
        json!({"metadata": {"annotations": annotations}, "spec": pod_spec("app:v1")});
    template["spec"]["restartPolicy"] = "Never".into();
    let mut job = json!({"metadata": {"name": name}, "spec": spec});
    job["spec"]["template"] = template;
    job
}

/// Returns whether the Job has this condition with the status True.
pub(crate) fn is(job: &Value, what: &str) -> bool {
    condition(job, what)["status"] == "True"
}

fn is_held(pod: &Value) -> bool {
    !pod["metadata"]["finalizers"].is_null()
}

pub(crate) async fn run_to_their_end(cluster: &Cluster) {
    let namespace = cluster.namespace("jobs").await;
    let quick = json!({"sim.evenkeel.dev/run-time": "1s"});
    let spec = json!({"completions": 4, "parallelism": 2});
    namespace.create("jobs", job("work", &spec, &quick)).await;
    let done = namespace.until("jobs/work", |job| is(job, "Complete")).await;
    assert_eq!(done["status"]["succeeded"], 4);
    assert_eq!(done["status"]["ready"], 0);
    assert!(done["status"]["completionTime"].is_string() && done["status"]["active"].is_null());
    let pods = namespace.list("pods").await;
    assert_eq!(pods.len(), 4, "no pod was made in vain");
    assert!(!pods.iter().any(is_held), "all may be deleted");
    namespace.delete("jobs/work", "Background").await;
    namespace.until_none("pods").await;
}

pub(crate) async fn with_indexes_fail_by_index(cluster: &Cluster) {
    let namespace = cluster.namespace("indexed").await;
    let fails = json!({"sim.evenkeel.dev/run-time": "1s", "sim.evenkeel.dev/exit-code": "3"});
    let spec = json!({
        "completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0,
        "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}}]},
        "podReplacementPolicy": "Failed",
    });
    namespace.create("jobs", job("work", &spec, &fails)).await;
    let ended = namespace.until("jobs/work", |job| is(job, "Failed")).await;
    assert_eq!(condition(&ended, "Failed")["reason"], "FailedIndexes");
    assert_eq!(ended["status"]["failedIndexes"], "0,1");
    assert_eq!(ended["status"]["failed"], 2);
    let hosts: Vec<Value> =
        namespace.list("pods").await.iter().map(|pod| pod["spec"]["hostname"].clone()).collect();
    assert!(hosts.contains(&json!("work-0")) && hosts.contains(&json!("work-1")), "{hosts:?}");
}

pub(crate) async fn do_what_their_commands_say(cluster: &Cluster) {
    let namespace = cluster.namespace("commands").await;
    let spec = json!({
        "completionMode": "Indexed", "completions": 4, "parallelism": 4,
    });
    let mut work = job("work", &spec, &json!({}));
    let pod = &mut work["spec"]["template"]["spec"];
    pod["restartPolicy"] = "OnFailure".into();
    pod["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let container = &mut pod["containers"][0];
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    // Each container fails once; a second run finds the file that the first run left.
    container["command"] = json!(["/bin/sh", "-c"]);
    container["args"] = json!(["
        if [ -f /data/seen-$JOB_COMPLETION_INDEX ]; then
            echo again; exit 0
        fi
        touch /data/seen-$JOB_COMPLETION_INDEX
        exit $(expr ${JOB_COMPLETION_INDEX} + 1)
    "]);
    namespace.create("jobs", work).await;
    let done = namespace.until("jobs/work", |job| is(job, "Complete")).await;
    assert_eq!(done["status"]["succeeded"], 4);
    for pod in namespace.list("pods").await {
        let container = &pod["status"]["containerStatuses"][0];
        let index = &pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"];
        let index: i64 = index.as_str().unwrap_or_default().parse().unwrap_or(-1);
        assert_eq!(container["restartCount"], 1, "{pod}");
        assert_eq!(container["lastState"]["terminated"]["exitCode"], index + 1, "{pod}");
    }
}

pub(crate) async fn are_suspended_and_resumed(cluster: &Cluster) {
    let namespace = cluster.namespace("suspend").await;
    let long = json!({"sim.evenkeel.dev/run-time": "forever"});
    namespace.create("jobs", job("work", &json!({"parallelism": 2, "suspend": true}), &long)).await;
    let job = namespace.until("jobs/work", |job| is(job, "Suspended")).await;
    assert!(job["status"]["startTime"].is_null());
    assert!(namespace.list("pods").await.is_empty());
    namespace.patch("jobs/work", json!({"spec": {"suspend": false}})).await;
    let job = namespace.until("jobs/work", |job| job["status"]["ready"] == 2).await;
    assert_eq!(condition(&job, "Suspended")["status"], "False");
    assert!(job["status"]["startTime"].is_string());
    namespace.patch("jobs/work", json!({"spec": {"suspend": true}})).await;
    namespace.until_none("pods").await;
    let job = namespace.until("jobs/work", |job| is(job, "Suspended")).await;
    assert!(job["status"]["failed"].is_null(), "pods that are taken away have not failed");
}

pub(crate) async fn go_when_their_time_has_come(cluster: &Cluster) {
    let namespace = cluster.namespace("ttl").await;
    let quick = json!({"sim.evenkeel.dev/run-time": "1s"});
    namespace.create("jobs", job("work", &json!({"ttlSecondsAfterFinished": 3}), &quick)).await;
    namespace.until("jobs/work", |job| is(job, "Complete")).await;
    namespace.until_gone("jobs/work").await;
    namespace.until_none("pods").await;
}

pub(crate) async fn that_are_gone_let_go_of_their_pods(cluster: &Cluster) {
    let namespace = cluster.namespace("orphans").await;
    let long = json!({"sim.evenkeel.dev/run-time": "forever"});
    namespace.create("jobs", job("work", &json!({"parallelism": 2}), &long)).await;
    namespace.until("jobs/work", |job| job["status"]["ready"] == 2).await;
    namespace.delete("jobs/work", "Orphan").await;
    namespace.until_gone("jobs/work").await;
    let left = namespace.until("pods", |pods| !items(pods).iter().any(is_held)).await;
    assert_eq!(items(&left).iter().filter(|pod| is_active(pod)).count(), 2, "they live on");
}
