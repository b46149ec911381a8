//! Rollouts, watched at every moment.

use crate::{
    cluster::{Cluster, Namespace, condition, items, name},
    deployment::settled,
    objects::{deployment, image, replicas},
    pods::{self, Pods, is_active},
};
use serde_json::{Value, json};

const REVISION: &str = "deployment.kubernetes.io/revision";

pub(crate) async fn keeps_within_surge_and_unavailable(cluster: &Cluster) {
    let namespace = cluster.namespace("rolling").await;
    for (name, surge, unavailable) in [("surge", 1, 0), ("unavailable", 0, 1), ("both", 2, 1)] {
        let mut made = deployment(name, 4, "app:v1");
        made["spec"]["strategy"]["rollingUpdate"] =
            json!({"maxSurge": surge, "maxUnavailable": unavailable});
        namespace.create("deployments", made).await;
        settled(&namespace, name, 4).await;
        let mut pods = Pods::watch(&namespace).await;
        namespace.patch(&format!("deployments/{name}"), image("app:v2")).await;
        pods.until("a rollout", |pods| {
            assert!(pods.active() <= 4 + surge, "{name}: {} pods are too many", pods.active());
            assert!(
                pods.ready() >= 4 - unavailable,
                "{name}: {} ready pods are too few",
                pods.ready()
            );
            pods.of_image("app:v2") == 4 && pods.ready() == 4 && pods.all() == 4
        })
        .await;
        settled(&namespace, name, 4).await;
        namespace.delete(&format!("deployments/{name}"), "Foreground").await;
        namespace.until_gone(&format!("deployments/{name}")).await;
    }
}

pub(crate) async fn recreate_never_mixes(cluster: &Cluster) {
    let namespace = cluster.namespace("recreate").await;
    let mut made = deployment("web", 3, "app:v1");
    made["spec"]["strategy"] = json!({"type": "Recreate"});
    // Old pods that terminate slowly: new pods must wait for their end, not only for their deletion.
    made["spec"]["template"]["metadata"]["annotations"] =
        json!({"sim.evenkeel.dev/termination-time": "900ms"});
    namespace.create("deployments", made).await;
    settled(&namespace, "web", 3).await;
    let mut pods = Pods::watch(&namespace).await;
    namespace.patch("deployments/web", image("app:v2")).await;
    pods.until("a rollout", |pods| {
        let (old, new) = (pods.running_image("app:v1"), pods.running_image("app:v2"));
        assert!(old == 0 || new == 0, "{old} old and {new} new pods at once");
        new == 3 && pods.ready() == 3
    })
    .await;
    settled(&namespace, "web", 3).await;
    let sets = namespace.get("replicasets").await;
    assert_eq!(items(&sets).len(), 2);
}

/// Waits until the Deployment's condition `Progressing` has this reason.
async fn progressing(namespace: &Namespace<'_>, path: &str, reason: &str) -> Value {
    namespace.until(path, |web| condition(web, "Progressing")["reason"] == reason).await
}

/// Returns the ReplicaSets by revision: name and desired replicas.
async fn revisions(namespace: &Namespace<'_>) -> Vec<(String, String, u64)> {
    let sets = namespace.list("replicasets").await;
    let mut sets: Vec<_> = sets
        .iter()
        .map(|set| {
            let revision = set["metadata"]["annotations"][REVISION].as_str().unwrap_or_default();
            (
                revision.to_owned(),
                name(set).to_owned(),
                set["spec"]["replicas"].as_u64().unwrap_or(0),
            )
        })
        .collect();
    sets.sort_unstable();
    sets
}

/// Returns a patch to an image whose pods never become ready.
fn broken(to: &str) -> Value {
    let mut change = image(to);
    change["spec"]["template"]["metadata"] =
        json!({"annotations": {"sim.evenkeel.dev/readiness": "never"}});
    change
}

