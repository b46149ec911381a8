//! Objects that are deleted with their owners, before them, or not at all.

use crate::{
    cluster::{Cluster, Namespace, items},
    deployment::{settled, until_event},
    objects::{config_map, deployment, owned_by},
    pods::is_active,
};
use serde_json::{Value, json};

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn finalizers(names: &[&str]) -> Value {
    json!({"metadata": {"finalizers": names}})
}

/// Returns a ConfigMap that stands for any object.
async fn thing(
    namespace: &Namespace<'_>,
    name: &str,
    owners: &[Value],
    finalizers: &[&str],
) -> Value {
    let mut made = namespace.create("configmaps", config_map(name, owners, finalizers)).await;
    // Servers may omit these fields in single objects.
    made["apiVersion"] = json!("v1");
    made["kind"] = json!("ConfigMap");
    made
}

pub(crate) async fn background_takes_all_that_is_owned(cluster: &Cluster) {
    let namespace = cluster.namespace("background").await;
    namespace.create("deployments", deployment("web", 3, "app:v1")).await;
    namespace.create("deployments", deployment("other", 1, "app:v1")).await;
    settled(&namespace, "web", 3).await;
    settled(&namespace, "other", 1).await;
    namespace.delete("deployments/web", "Background").await;
    assert!(namespace.get("deployments/web").await.is_null(), "the owner goes at once");
    namespace.until_none("replicasets?labelSelector=app=web").await;
    namespace.until_none("pods?labelSelector=app=web").await;
    assert_eq!(namespace.list("pods").await.len(), 1, "what belongs to others stays");
}

pub(crate) async fn foreground_takes_the_owner_last(cluster: &Cluster) {
    let namespace = cluster.namespace("foreground").await;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    settled(&namespace, "web", 2).await;
    namespace.delete("deployments/web", "Foreground").await;
    namespace.until_gone("deployments/web").await;
    assert!(namespace.list("replicasets").await.is_empty(), "ReplicaSets went before");
    assert!(!namespace.list("pods").await.iter().any(is_active), "pods went before");

    let owner = thing(&namespace, "owner", &[], &[]).await;
    thing(&namespace, "blocks", &[owned_by(&owner, true)], &["e2e.evenkeel.dev/held"]).await;
    thing(&namespace, "does-not", &[owned_by(&owner, false)], &["e2e.evenkeel.dev/held"]).await;
    namespace.delete("configmaps/owner", "Foreground").await;
    namespace.until("configmaps/blocks", is_deleting).await;
    namespace.until("configmaps/does-not", is_deleting).await;
    cluster.watch_a_while().await;
    let owner = namespace.get("configmaps/owner").await;
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]), "{owner:#}");
    namespace.patch("configmaps/blocks", finalizers(&[])).await;
    namespace.until_gone("configmaps/owner").await;
    assert!(is_deleting(&namespace.get("configmaps/does-not").await), "it need not be waited for");
    namespace.patch("configmaps/does-not", finalizers(&[])).await;
    namespace.until_gone("configmaps/does-not").await;
}

pub(crate) async fn orphans_are_left_alone(cluster: &Cluster) {
    let namespace = cluster.namespace("orphan").await;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    settled(&namespace, "web", 2).await;
    namespace.delete("deployments/web", "Orphan").await;
    namespace.until_gone("deployments/web").await;
    cluster.watch_a_while().await;
    let sets = namespace.list("replicasets").await;
    assert_eq!(sets.len(), 1);
    assert!(sets[0]["metadata"]["ownerReferences"].is_null(), "{:#}", sets[0]["metadata"]);
    let pods = namespace.list("pods").await;
    assert_eq!(pods.iter().filter(|pod| is_active(pod)).count(), 2);
    assert!(
        pods.iter()
            .all(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == sets[0]["metadata"]["uid"])
    );
}

