//! Read-only queries about a cluster: explanations of objects, and plans.

use crate::{
    cluster::{Cluster, items, name},
    deployment::settled,
    objects::deployment,
};
use evenkeel::explain::{Offline, resolve};
use evenkeel_controller_manager::plan::{DryRunSettings, SYNC_TIMEOUT, dry_run};
use evenkeel_controllers::{core::rootcacertpublisher, needs::Gates, options::Options};
use evenkeel_explain::{Limits, explain};
use evenkeel_runtime::{client::Client, introspect::Subject};
use serde_json::json;

/// Returns the controllers' explanation of an object.
async fn explained(cluster: &Cluster, kind: &str, namespace: &str, name: &str) -> String {
    let (kube, clock) = (cluster.kube().clone(), cluster.clock());
    let client = Client::new(kube.clone(), clock.clone());
    let found = client.api_resources().await.expect("discovery");
    let subject: Subject = resolve(&found, kind, namespace, name).expect("a kind");
    let offline = Offline::start(kube, clock, found, &subject).await.expect("controllers");
    let explained = explain(&offline, subject, "offline".to_owned(), Limits::TEXT);
    let explained = explained.await.expect("an explanation");
    offline.stop().await;
    explained.text(clock.now())
}

pub(crate) async fn tells_what_is_waited_for(cluster: &Cluster) {
    let namespace = cluster.namespace("explain").await;
    let ns = &*namespace.name;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    settled(&namespace, "web", 2).await;
    let text = explained(cluster, "deploy", ns, "web").await;
    for line in
        ["wanted       2 pods", "2 wanted, 2 there, 2 ready, 2 available", "would  do nothing"]
    {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(text.contains(": nothing to do"), "its set and pods are at rest: {text}");

    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"no": "where"}}}}});
    namespace.patch("deployments/web", nowhere).await;
    namespace
        .until("pods", |pods| {
            items(pods).iter().any(|pod| {
                pod["status"]["conditions"][0]["reason"] == "Unschedulable"
                    || pod["status"]["conditions"][1]["reason"] == "Unschedulable"
            })
        })
        .await;
    let text = explained(cluster, "deployment", ns, "web").await;
    for line in
        ["0 of 2 pods of the new set", "is not scheduled: Unschedulable", "progress deadline in"]
    {
        assert!(text.contains(line), "{line} in {text}");
    }

    namespace.patch("deployments/web", json!({"spec": {"paused": true}})).await;
    let text = explained(cluster, "deployments.apps", ns, "web").await;
    assert!(text.contains("waits  paused"), "{text}");

    let pod = name(&namespace.list("pods").await[0]).to_owned();
    let text = explained(cluster, "po", ns, &pod).await;
    assert!(
        text.contains("owner ReplicaSet web-") && text.contains(" exists, whose deletion"),
        "{text}"
    );
    let text = explained(cluster, "namespace", ns, ns).await;
    assert!(text.contains("namespace-controller") && text.contains("Active"), "{text}");
}

pub(crate) async fn plans_are_not_carried_out(cluster: &Cluster) {
    let namespace = cluster.namespace("plan").await;
    let map = namespace.until("configmaps/kube-root-ca.crt", |map| !map.is_null()).await;
    let mut options = Options::default();
    options.rootcacertpublisher.ca = Some("planned".into());
    let asked = DryRunSettings {
        chosen: &[rootcacertpublisher::DESCRIPTOR],
        options,
        gates: Gates::default(),
        timeout: SYNC_TIMEOUT,
        report_waits: |_| {},
    };
    let explained = dry_run(cluster.kube().clone(), cluster.clock(), asked).await.expect("a plan");
    let write = explained.writes.iter().find(|write| write.namespace == namespace.name);
    let write = write.expect("a write for the namespace").to_string();
    assert!(
        write.contains("update configmaps") && write.contains("data.ca.crt planned, was"),
        "{write}"
    );
    assert_eq!(namespace.get("configmaps/kube-root-ca.crt").await, map, "nothing was written");
}
