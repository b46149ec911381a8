//! Workloads of every kind, most with a history, and changes that only an active leader handles.

use crate::{
    cluster::{Namespace, condition},
    deployment::settled,
    jobs::{is, job},
    nodes,
    objects::{deployment, image, replica_set, replicas, replication_controller},
};
use serde_json::{Value, json};

/// Creates all workloads, and waits until they reach their desired state.
pub(super) async fn build(namespace: &Namespace<'_>) {
    tokio::join!(
        deployments(namespace),
        replica_sets(namespace),
        stateful_sets(namespace),
        daemon_sets(namespace),
        jobs(namespace),
        cron_jobs(namespace),
    );
}

/// Changes an object of each kind to `count` replicas and the image `to`, and waits until the changes are complete.
pub(super) async fn work(namespace: &Namespace<'_>, count: u32, to: &str) {
    tokio::join!(
        work_on_replicas(namespace, count, to),
        work_on_sets(namespace, count, to),
        work_on_jobs(namespace, count),
    );
}

async fn deployments(namespace: &Namespace<'_>) {
    for name in ["plain", "rolled", "undone", "paused", "recreate", "short", "none"] {
        let mut made = deployment(name, 3, "app:v1");
        match name {
            "recreate" => made["spec"]["strategy"] = json!({"type": "Recreate"}),
            "short" => made["spec"]["revisionHistoryLimit"] = json!(1),
            "none" => made["spec"]["replicas"] = json!(0),
            _ => {}
        }
        namespace.create("deployments", made).await;
    }
    for name in ["plain", "rolled", "undone", "paused", "recreate", "short"] {
        settled(namespace, name, 3).await;
    }
    for (name, images) in [
        ("rolled", &["app:v2", "app:v3"][..]),
        ("undone", &["app:v2", "app:v1"]),
        ("recreate", &["app:v2"]),
        ("short", &["app:v2", "app:v3", "app:v4"]),
    ] {
        for change in images {
            namespace.patch(&format!("deployments/{name}"), image(change)).await;
            settled(namespace, name, 3).await;
        }
    }
    namespace.patch("deployments/paused", json!({"spec": {"paused": true}})).await;
    namespace.patch("deployments/paused", image("app:v2")).await;
    namespace
        .until("deployments/paused", |paused| {
            condition(paused, "Progressing")["reason"] == "DeploymentPaused"
        })
        .await;
}

async fn replica_sets(namespace: &Namespace<'_>) {
    namespace.create("replicasets", replica_set("set", 2, "app:v1")).await;
    namespace.create("replicationcontrollers", replication_controller("rc", 2, "app:v1")).await;
    let mut slow = replica_set("slow", 2, "app:v1");
    slow["spec"]["minReadySeconds"] = json!(1);
    namespace.create("replicasets", slow).await;
    for path in ["replicasets/set", "replicasets/slow", "replicationcontrollers/rc"] {
        namespace.until(path, |set| set["status"]["availableReplicas"] == 2).await;
    }
}

/// Creates StatefulSets: one that was rolled back, one that is partly updated, and one that waits for the deletion of its pods.
async fn stateful_sets(namespace: &Namespace<'_>) {
    for name in ["stateful", "parted", "waiting"] {
        let mut made = replica_set(name, 3, "app:v1");
        made["spec"]["serviceName"] = json!(name);
        match name {
            "parted" => {
                made["spec"]["podManagementPolicy"] = json!("Parallel");
                let rolling = json!({"partition": 2});
                made["spec"]["updateStrategy"] =
                    json!({"type": "RollingUpdate", "rollingUpdate": rolling});
            }
            "waiting" => made["spec"]["updateStrategy"] = json!({"type": "OnDelete"}),
            _ => {}
        }
        namespace.create("statefulsets", made).await;
    }
    for name in ["stateful", "parted", "waiting"] {
        stateful(namespace, name, 3, 3).await;
        namespace.patch(&format!("statefulsets/{name}"), image("app:v2")).await;
    }
    stateful(namespace, "stateful", 3, 3).await;
    stateful(namespace, "parted", 3, 1).await;
    stateful(namespace, "waiting", 3, 0).await;
    namespace.patch("statefulsets/stateful", image("app:v1")).await;
    stateful(namespace, "stateful", 3, 3).await;
}

/// Waits until `count` pods are ready, `updated` of them of the latest revision.
async fn stateful(namespace: &Namespace<'_>, name: &str, count: u32, updated: u32) {
    namespace
        .until(&format!("statefulsets/{name}"), |set| {
            let status = &set["status"];
            let number = |field: &str| status[field].as_u64().unwrap_or(0);
            let all = ["replicas", "readyReplicas", "availableReplicas"];
            // When all pods are updated, the latest revision becomes the current one, and they count as both.
            let whole = updated < count || status["currentRevision"] == status["updateRevision"];
            status["observedGeneration"] == set["metadata"]["generation"]
                && all.iter().all(|field| number(field) == u64::from(count))
                && number("updatedReplicas") == u64::from(updated)
                && whole
        })
        .await;
}

/// Creates DaemonSets: one that was updated twice, and one that waits for the deletion of its pods.
async fn daemon_sets(namespace: &Namespace<'_>) {
    for (name, strategy) in [("everywhere", "RollingUpdate"), ("lazy", "OnDelete")] {
        let mut made = replica_set(name, 1, "app:v1");
        made["spec"]["replicas"] = Value::Null;
        made["spec"]["updateStrategy"] = json!({"type": strategy});
        namespace.create("daemonsets", made).await;
    }
    for change in ["app:v1", "app:v2", "app:v3"] {
        namespace.patch("daemonsets/everywhere", image(change)).await;
        daemons(namespace, "everywhere", true).await;
    }
    daemons(namespace, "lazy", true).await;
    namespace.patch("daemonsets/lazy", image("app:v2")).await;
    daemons(namespace, "lazy", false).await;
}

