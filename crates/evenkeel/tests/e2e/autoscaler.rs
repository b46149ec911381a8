//! HorizontalPodAutoscalers: bounds, statuses and events, and changing load.

use crate::{
    cluster::{Cluster, Namespace, condition, items},
    objects::{deployment as set, pod_spec},
    pods::is_active,
};
use serde_json::{Value, json};
use std::time::Duration;

fn autoscaler(name: &str, target: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["scaleTargetRef"] = target.clone();
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec})
}

fn target(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name})
}

async fn until_replicas(namespace: &Namespace<'_>, replicas: i64) {
    namespace
        .until("deployments/web", |web| {
            web["spec"]["replicas"] == replicas && web["status"]["readyReplicas"] == replicas
        })
        .await;
}

pub(crate) async fn keeps_within_bounds(cluster: &Cluster) {
    let namespace = cluster.namespace("hpa-bounds").await;
    namespace.create("deployments", set("web", 5, "app:v1")).await;
    until_replicas(&namespace, 5).await;
    let spec = json!({"minReplicas": 2, "maxReplicas": 3});
    namespace.create("horizontalpodautoscalers", autoscaler("web", &target("web"), &spec)).await;
    until_replicas(&namespace, 3).await;
    let path = "horizontalpodautoscalers/web";
    namespace.until(path, |hpa| hpa["status"]["desiredReplicas"] == 3).await;
    // A new spec is reconciled immediately.
    namespace.patch(path, json!({"spec": {"minReplicas": 4, "maxReplicas": 6}})).await;
    until_replicas(&namespace, 4).await;
    // A Deployment that was scaled to zero manually stays there.
    namespace.patch("deployments/web", json!({"spec": {"replicas": 0}})).await;
    namespace
        .until(path, |hpa| condition(hpa, "ScalingActive")["reason"] == "ScalingDisabled")
        .await;
    let web = namespace.get("deployments/web").await;
    assert_eq!(web["spec"]["replicas"], 0);
}

pub(crate) async fn tells_what_it_lacks(cluster: &Cluster) {
    let namespace = cluster.namespace("hpa-lacks").await;
    let spec = json!({"maxReplicas": 3});
    let job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "nothing"});
    for (name, of) in [("object", target("nothing")), ("scale", job)] {
        namespace.create("horizontalpodautoscalers", autoscaler(name, &of, &spec)).await;
    }
    let message = async |name: &str| {
        let path = format!("horizontalpodautoscalers/{name}");
        let hpa = namespace.until(&path, |hpa| !condition(hpa, "AbleToScale").is_null()).await;
        let able = condition(&hpa, "AbleToScale").clone();
        assert_eq!((&able["status"], &able["reason"]), (&json!("False"), &json!("FailedGetScale")));
        able["message"].as_str().unwrap_or_default().to_owned()
    };
    let start = "the HPA controller was unable to get the target's current scale: ";
    assert_eq!(message("object").await, format!("{start}deployments.apps \"nothing\" not found"));
    assert_eq!(
        message("scale").await,
        format!("{start}the server could not find the requested resource")
    );
    let events = namespace
        .until("events", |events| {
            let warns = |event: &&Value| event["reason"] == "FailedGetScale";
            items(events).iter().filter(warns).count() >= 2
        })
        .await;
    assert!(items(&events).iter().all(|event| event["type"] == "Warning"));
}

/// Tests an autoscaler on pods that share a load. The targets are in percent of a pod's request.
fn loaded(load: &str) -> Value {
    let mut web = set("web", 1, "app:v1");
    let template = &mut web["spec"]["template"];
    template["metadata"]["annotations"] = json!({"sim.evenkeel.dev/cpu-load": load});
    template["spec"] = pod_spec("app:v1");
    template["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "1", "memory": "64Mi"}});
    web
}

async fn set_load(namespace: &Namespace<'_>, load: &str) {
    for pod in namespace.list("pods").await.iter().filter(|pod| is_active(pod)) {
        let path = format!("pods/{}", pod["metadata"]["name"].as_str().unwrap_or_default());
        let annotations = json!({"sim.evenkeel.dev/cpu-load": load});
        namespace.patch(&path, json!({"metadata": {"annotations": annotations}})).await;
    }
}

pub(crate) async fn load_is_met(cluster: &Cluster) {
    let namespace = cluster.namespace("hpa-load").await;
    namespace.create("deployments", loaded("3")).await;
    until_replicas(&namespace, 1).await;
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}});
    let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu]});
    namespace.create("horizontalpodautoscalers", autoscaler("web", &target("web"), &spec)).await;
    // A load of three CPUs at 60% of one CPU per pod needs five pods. The usage of new pods counts after a while.
    cluster.sleep(Duration::from_secs(180)).await;
    until_replicas(&namespace, 5).await;
    let path = "horizontalpodautoscalers/web";
    let hpa = namespace
        .until(path, |hpa| {
            hpa["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 60
        })
        .await;
    assert_eq!(condition(&hpa, "ScalingActive")["reason"], "ValidMetricFound");
    cluster.sleep(Duration::from_secs(600)).await;
    until_replicas(&namespace, 5).await;
    // With less load, there are fewer pods after a while.
    set_load(&namespace, "600m").await;
    cluster.sleep(Duration::from_secs(600)).await;
    until_replicas(&namespace, 1).await;
    let nodes = cluster.get("/apis/metrics.k8s.io/v1beta1/nodes").await;
    assert_eq!(items(&nodes).len(), items(&cluster.get("nodes").await).len());
    let pods = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", namespace.name);
    let pods_now = cluster.get(&format!("{pods}?labelSelector=app%3Dweb")).await;
    assert_eq!(pods_now["kind"], "PodMetricsList");
    assert_eq!(items(&pods_now)[0]["containers"][0]["usage"]["cpu"], "600m");
    assert!(items(&cluster.get(&format!("{pods}?labelSelector=app%3Dother")).await).is_empty());
    let name = items(&pods_now)[0]["metadata"]["name"].as_str().unwrap_or_default();
    assert_eq!(cluster.get(&format!("{pods}/{name}")).await["kind"], "PodMetrics");
    assert!(cluster.get(&format!("{pods}/nobody")).await.is_null());
}
