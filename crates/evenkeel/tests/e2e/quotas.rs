//! Namespaces keep within their quotas, and each object within its limits.

use crate::{
    cluster::{Cluster, Namespace, condition, name},
    objects::{pod, pod_spec, replica_set, replicas},
};
use futures::{FutureExt, future::join_all};
use serde_json::{Value, json};

/// Creates a quota, and waits until its usage is known.
async fn limit(namespace: &Namespace<'_>, quota: &str, hard: &Value) {
    let body = json!({"metadata": {"name": quota}, "spec": {"hard": hard}});
    namespace.create("resourcequotas", body).await;
    counted(namespace, quota, hard).await;
}

async fn counted(namespace: &Namespace<'_>, quota: &str, hard: &Value) {
    namespace
        .until(&format!("resourcequotas/{quota}"), |quota| {
            let used = &quota["status"]["used"];
            let names = hard.as_object().expect("a map").keys();
            quota["status"]["hard"] == *hard && names.map(|name| &used[name]).all(Value::is_string)
        })
        .await;
}

async fn until_used(namespace: &Namespace<'_>, quota: &str, used: &Value) {
    let path = format!("resourcequotas/{quota}");
    namespace.until(&path, |quota| quota["status"]["used"] == *used).await;
}

fn asking(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name, &json!({}), "app:v1");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

/// Returns the server's message about a refused write.
async fn refused(namespace: &Namespace<'_>, resource: &str, object: Value) -> String {
    let answer = namespace.ask("POST", resource, object).await;
    answer.expect_err("it is refused").to_string()
}

pub(crate) async fn count_what_there_is(cluster: &Cluster) {
    let namespace = cluster.namespace("counts").await;
    limit(
        &namespace,
        "all",
        &json!({"pods": "5", "requests.cpu": "1", "services": "3", "services.nodeports": "2", "count/configmaps": "9",
            "count/replicasets.apps": "2", "persistentvolumeclaims": "2", "requests.storage": "3Gi"}),
    )
    .await;
    namespace.create("pods", asking("a", "300m")).await;
    namespace.create("pods", asking("b", "200m")).await;
    let ports = json!([{"name": "x", "port": 80}, {"name": "y", "port": 81}]);
    let service =
        |kind: &str| json!({"metadata": {"name": "s"}, "spec": {"type": kind, "ports": ports}});
    namespace.create("services", service("NodePort")).await;
    let storage = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "2Gi"}}});
    namespace
        .create("persistentvolumeclaims", json!({"metadata": {"name": "c"}, "spec": storage}))
        .await;
    namespace.create("replicasets", asking_set(1)).await;
    let used = |pods: &str, cpu: &str, ports: &str, sets: &str| {
        json!({"pods": pods, "requests.cpu": cpu, "services": "1", "services.nodeports": ports, "count/configmaps": "1",
            "count/replicasets.apps": sets, "persistentvolumeclaims": "1", "requests.storage": "2Gi"})
    };
    until_used(&namespace, "all", &used("3", "600m", "2", "1")).await;
    // Quota is released when objects are deleted or changed.
    namespace.delete("replicasets/web", "Background").await;
    namespace.delete("pods/a", "Background").await;
    namespace
        .patch(
            "services/s",
            json!({"spec": {"type": "ClusterIP", "ports": [{"name": "x", "port": 80}]}}),
        )
        .await;
    until_used(&namespace, "all", &used("1", "200m", "0", "0")).await;
    // Pods that have ended no longer count.
    namespace.patch("pods/b/status", json!({"status": {"phase": "Succeeded"}})).await;
    until_used(&namespace, "all", &used("0", "0", "0", "0")).await;
}

fn asking_set(replicas: u32) -> Value {
    let mut set = replica_set("web", replicas, "app:v1");
    set["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100m"}});
    set
}

pub(crate) async fn are_filled_and_reported(cluster: &Cluster) {
    let namespace = cluster.namespace("quota").await;
    limit(&namespace, "few", &json!({"pods": "1"})).await;
    namespace.create("replicasets", replica_set("web", 3, "app:v1")).await;
    let set = namespace
        .until("replicasets/web", |set| {
            condition(set, "ReplicaFailure")["status"] == "True"
                && set["status"]["readyReplicas"] == 1
        })
        .await;
    let failure = condition(&set, "ReplicaFailure");
    assert_eq!(failure["reason"], "FailedCreate");
    let message = failure["message"].as_str().unwrap_or_default();
    let why = "is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1";
    assert!(message.starts_with("pods \"web-") && message.ends_with(why), "{failure}");
    assert_eq!(namespace.list("pods").await.len(), 1);
    namespace.patch("resourcequotas/few", json!({"spec": {"hard": {"pods": "3"}}})).await;
    let set = namespace.until("replicasets/web", |set| set["status"]["readyReplicas"] == 3).await;
    assert!(condition(&set, "ReplicaFailure").is_null());
    namespace.patch("replicasets/web", replicas(0)).await;
    until_used(&namespace, "few", &json!({"pods": "0"})).await;
}