/// Waits until a pod is available on each untainted node, all of the latest revision or none.
async fn daemons(namespace: &Namespace<'_>, name: &str, updated: bool) {
    let nodes = u64::from(nodes::OPEN);
    namespace
        .until(&format!("daemonsets/{name}"), |set| {
            let status = &set["status"];
            let number = |field: &str| status[field].as_u64().unwrap_or(0);
            status["observedGeneration"] == set["metadata"]["generation"]
                && number("numberAvailable") == nodes
                && number("updatedNumberScheduled") == if updated { nodes } else { 0 }
        })
        .await;
}

/// Creates Jobs: succeeded, failed, indexed, running, and not started.
async fn jobs(namespace: &Namespace<'_>) {
    let quick = json!({"sim.evenkeel.dev/run-time": "1s"});
    let fails = json!({"sim.evenkeel.dev/run-time": "1s", "sim.evenkeel.dev/exit-code": "3"});
    let long = json!({"sim.evenkeel.dev/run-time": "forever"});
    let indexed = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 0});
    for (name, spec, how) in [
        ("finished", json!({"completions": 3, "parallelism": 2}), &quick),
        ("failed", json!({"backoffLimit": 0}), &fails),
        ("indexed", indexed, &fails),
        ("running", json!({"completions": 4, "parallelism": 2}), &long),
        ("suspended", json!({"parallelism": 2, "suspend": true}), &long),
    ] {
        namespace.create("jobs", job(name, &spec, how)).await;
    }
    for (name, condition) in [
        ("finished", "Complete"),
        ("failed", "Failed"),
        ("indexed", "Failed"),
        ("suspended", "Suspended"),
    ] {
        namespace.until(&format!("jobs/{name}"), |job| is(job, condition)).await;
    }
    namespace.until("jobs/running", |job| job["status"]["ready"] == 2).await;
}

/// Creates CronJobs: one with a history, one whose Job runs, and one that is suspended.
async fn cron_jobs(namespace: &Namespace<'_>) {
    let quick = json!({"sim.evenkeel.dev/run-time": "1s"});
    let long = json!({"sim.evenkeel.dev/run-time": "forever"});
    for (name, how) in [("often", &quick), ("busy", &long), ("idle", &quick)] {
        // None of the CronJobs is due in the next minutes.
        let template = json!({"spec": job("", &json!({}), how)["spec"]});
        let spec = json!({"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": template});
        namespace.create("cronjobs", json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    for name in ["often", "busy"] {
        miss(namespace, name, 1).await;
    }
    namespace
        .until("cronjobs/often", |often| {
            often["status"]["lastSuccessfulTime"].is_string() && often["status"]["active"].is_null()
        })
        .await;
    namespace.until("cronjobs/busy", |busy| active(busy) == 1).await;
}

fn active(cron_job: &Value) -> usize {
    cron_job["status"]["active"].as_array().map_or(0, Vec::len)
}

/// Changes a CronJob so that its last missed time is on this day of January. An active leader immediately creates the
/// missed Job. Use each day only once, because the Job of an earlier use still exists.
async fn miss(namespace: &Namespace<'_>, name: &str, day: u32) {
    let path = format!("cronjobs/{name}");
    let schedule = format!("0 0 {day} 1 *");
    namespace.patch(&path, json!({"spec": {"suspend": true, "schedule": schedule}})).await;
    let long_ago = json!({"status": {"lastScheduleTime": "2024-06-01T00:00:00Z"}});
    namespace.patch(&format!("{path}/status"), long_ago).await;
    namespace.patch(&path, json!({"spec": {"suspend": false}})).await;
}

async fn work_on_replicas(namespace: &Namespace<'_>, count: u32, to: &str) {
    namespace.patch("deployments/plain", replicas(count)).await;
    namespace.patch("deployments/rolled", image(to)).await;
    namespace.patch("replicationcontrollers/rc", replicas(count)).await;
    settled(namespace, "plain", count).await;
    settled(namespace, "rolled", 3).await;
    namespace
        .until("replicationcontrollers/rc", |rc| rc["status"]["availableReplicas"] == count)
        .await;
}

async fn work_on_sets(namespace: &Namespace<'_>, count: u32, to: &str) {
    namespace.patch("statefulsets/parted", replicas(count)).await;
    namespace.patch("statefulsets/stateful", image(to)).await;
    namespace.patch("daemonsets/everywhere", image(to)).await;
    stateful(namespace, "parted", count, count - 2).await;
    stateful(namespace, "stateful", 3, 3).await;
    daemons(namespace, "everywhere", true).await;
}

async fn work_on_jobs(namespace: &Namespace<'_>, count: u32) {
    let before = namespace.get("cronjobs/often").await["status"]["lastSuccessfulTime"].clone();
    namespace.patch("jobs/running", json!({"spec": {"parallelism": count}})).await;
    let begun = json!({"spec": {"suspend": count == 2}});
    namespace.patch("jobs/suspended", begun).await;
    miss(namespace, "often", count).await;
    namespace.until("jobs/running", |job| job["status"]["ready"] == count).await;
    namespace.until("jobs/suspended", |job| is(job, "Suspended") == (count == 2)).await;
    namespace
        .until("cronjobs/often", |often| {
            let last = &often["status"]["lastSuccessfulTime"];
            last.is_string() && *last != before
        })
        .await;
}