pub(crate) async fn owners_that_never_were(cluster: &Cluster) {
    let namespace = cluster.namespace("absent").await;
    let real = thing(&namespace, "real", &[], &[]).await;
    let mut absent = owned_by(&real, true);
    absent["name"] = json!("absent");
    absent["uid"] = json!("00000000-0000-4000-8000-000000000001");
    // A reference to another object of the same name.
    let mut earlier = owned_by(&real, true);
    earlier["uid"] = json!("00000000-0000-4000-8000-000000000002");
    let unknown = json!({
        "apiVersion": "nowhere.example/v1", "kind": "Nothing", "name": "n",
        "uid": "00000000-0000-4000-8000-000000000003",
    });
    thing(&namespace, "of-absent", &[absent.clone()], &[]).await;
    thing(&namespace, "of-earlier", &[earlier.clone()], &[]).await;
    thing(&namespace, "of-both", &[owned_by(&real, false), absent.clone(), earlier], &[]).await;
    thing(&namespace, "of-unknown", &[unknown], &[]).await;
    thing(&namespace, "held", &[absent], &["e2e.evenkeel.dev/held"]).await;
    namespace.until_gone("configmaps/of-absent").await;
    namespace.until_gone("configmaps/of-earlier").await;
    let both = namespace
        .until("configmaps/of-both", |both| {
            both["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1)
        })
        .await;
    assert_eq!(both["metadata"]["ownerReferences"][0]["uid"], real["metadata"]["uid"]);
    namespace.until("configmaps/held", is_deleting).await;
    namespace.patch("configmaps/held", finalizers(&[])).await;
    namespace.until_gone("configmaps/held").await;
    cluster.watch_a_while().await;
    let unknown = namespace.get("configmaps/of-unknown").await;
    assert!(
        !unknown.is_null() && !is_deleting(&unknown),
        "nothing is deleted for an owner that cannot be looked up"
    );
}

pub(crate) async fn owners_elsewhere_do_not_count(cluster: &Cluster) {
    let (here, there) = (cluster.namespace("here").await, cluster.namespace("there").await);
    let owner = thing(&here, "owner", &[], &[]).await;
    thing(&here, "near", &[owned_by(&owner, true)], &[]).await;
    thing(&there, "far", &[owned_by(&owner, true)], &[]).await;
    there.until_gone("configmaps/far").await;
    until_event(&there, "far", "OwnerRefInvalidNamespace", "does not exist in namespace").await;
    cluster.watch_a_while().await;
    assert!(
        !is_deleting(&here.get("configmaps/near").await)
            && !here.get("configmaps/near").await.is_null()
    );
}

pub(crate) async fn chains_and_circles_go(cluster: &Cluster) {
    let namespace = cluster.namespace("chain").await;
    let mut last = thing(&namespace, "a", &[], &[]).await;
    for name in ["b", "c", "d"] {
        last = thing(&namespace, name, &[owned_by(&last, true)], &[]).await;
    }
    namespace.delete("configmaps/a", "Foreground").await;
    for name in ["a", "b", "c", "d"] {
        namespace.until_gone(&format!("configmaps/{name}")).await;
    }

    let first = thing(&namespace, "first", &[], &[]).await;
    let second = thing(&namespace, "second", &[owned_by(&first, true)], &[]).await;
    namespace
        .patch(
            "configmaps/first",
            json!({"metadata": {"ownerReferences": [owned_by(&second, true)]}}),
        )
        .await;
    cluster.watch_a_while().await;
    assert_eq!(
        items(&namespace.get("configmaps").await).iter().filter(|thing| is_deleting(thing)).count(),
        0,
        "a circle stays until it is asked to go"
    );
    namespace.delete("configmaps/first", "Foreground").await;
    namespace.until_gone("configmaps/first").await;
    namespace.until_gone("configmaps/second").await;
}

pub(crate) async fn finalizers_of_others_are_waited_for(cluster: &Cluster) {
    let namespace = cluster.namespace("held").await;
    let mut made = deployment("web", 1, "app:v1");
    made["metadata"]["finalizers"] = json!(["e2e.evenkeel.dev/held"]);
    namespace.create("deployments", made).await;
    settled(&namespace, "web", 1).await;
    namespace.delete("deployments/web", "Foreground").await;
    namespace.until_none("replicasets").await;
    namespace.until_none("pods").await;
    let held = json!(["e2e.evenkeel.dev/held"]);
    namespace.until("deployments/web", |web| web["metadata"]["finalizers"] == held).await;
    cluster.watch_a_while().await;
    assert!(
        namespace.list("replicasets").await.is_empty(),
        "a Deployment that is going makes nothing new"
    );
    namespace.patch("deployments/web", finalizers(&[])).await;
    namespace.until_gone("deployments/web").await;
}
