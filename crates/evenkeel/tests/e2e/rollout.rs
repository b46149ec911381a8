//! Rollouts, watched at every moment.

use crate::{
    cluster::{Cluster, items},
    deployment::settled,
    objects::{deployment, image},
    pods::Pods,
};
use serde_json::json;

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
    // Old pods that take their time: new ones must wait for their end, not only for their deletion.
    made["spec"]["template"]["metadata"]["annotations"] =
        json!({"sim.evenkeel.dev/termination-time": "900ms"});
    namespace.create("deployments", made).await;
    settled(&namespace, "web", 3).await;
    let mut pods = Pods::watch(&namespace).await;
    namespace.patch("deployments/web", image("app:v2")).await;
    pods.until("a rollout", |pods| {
        let (old, new) = (pods.ever_of_image("app:v1"), pods.ever_of_image("app:v2"));
        assert!(old == 0 || new == 0, "{old} old and {new} new pods at once");
        new == 3 && pods.ready() == 3
    })
    .await;
    settled(&namespace, "web", 3).await;
    let sets = namespace.get("replicasets").await;
    assert_eq!(items(&sets).len(), 2);
}
