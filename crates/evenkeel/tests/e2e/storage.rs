//! Volumes and claims.

use crate::{
    cluster::{Cluster, Namespace, condition, items, name},
    objects::pod_spec,
    pods::is_ready,
};
use serde_json::{Value, json};

fn claim(name: &str, more: &Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        claim["spec"][key] = value.clone();
    }
    claim
}

/// Returns a volume of a class that only this namespace uses, so that no other case binds it.
fn volume(of: &Namespace<'_>, name: &str, size: &str, more: &Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": format!("{}-{name}", of.name)},
        "spec": {
            "storageClassName": of.name, "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "nfs.example.com", "path": "/v"},
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        volume["spec"][key] = value.clone();
    }
    volume
}

fn user(name: &str, source: &Value) -> Value {
    let mut spec = pod_spec("app:v1");
    let mut volume = source.clone();
    volume["name"] = "data".into();
    spec["volumes"] = json!([volume]);
    spec["terminationGracePeriodSeconds"] = json!(1);
    json!({"metadata": {"name": name}, "spec": spec})
}

fn by_claim(claim: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": claim}})
}

async fn bound(namespace: &Namespace<'_>, claim: &str) -> Value {
    namespace
        .until(&format!("persistentvolumeclaims/{claim}"), |claim| {
            claim["status"]["phase"] == "Bound"
        })
        .await
}

async fn phase(namespace: &Namespace<'_>, volume: &str, phase: &str) -> Value {
    let path = format!("persistentvolumes/{}-{volume}", namespace.name);
    namespace.cluster().until(&path, |volume| volume["status"]["phase"] == phase).await
}

async fn event_message(namespace: &Namespace<'_>, about: &str, reason: &str) -> String {
    let path = format!("events?fieldSelector=involvedObject.name={about},reason={reason}");
    let events = namespace.until(&path, |events| !items(events).is_empty()).await;
    items(&events)[0]["message"].as_str().unwrap_or_default().to_owned()
}

pub(crate) async fn is_made_when_a_pod_wants_it_and_goes_with_its_claim(cluster: &Cluster) {
    let namespace = cluster.namespace("made").await;
    let class = "/apis/storage.k8s.io/v1/storageclasses/standard";
    cluster.until(class, |class| !class.is_null()).await;
    namespace.create("persistentvolumeclaims", claim("data", &json!({}))).await;
    let why = event_message(&namespace, "data", "WaitForFirstConsumer").await;
    assert_eq!(why, "waiting for first consumer to be created before binding");
    namespace.create("pods", user("web", &by_claim("data"))).await;
    let pod = namespace.until("pods/web", is_ready).await;
    let claim = bound(&namespace, "data").await;
    assert_eq!(claim["spec"]["storageClassName"], "standard");
    let notes = &claim["metadata"]["annotations"];
    assert_eq!(notes["volume.kubernetes.io/selected-node"], pod["spec"]["nodeName"]);
    assert_eq!(notes["pv.kubernetes.io/bind-completed"], "yes");
    let path =
        format!("persistentvolumes/{}", claim["spec"]["volumeName"].as_str().expect("a name"));
    let volume = cluster.until(&path, |volume| volume["status"]["phase"] == "Bound").await;
    assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    // A claim that requests more storage is expanded.
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    namespace.patch("persistentvolumeclaims/data", more).await;
    let path_of_claim = "persistentvolumeclaims/data";
    namespace.until(path_of_claim, |claim| claim["status"]["capacity"]["storage"] == "2Gi").await;
    namespace.delete("pods/web", "Background").await;
    namespace.delete(path_of_claim, "Background").await;
    namespace.until_gone(path_of_claim).await;
    cluster.until(&path, Value::is_null).await;
}

pub(crate) async fn that_is_there_is_found_promised_and_lost(cluster: &Cluster) {
    let namespace = cluster.namespace("found").await;
    let of_class = json!({"storageClassName": namespace.name});
    let promised = json!({"claimRef": {"namespace": namespace.name, "name": "second"}});
    for (name, size, more) in
        [("small", "1Gi", json!({})), ("big", "5Gi", json!({})), ("promised", "9Gi", promised)]
    {
        cluster.create("persistentvolumes", volume(&namespace, name, size, &more)).await;
    }
    for volume in ["small", "big", "promised"] {
        phase(&namespace, volume, "Available").await;
    }
    for claim_name in ["first", "second"] {
        namespace.create("persistentvolumeclaims", claim(claim_name, &of_class)).await;
    }
    for (claim, volume) in [("first", "small"), ("second", "promised")] {
        let claim = bound(&namespace, claim).await;
        assert_eq!(claim["spec"]["volumeName"], format!("{}-{volume}", namespace.name));
    }
    phase(&namespace, "big", "Available").await;
    let mut wants = of_class.clone();
    wants["volumeName"] = format!("{}-big", namespace.name).into();
    wants["resources"] = json!({"requests": {"storage": "50Gi"}});
    namespace.create("persistentvolumeclaims", claim("greedy", &wants)).await;
    let why = event_message(&namespace, "greedy", "VolumeMismatch").await;
    assert!(why.ends_with("requested PV is too small"), "{why}");
    namespace.delete("persistentvolumeclaims/first", "Background").await;
    phase(&namespace, "small", "Released").await;
    // A claim whose volume is deleted by force becomes Lost.
    let path = format!("persistentvolumes/{}-promised", namespace.name);
    cluster.delete(&path, "Background").await;
    cluster.patch(&path, json!({"metadata": {"finalizers": null}})).await;
    namespace
        .until("persistentvolumeclaims/second", |claim| claim["status"]["phase"] == "Lost")
        .await;
    for volume in ["small", "big"] {
        cluster
            .delete(&format!("persistentvolumes/{}-{volume}", namespace.name), "Background")
            .await;
    }
}

