//! Namespaces: their default objects, and their deletion.

use crate::{
    cluster::{Cluster, condition},
    deployment::settled,
    objects::{config_map, deployment},
};
use serde_json::json;

pub(crate) async fn have_an_account_and_the_root_ca(cluster: &Cluster) {
    let namespace = cluster.namespace("furnished").await;
    let ca = namespace.until("configmaps/kube-root-ca.crt", |map| !map.is_null()).await;
    let text = ca["data"]["ca.crt"].as_str().expect("a certificate");
    assert!(text.starts_with("-----BEGIN CERTIFICATE-----"), "{text}");
    namespace
        .patch("configmaps/kube-root-ca.crt", json!({"data": {"ca.crt": "forged", "more": "x"}}))
        .await;
    namespace.until("configmaps/kube-root-ca.crt", |map| map["data"] == ca["data"]).await;
    for path in ["configmaps/kube-root-ca.crt", "serviceaccounts/default"] {
        let uid = namespace.get(path).await["metadata"]["uid"].clone();
        namespace.delete(path, "Background").await;
        namespace.until(path, |object| !object.is_null() && object["metadata"]["uid"] != uid).await;
    }
}

pub(crate) async fn end_with_all_they_hold(cluster: &Cluster) {
    let namespace = cluster.namespace("ending").await;
    let path = format!("namespaces/{}", namespace.name);
    namespace.create("deployments", deployment("web", 3, "app:v1")).await;
    settled(&namespace, "web", 3).await;
    namespace.create("configmaps", config_map("held", &[], &["e2e.evenkeel.dev/held"])).await;
    namespace.create("configmaps", config_map("free", &[], &[])).await;
    let deleted = cluster.delete(&path, "Background").await;
    assert_eq!(deleted["status"]["phase"], "Terminating");

    let ending = cluster
        .until(&path, |namespace| {
            condition(namespace, "NamespaceFinalizersRemaining")["status"] == "True"
                && condition(namespace, "NamespaceContentRemaining")["message"]
                    .as_str()
                    .is_some_and(|message| {
                        message.contains("configmaps. has 1 resource instances")
                            && !message.contains("pods.")
                    })
        })
        .await;
    let remaining = condition(&ending, "NamespaceContentRemaining");
    assert_eq!(
        (&remaining["status"], &remaining["reason"]),
        (&json!("True"), &json!("SomeResourcesRemain"))
    );
    let finalizers = condition(&ending, "NamespaceFinalizersRemaining");
    assert_eq!(finalizers["reason"], "SomeFinalizersRemain");
    assert_eq!(
        finalizers["message"],
        "Some content in the namespace has finalizers remaining: e2e.evenkeel.dev/held in 1 resource instances"
    );
    assert_eq!(condition(&ending, "NamespaceDeletionDiscoveryFailure")["status"], "False");
    for path in ["pods", "replicasets", "deployments"] {
        assert!(namespace.list(path).await.is_empty(), "{path}");
    }
    let refused = namespace
        .ask("POST", "configmaps", config_map("late", &[], &[]))
        .await
        .expect_err("nothing new");
    assert!(refused.is_namespace_terminating(), "{refused}");
    namespace.patch("configmaps/held", json!({"metadata": {"finalizers": null}})).await;
    cluster.until(&path, serde_json::Value::is_null).await;
}