pub(crate) async fn are_never_exceeded_by_many_at_once(cluster: &Cluster) {
    let namespace = cluster.namespace("many").await;
    limit(&namespace, "few", &json!({"pods": "4", "cpu": "350m"})).await;
    let wanted = (0..9)
        .map(|n| namespace.ask("POST", "pods", asking(&format!("p{n}"), "100m")).boxed_local());
    let answers = join_all(wanted).await;
    let made = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(made, 3, "{answers:?}");
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        let text = error.to_string();
        assert!(
            text.contains(
                "exceeded quota: few, requested: cpu=100m, used: cpu=300m, limited: cpu=350m"
            ),
            "{text}"
        );
    }
    until_used(&namespace, "few", &json!({"pods": "3", "cpu": "300m"})).await;
    // A create that fails because of its name reserves no quota.
    let mut twin = asking("other", "10m");
    twin["metadata"]["name"] = namespace.list("pods").await[0]["metadata"]["name"].clone();
    let error = refused(&namespace, "pods", twin).await;
    assert!(error.contains("already exists"), "{error}");
    until_used(&namespace, "few", &json!({"pods": "3", "cpu": "300m"})).await;
    let error = refused(&namespace, "pods", pod("silent", &json!({}), "app:v1")).await;
    assert!(error.contains("failed quota: few: must specify cpu for: app"), "{error}");
}

pub(crate) async fn look_at_what_is_in_their_scopes(cluster: &Cluster) {
    let namespace = cluster.namespace("scopes").await;
    for (quota, scope) in [("short", "Terminating"), ("long", "NotTerminating")] {
        let spec = json!({"hard": {"pods": "1"}, "scopes": [scope]});
        namespace
            .create("resourcequotas", json!({"metadata": {"name": quota}, "spec": spec}))
            .await;
        counted(&namespace, quota, &json!({"pods": "1"})).await;
    }
    let short = |name: &str| {
        let mut pod = pod(name, &json!({}), "app:v1");
        pod["spec"]["activeDeadlineSeconds"] = json!(3600);
        pod
    };
    namespace.create("pods", pod("a", &json!({}), "app:v1")).await;
    until_used(&namespace, "long", &json!({"pods": "1"})).await;
    until_used(&namespace, "short", &json!({"pods": "0"})).await;
    let error = refused(&namespace, "pods", pod("b", &json!({}), "app:v1")).await;
    assert!(error.contains("exceeded quota: long"), "{error}");
    namespace.create("pods", short("b")).await;
    let error = refused(&namespace, "pods", short("c")).await;
    assert!(error.contains("exceeded quota: short"), "{error}");
    // A deadline that is set later moves a pod from one quota to the other, which must have room.
    let deadline = json!({"spec": {"activeDeadlineSeconds": 3600}});
    let answer = namespace.ask("PATCH", "pods/a", deadline.clone()).await;
    assert!(answer.is_err_and(|error| error.to_string().contains("exceeded quota: short")));
    namespace.delete("pods/b", "Background").await;
    until_used(&namespace, "short", &json!({"pods": "0"})).await;
    // A kube-apiserver observes the released quota through its own watch.
    while namespace.ask("PATCH", "pods/a", deadline.clone()).await.is_err() {
        cluster.sleep(std::time::Duration::from_millis(100)).await;
    }
    until_used(&namespace, "short", &json!({"pods": "1"})).await;
    until_used(&namespace, "long", &json!({"pods": "0"})).await;
}

pub(crate) async fn limits_fill_in_and_refuse(cluster: &Cluster) {
    let namespace = cluster.namespace("limits").await;
    let limits = json!([
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}, "min": {"cpu": "50m"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
    ]);
    namespace
        .create("limitranges", json!({"metadata": {"name": "l"}, "spec": {"limits": limits}}))
        .await;
    // A kube-apiserver observes it through its own watch.
    let made = loop {
        let made = namespace
            .create("pods", json!({"metadata": {"generateName": "p-"}, "spec": pod_spec("app:v1")}))
            .await;
        if made["metadata"]["annotations"]["kubernetes.io/limit-ranger"].is_string() {
            break made;
        }
        namespace.delete(&format!("pods/{}", name(&made)), "Background").await;
        cluster.sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}})
    );
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container app; cpu limit for container app"
    );
    assert_eq!(made["status"]["qosClass"], "Burstable");
    let error = refused(&namespace, "pods", asking("small", "10m")).await;
    assert!(error.contains("pods \"small\" is forbidden: minimum cpu usage per Container is 50m, but request is 10m"), "{error}");
    let storage = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "2Gi"}}});
    let claim = json!({"metadata": {"name": "c"}, "spec": storage});
    let error = refused(&namespace, "persistentvolumeclaims", claim).await;
    assert!(
        error
            .contains("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"),
        "{error}"
    );
}