pub(crate) async fn that_is_used_stays(cluster: &Cluster) {
    let namespace = cluster.namespace("used").await;
    let of_class = json!({"storageClassName": namespace.name});
    cluster.create("persistentvolumes", volume(&namespace, "one", "1Gi", &json!({}))).await;
    namespace.create("persistentvolumeclaims", claim("one", &of_class)).await;
    bound(&namespace, "one").await;
    let says =
        |status: &'static str| move |claim: &Value| condition(claim, "Unused")["status"] == status;
    namespace.until("persistentvolumeclaims/one", says("True")).await;
    namespace.create("pods", user("web", &by_claim("one"))).await;
    namespace.until("pods/web", is_ready).await;
    namespace.until("persistentvolumeclaims/one", says("False")).await;
    namespace.delete("persistentvolumeclaims/one", "Background").await;
    let path = format!("persistentvolumes/{}-one", namespace.name);
    cluster.delete(&path, "Background").await;
    cluster.watch_a_while().await;
    let kept = namespace.get("persistentvolumeclaims/one").await;
    assert!(!kept["metadata"]["deletionTimestamp"].is_null(), "{kept:#}");
    assert_eq!(cluster.get(&path).await["status"]["phase"], "Bound");
    namespace.delete("pods/web", "Background").await;
    namespace.until_gone("persistentvolumeclaims/one").await;
    cluster.until(&path, Value::is_null).await;
}

pub(crate) async fn of_a_pod_alone_comes_and_goes_with_it(cluster: &Cluster) {
    let namespace = cluster.namespace("ephemeral").await;
    let template = claim("unused", &json!({}))["spec"].clone();
    let source = json!({"ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": template}}});
    // This claim blocks the second pod.
    namespace.create("persistentvolumeclaims", claim("blocked-data", &json!({}))).await;
    for pod in ["works", "blocked"] {
        namespace.create("pods", user(pod, &source)).await;
    }
    let pod = namespace.until("pods/works", is_ready).await;
    let made = bound(&namespace, "works-data").await;
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
    let why = event_message(&namespace, "blocked", "FailedBinding").await;
    assert!(why.ends_with("(pod is not owner)"), "{why}");
    namespace.delete("persistentvolumeclaims/blocked-data", "Background").await;
    namespace.until("pods/blocked", is_ready).await;
    for pod in ["works", "blocked"] {
        namespace.delete(&format!("pods/{pod}"), "Background").await;
    }
    namespace.until_none("persistentvolumeclaims").await;
    let volume =
        format!("persistentvolumes/{}", made["spec"]["volumeName"].as_str().expect("a name"));
    cluster.until(&volume, Value::is_null).await;
}

pub(crate) async fn of_sets_go_as_they_say(cluster: &Cluster) {
    let namespace = cluster.namespace("retention").await;
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 2, "serviceName": "dbs",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod_spec("app:v1")},
            "volumeClaimTemplates": [claim("data", &json!({}))],
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
        },
    });
    namespace.create("statefulsets", set).await;
    namespace.until("statefulsets/db", |set| set["status"]["readyReplicas"] == 2).await;
    let names = |claims: &Value| {
        items(claims).iter().map(|claim| name(claim).to_owned()).collect::<Vec<_>>()
    };
    let claims = namespace.get("persistentvolumeclaims").await;
    assert_eq!(names(&claims), ["data-db-0", "data-db-1"]);
    assert!(items(&claims).iter().all(|claim| claim["status"]["phase"] == "Bound"), "{claims:#}");
    namespace.patch("statefulsets/db", json!({"spec": {"replicas": 1}})).await;
    namespace.until("persistentvolumeclaims", |claims| names(claims) == ["data-db-0"]).await;
    namespace.delete("statefulsets/db", "Background").await;
    namespace.until_none("persistentvolumeclaims").await;
}