/// Returns a patch to an image whose pods become ready again.
fn mended(to: &str) -> Value {
    let mut change = image(to);
    change["spec"]["template"]["metadata"] = json!({"annotations": null});
    change
}

pub(crate) async fn that_is_stuck_passes_its_deadline_and_is_undone(cluster: &Cluster) {
    let namespace = cluster.namespace("stuck").await;
    let mut made = deployment("web", 3, "app:v1");
    made["spec"]["progressDeadlineSeconds"] = json!(3);
    namespace.create("deployments", made).await;
    settled(&namespace, "web", 3).await;
    let first = revisions(&namespace).await[0].1.clone();

    namespace.patch("deployments/web", broken("app:v2")).await;
    let web = progressing(&namespace, "deployments/web", "ProgressDeadlineExceeded").await;
    let sets = revisions(&namespace).await;
    assert_eq!(sets.iter().map(|(.., count)| *count).collect::<Vec<_>>(), [3, 1], "{sets:?}");
    let second = &sets[1].1;
    let stuck = condition(&web, "Progressing");
    assert_eq!(stuck["status"], "False");
    assert_eq!(stuck["message"], format!("ReplicaSet \"{second}\" has timed out progressing."));
    assert_eq!(condition(&web, "Available")["status"], "True");
    let status = &web["status"];
    let counts = [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ];
    assert_eq!(counts.map(|field| status[field].as_u64()), [4, 1, 3, 3, 1].map(Some));

    let mut pods = Pods::watch(&namespace).await;
    namespace.patch("deployments/web", mended("app:v1")).await;
    pods.until("a rollback", |pods| {
        assert!(pods.ready() >= 3, "what runs is left alone");
        pods.all() == 3 && pods.of_image("app:v1") == 3
    })
    .await;
    settled(&namespace, "web", 3).await;
    let web = progressing(&namespace, "deployments/web", "NewReplicaSetAvailable").await;
    assert_eq!(condition(&web, "Progressing")["status"], "True");
    assert_eq!(web["metadata"]["annotations"][REVISION], "3");
    let sets = revisions(&namespace).await;
    assert_eq!(sets, [("2".to_owned(), second.clone(), 0), ("3".to_owned(), first.clone(), 3)]);
    let set = namespace.get(&format!("replicasets/{first}")).await;
    assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
}

pub(crate) async fn is_paused_and_resumed(cluster: &Cluster) {
    let namespace = cluster.namespace("paused").await;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    settled(&namespace, "web", 2).await;
    namespace.patch("deployments/web", json!({"spec": {"paused": true}})).await;
    let web = progressing(&namespace, "deployments/web", "DeploymentPaused").await;
    assert_eq!(condition(&web, "Progressing")["status"], "Unknown");
    assert_eq!(condition(&web, "Progressing")["message"], "Deployment is paused");
    // Neither a new template nor another one starts a rollout while it is paused; a new size takes effect.
    namespace.patch("deployments/web", image("app:v2")).await;
    namespace.patch("deployments/web", image("app:v3")).await;
    namespace.patch("deployments/web", replicas(4)).await;
    namespace.until("deployments/web", |web| web["status"]["readyReplicas"] == 4).await;
    cluster.watch_a_while().await;
    let sets = revisions(&namespace).await;
    assert_eq!((sets.len(), sets[0].2), (1, 4), "{sets:?}");
    let web = namespace.get("deployments/web").await;
    assert!(web["status"]["updatedReplicas"].is_null(), "{:#}", web["status"]);

    namespace.patch("deployments/web", json!({"spec": {"paused": null}})).await;
    settled(&namespace, "web", 4).await;
    progressing(&namespace, "deployments/web", "NewReplicaSetAvailable").await;
    let sets = revisions(&namespace).await;
    assert_eq!(
        sets.iter().map(|(revision, _, count)| (&**revision, *count)).collect::<Vec<_>>(),
        [("1", 0), ("2", 4)]
    );
    assert!(
        namespace
            .list("pods")
            .await
            .iter()
            .filter(|pod| is_active(pod))
            .all(|pod| pods::image(pod) == "app:v3")
    );
}

