//! StatefulSets: pods with stable identities.

use crate::{
    cluster::{Cluster, Namespace, items, name},
    objects::{image, pod_spec, replicas},
    pods::{Pods, is_active, is_ready},
};
use serde_json::{Value, json};

fn stateful_set(count: u32, more: &Value) -> Value {
    let mut set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": count,
            "serviceName": "dbs",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod_spec("app:v1")},
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        set["spec"][key] = value.clone();
    }
    set
}

async fn ready(namespace: &Namespace<'_>, count: u32) -> Value {
    namespace
        .until("statefulsets/db", |set| {
            let status = &set["status"];
            status["observedGeneration"] == set["metadata"]["generation"]
                && status["readyReplicas"] == count
                && status["replicas"] == count
        })
        .await
}

async fn images(namespace: &Namespace<'_>) -> Vec<String> {
    let pods = namespace.list("pods").await;
    let mut images: Vec<_> =
        pods.iter().map(|pod| format!("{} {}", name(pod), crate::pods::image(pod))).collect();
    images.sort();
    images
}

pub(crate) async fn comes_up_in_order_and_goes_back_so(cluster: &Cluster) {
    let namespace = cluster.namespace("ordered").await;
    let mut pods = Pods::watch(&namespace).await;
    namespace.create("statefulsets", stateful_set(3, &json!({}))).await;
    pods.until("all are ready", |pods| {
        assert!(pods.active() <= pods.ready() + 1, "one waits for the other");
        pods.ready() == 3
    })
    .await;
    let set = ready(&namespace, 3).await;
    assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    let pod = namespace.get("pods/db-1").await;
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "db-1");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "1");
    assert_eq!(labels["controller-revision-hash"], set["status"]["updateRevision"]);
    assert_eq!(
        (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
        (&json!("db-1"), &json!("dbs"))
    );
    // A pod that ended is replaced by a pod of the same name.
    let ended = json!({"status": {"phase": "Failed"}});
    namespace.patch("pods/db-1/status", ended).await;
    let uid = &pod["metadata"]["uid"];
    namespace
        .until("pods/db-1", |new| !new.is_null() && new["metadata"]["uid"] != *uid && is_ready(new))
        .await;
    namespace
        .patch("statefulsets/db", json!({"spec": {"replicas": 2, "ordinals": {"start": 1}}}))
        .await;
    namespace
        .until("pods", |pods| {
            let mut names: Vec<_> = items(pods).iter().filter(|p| is_active(p)).map(name).collect();
            names.sort_unstable();
            names == ["db-1", "db-2"] && items(pods).len() == 2
        })
        .await;
}

pub(crate) async fn is_updated_from_the_last_and_undone(cluster: &Cluster) {
    let namespace = cluster.namespace("partition").await;
    namespace.create("statefulsets", stateful_set(3, &json!({}))).await;
    let first = ready(&namespace, 3).await["status"]["updateRevision"].clone();
    let partition = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}});
    namespace.patch("statefulsets/db", partition).await;
    namespace.patch("statefulsets/db", image("app:v2")).await;
    namespace.until("statefulsets/db", |set| set["status"]["updatedReplicas"] == 1).await;
    ready(&namespace, 3).await;
    assert_eq!(images(&namespace).await, ["db-0 app:v1", "db-1 app:v1", "db-2 app:v2"]);
    let whole = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    namespace.patch("statefulsets/db", whole).await;
    namespace
        .until("statefulsets/db", |set| {
            let status = &set["status"];
            status["updatedReplicas"] == 3 && status["currentRevision"] == status["updateRevision"]
        })
        .await;
    assert_eq!(images(&namespace).await, ["db-0 app:v2", "db-1 app:v2", "db-2 app:v2"]);
    // A rollback to the first template: its revision becomes the newest, and no revision is created.
    namespace.patch("statefulsets/db", image("app:v1")).await;
    namespace
        .until("statefulsets/db", |set| {
            set["status"]["currentRevision"] == first && set["status"]["readyReplicas"] == 3
        })
        .await;
    let revisions = namespace.list("controllerrevisions").await;
    let mut numbers: Vec<_> =
        revisions.iter().map(|revision| revision["revision"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [Some(2), Some(3)]);
}

pub(crate) async fn is_made_all_at_once_and_updated_on_deletion(cluster: &Cluster) {
    let namespace = cluster.namespace("parallel").await;
    let more = json!({"podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}});
    namespace.create("statefulsets", stateful_set(4, &more)).await;
    ready(&namespace, 4).await;
    namespace.patch("statefulsets/db", image("app:v2")).await;
    namespace
        .until("statefulsets/db", |set| {
            set["status"]["updateRevision"] != set["status"]["currentRevision"]
        })
        .await;
    cluster.watch_a_while().await;
    assert!(images(&namespace).await.iter().all(|image| image.ends_with("v1")));
    let uid = namespace.get("pods/db-2").await["metadata"]["uid"].clone();
    namespace.delete("pods/db-2", "Background").await;
    namespace
        .until("pods/db-2", |new| !new.is_null() && new["metadata"]["uid"] != uid && is_ready(new))
        .await;
    assert_eq!(
        images(&namespace).await,
        ["db-0 app:v1", "db-1 app:v1", "db-2 app:v2", "db-3 app:v1"]
    );
    namespace.patch("statefulsets/db", replicas(1)).await;
    ready(&namespace, 1).await;
}

pub(crate) async fn has_claims_of_its_own(cluster: &Cluster) {
    let namespace = cluster.namespace("claims").await;
    let more = json!({
        "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
    });
    let set = namespace.create("statefulsets", stateful_set(2, &more)).await;
    ready(&namespace, 2).await;
    for claim in ["data-db-0", "data-db-1"] {
        let path = format!("persistentvolumeclaims/{claim}");
        let claim = namespace
            .until(&path, |claim| {
                claim["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]
            })
            .await;
        assert_eq!(claim["metadata"]["labels"], json!({"a": "b", "app": "db"}));
    }
    let pod = namespace.get("pods/db-1").await;
    assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-1");
    namespace.patch("statefulsets/db", replicas(1)).await;
    ready(&namespace, 1).await;
    assert!(!namespace.get("persistentvolumeclaims/data-db-1").await.is_null());
}