pub(crate) async fn keeps_no_more_history_than_asked(cluster: &Cluster) {
    let namespace = cluster.namespace("history").await;
    let mut made = deployment("web", 1, "app:v1");
    made["spec"]["revisionHistoryLimit"] = json!(2);
    namespace.create("deployments", made).await;
    settled(&namespace, "web", 1).await;
    for to in ["app:v2", "app:v3", "app:v4", "app:v5"] {
        namespace.patch("deployments/web", image(to)).await;
        settled(&namespace, "web", 1).await;
    }
    namespace.until("replicasets", |sets| items(sets).len() == 3).await;
    let kept: Vec<_> =
        revisions(&namespace).await.into_iter().map(|(revision, ..)| revision).collect();
    assert_eq!(kept, ["3", "4", "5"]);
    namespace.patch("deployments/web", json!({"spec": {"revisionHistoryLimit": 0}})).await;
    namespace.until("replicasets", |sets| items(sets).len() == 1).await;
}

pub(crate) async fn scales_in_proportion_while_under_way(cluster: &Cluster) {
    let namespace = cluster.namespace("proportion").await;
    let mut made = deployment("web", 10, "app:v1");
    made["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 3, "maxUnavailable": 2});
    namespace.create("deployments", made).await;
    settled(&namespace, "web", 10).await;
    namespace.patch("deployments/web", broken("app:v2")).await;
    let sizes = async |wanted: [u64; 2]| {
        namespace
            .until("replicasets", |sets| {
                let mut sizes: Vec<_> =
                    items(sets).iter().map(|set| set["spec"]["replicas"].as_u64()).collect();
                sizes.sort_unstable();
                sizes == wanted.map(Some)
            })
            .await;
    };
    // At most 10 + 3 pods, at least 10 - 2 available: the rollout is stuck there.
    sizes([5, 8]).await;
    namespace.until("deployments/web", |web| web["status"]["replicas"] == 13).await;
    // Five more pods, distributed in proportion to the ReplicaSets' thirteen pods.
    namespace.patch("deployments/web", replicas(15)).await;
    sizes([7, 11]).await;
    namespace.until("deployments/web", |web| web["status"]["replicas"] == 18).await;
    namespace.patch("deployments/web", mended("app:v3")).await;
    settled(&namespace, "web", 15).await;
}

pub(crate) async fn waits_for_min_ready_seconds(cluster: &Cluster) {
    let namespace = cluster.namespace("slow").await;
    let mut made = deployment("web", 2, "app:v1");
    made["spec"]["minReadySeconds"] = json!(3);
    namespace.create("deployments", made).await;
    let web = namespace.until("deployments/web", |web| web["status"]["readyReplicas"] == 2).await;
    assert!(web["status"]["availableReplicas"].is_null(), "{:#}", web["status"]);
    assert_eq!(web["status"]["unavailableReplicas"], 2);
    assert_eq!(condition(&web, "Available")["reason"], "MinimumReplicasUnavailable");
    settled(&namespace, "web", 2).await;
    let mut pods = Pods::watch(&namespace).await;
    namespace.patch("deployments/web", image("app:v2")).await;
    pods.until("the first new pod is ready", |pods| {
        pods.of_image("app:v2") == 1 && pods.ready() == 3
    })
    .await;
    let time = cluster.clock().now();
    pods.until("an old pod goes", |pods| pods.of_image("app:v1") == 1).await;
    let waited = cluster.clock().now().duration_since(time);
    // The condition's time is in whole seconds.
    assert!(waited.as_secs_f64() > 1.9, "an old pod went after {waited:?}");
    settled(&namespace, "web", 2).await;
}
