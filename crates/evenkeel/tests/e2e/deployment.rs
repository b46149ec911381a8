//! A Deployment that is created, scaled and described.

use crate::{
    cluster::{Cluster, Namespace, condition, items, name},
    objects::{deployment, image, replica_set, replicas, replication_controller},
    pods::{is_active, is_ready},
};
use serde_json::{Value, json};
use std::time::Duration;

/// Returns whether the Deployment has this many pods, and its controllers have nothing left to do.
pub(crate) fn is_settled(deployment: &Value, count: u32) -> bool {
    let status = &deployment["status"];
    let is = |field: &str, wanted: u32| status[field].as_u64().unwrap_or(0) == u64::from(wanted);
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
            .iter()
            .all(|field| is(field, count))
        && is("unavailableReplicas", 0)
        && is("terminatingReplicas", 0)
}

/// Waits until the rollout of the Deployment with `count` replicas is complete, and returns the Deployment.
pub(crate) async fn settled(namespace: &Namespace<'_>, name: &str, count: u32) -> Value {
    namespace
        .until(&format!("deployments/{name}"), |deployment| is_settled(deployment, count))
        .await
}

/// Returns the messages of the events about an object, with their counts.
pub(crate) async fn events(
    namespace: &Namespace<'_>,
    about: &str,
    reason: &str,
) -> Vec<(String, u64)> {
    let path = format!("events?fieldSelector=involvedObject.name={about},reason={reason}");
    let events = namespace.list(&path).await;
    let mut events: Vec<_> = events
        .iter()
        .map(|event| {
            (
                event["message"].as_str().unwrap_or_default().to_owned(),
                event["count"].as_u64().unwrap_or(1),
            )
        })
        .collect();
    events.sort_unstable();
    events
}

/// Waits until an event about the object has a message that meets a condition.
pub(crate) async fn until_event(
    namespace: &Namespace<'_>,
    about: &str,
    reason: &str,
    part: &str,
) -> Value {
    let path = format!("events?fieldSelector=involvedObject.name={about},reason={reason}");
    let says =
        |event: &&Value| event["message"].as_str().is_some_and(|message| message.contains(part));
    let list = namespace.until(&path, |list| items(list).iter().any(|event| says(&event))).await;
    items(&list).iter().find(says).cloned().unwrap_or(Value::Null)
}

pub(crate) async fn becomes_ready(cluster: &Cluster) {
    let namespace = cluster.namespace("ready").await;
    let mut made = deployment("web", 3, "app:v1");
    made["metadata"]["annotations"] = json!({"note": "copied"});
    namespace.create("deployments", made).await;
    let web = settled(&namespace, "web", 3).await;

    let web = if condition(&web, "Progressing")["reason"] == "NewReplicaSetAvailable" {
        web
    } else {
        namespace
            .until("deployments/web", |web| {
                condition(web, "Progressing")["reason"] == "NewReplicaSetAvailable"
            })
            .await
    };
    let sets = namespace.list("replicasets").await;
    assert_eq!(sets.len(), 1, "{sets:#?}");
    let (set, set_name) = (&sets[0], name(&sets[0]));
    let mut status = web["status"].clone();
    for condition in status["conditions"].as_array_mut().expect("conditions") {
        for time in ["lastUpdateTime", "lastTransitionTime"] {
            let index = condition.as_object_mut().and_then(|condition| condition.remove(time));
            assert!(
                index.is_some_and(|index| index.as_str().is_some_and(|index| index.ends_with('Z'))),
                "{time}: {condition}"
            );
        }
    }
    assert_eq!(
        status,
        json!({
            "observedGeneration": 1,
            "replicas": 3,
            "updatedReplicas": 3,
            "readyReplicas": 3,
            "availableReplicas": 3,
            "terminatingReplicas": 0,
            "conditions": [
                {
                    "type": "Available",
                    "status": "True",
                    "reason": "MinimumReplicasAvailable",
                    "message": "Deployment has minimum availability.",
                },
                {
                    "type": "Progressing",
                    "status": "True",
                    "reason": "NewReplicaSetAvailable",
                    "message": format!("ReplicaSet \"{set_name}\" has successfully progressed."),
                },
            ],
        })
    );
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert_eq!(web["metadata"]["generation"], 1, "status writes are no new generation");

    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().expect("a hash");
    assert_eq!(set_name, format!("web-{hash}"));
    assert_eq!(
        set["spec"]["selector"]["matchLabels"],
        json!({"app": "web", "pod-template-hash": hash})
    );
    assert_eq!(
        set["metadata"]["annotations"],
        json!({
            "note": "copied",
            "deployment.kubernetes.io/desired-replicas": "3",
            "deployment.kubernetes.io/max-replicas": "4",
            "deployment.kubernetes.io/revision": "1",
        })
    );
    assert_eq!(
        set["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": web["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }])
    );
    let set = namespace
        .until(&format!("replicasets/{set_name}"), |set| set["status"]["availableReplicas"] == 3)
        .await;
    assert_eq!(
        set["status"],
        json!({
            "observedGeneration": 1, "replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3, "terminatingReplicas": 0,
        })
    );

    let pods = namespace.list("pods").await;
    assert_eq!(pods.len(), 3);
    for pod in &pods {
        assert!(name(pod).starts_with(&format!("{set_name}-")), "{}", name(pod));
        let mut labels = json!({"app": "web", "pod-template-hash": hash});
        let node = cluster
            .get(&format!("nodes/{}", pod["spec"]["nodeName"].as_str().unwrap_or_default()))
            .await;
        for place in ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"] {
            labels[place] = node["metadata"]["labels"][place].clone();
        }
        assert_eq!(pod["metadata"]["labels"], labels, "with the place of its node");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
        let placed = pod["spec"]["nodeName"].is_string() && pod["status"]["podIP"].is_string();
        assert!(is_ready(pod) && placed, "{pod:#}");
        until_event(&namespace, name(pod), "Scheduled", "Successfully assigned").await;
        until_event(
            &namespace,
            set_name,
            "SuccessfulCreate",
            &format!("Created pod: {}", name(pod)),
        )
        .await;
    }
    until_event(
        &namespace,
        "web",
        "ScalingReplicaSet",
        &format!("Scaled up replica set {set_name} from 0 to 3"),
    )
    .await;
    assert_eq!(events(&namespace, "web", "ScalingReplicaSet").await.len(), 1);
}

pub(crate) async fn is_scaled_up_and_down(cluster: &Cluster) {
    let namespace = cluster.namespace("scale").await;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    settled(&namespace, "web", 2).await;
    // Scales with the sub-resource, as autoscalers do.
    namespace.patch("deployments/web/scale", replicas(6)).await;
    settled(&namespace, "web", 6).await;
    let set = name(&namespace.list("replicasets").await[0]).to_owned();
    until_event(
        &namespace,
        "web",
        "ScalingReplicaSet",
        &format!("Scaled up replica set {set} from 2 to 6"),
    )
    .await;
    namespace.patch("deployments/web", replicas(1)).await;
    settled(&namespace, "web", 1).await;
    until_event(
        &namespace,
        "web",
        "ScalingReplicaSet",
        &format!("Scaled down replica set {set} from 6 to 1"),
    )
    .await;
    namespace.until("pods", |pods| items(pods).len() == 1).await;
    assert!(namespace.list("pods").await.iter().all(is_active));
    namespace.patch("deployments/web", replicas(0)).await;
    let web = settled(&namespace, "web", 0).await;
    assert_eq!(
        condition(&web, "Available")["status"],
        "True",
        "none is enough when none is wanted"
    );
    namespace.until_none("pods").await;
    assert_eq!(namespace.list("replicasets").await.len(), 1, "scaling makes no revision");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
}

pub(crate) async fn counts_collisions(cluster: &Cluster) {
    let namespace = cluster.namespace("collision").await;
    namespace.create("deployments", deployment("web", 1, "app:v1")).await;
    settled(&namespace, "web", 1).await;
    let taken = name(&namespace.list("replicasets").await[0]).to_owned();
    namespace.delete("deployments/web", "Foreground").await;
    namespace.until_gone("deployments/web").await;
    // Another ReplicaSet has the name that the Deployment's ReplicaSet would get.
    namespace.create("replicasets", replica_set(&taken, 0, "other:v1")).await;
    namespace.create("deployments", deployment("web", 1, "app:v1")).await;
    let web = settled(&namespace, "web", 1).await;
    assert_eq!(web["status"]["collisionCount"], 1);
    let sets = namespace.list("replicasets").await;
    let own: Vec<_> = sets.iter().filter(|set| name(set) != taken).collect();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0]["metadata"]["ownerReferences"][0]["uid"], web["metadata"]["uid"]);
    let other = sets.iter().find(|set| name(set) == taken).expect("it is still there");
    assert!(other["metadata"]["ownerReferences"].is_null() && other["spec"]["replicas"] == 0);
}

pub(crate) async fn adopts_what_was_orphaned(cluster: &Cluster) {
    let namespace = cluster.namespace("orphans").await;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    settled(&namespace, "web", 2).await;
    let uids = async || {
        let mut uids: Vec<_> = namespace
            .list("pods")
            .await
            .iter()
            .map(|pod| pod["metadata"]["uid"].to_string())
            .collect();
        uids.sort_unstable();
        uids
    };
    let before = uids().await;
    namespace.delete("deployments/web", "Orphan").await;
    namespace.until_gone("deployments/web").await;
    let sets = namespace.until("replicasets", |sets| {
        items(sets).iter().all(|set| set["metadata"]["ownerReferences"].is_null())
    });
    let sets = sets.await;
    assert_eq!(items(&sets).len(), 1);
    let web = namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    settled(&namespace, "web", 2).await;
    let again = namespace.list("replicasets").await;
    assert_eq!(again.len(), 1, "the same template needs no second ReplicaSet");
    assert_eq!(again[0]["metadata"]["uid"], items(&sets)[0]["metadata"]["uid"]);
    assert_eq!(again[0]["metadata"]["ownerReferences"][0]["uid"], web["metadata"]["uid"]);
    assert_eq!(uids().await, before, "no pod was touched");
}

pub(crate) async fn tells_why_pods_cannot_be_made(cluster: &Cluster) {
    let namespace = cluster.namespace("failure").await;
    let mut made = deployment("web", 2, "app:v1");
    made["spec"]["template"]["spec"]["serviceAccountName"] = json!("nobody");
    namespace.create("deployments", made).await;
    let web = namespace
        .until("deployments/web", |web| condition(web, "ReplicaFailure")["status"] == "True")
        .await;
    let failure = condition(&web, "ReplicaFailure");
    assert_eq!(failure["reason"], "FailedCreate");
    let why = "serviceaccount \"nobody\" not found";
    assert!(failure["message"].as_str().is_some_and(|message| message.contains(why)), "{failure}");
    let set = name(&namespace.list("replicasets").await[0]).to_owned();
    until_event(&namespace, &set, "FailedCreate", why).await;
    namespace.create("serviceaccounts", json!({"metadata": {"name": "nobody"}})).await;
    settled(&namespace, "web", 2).await;
    let fine = |object: &Value| condition(object, "ReplicaFailure").is_null();
    namespace.until("deployments/web", fine).await;
    namespace.until(&format!("replicasets/{set}"), fine).await;
}

pub(crate) async fn is_left_alone_once_done(cluster: &Cluster) {
    let namespace = cluster.namespace("quiet").await;
    namespace.create("deployments", deployment("web", 3, "app:v1")).await;
    settled(&namespace, "web", 3).await;
    namespace.patch("deployments/web", image("app:v2")).await;
    settled(&namespace, "web", 3).await;
    namespace.create("replicasets", replica_set("set", 2, "app:v1")).await;
    namespace.create("replicationcontrollers", replication_controller("rc", 2, "app:v1")).await;
    for path in ["replicasets/set", "replicationcontrollers/rc"] {
        namespace.until(path, |owner| owner["status"]["readyReplicas"] == 2).await;
    }
    // Wait until the last statuses and events are written.
    cluster.sleep(Duration::from_secs(3)).await;
    let versions = async || {
        let mut versions = Vec::new();
        let resources = [
            "deployments",
            "replicasets",
            "replicationcontrollers",
            "pods",
            "configmaps",
            "serviceaccounts",
            "events",
        ];
        for resource in resources {
            let list = namespace.list(resource).await;
            assert!(!list.is_empty(), "{resource}");
            versions.extend(list.iter().map(|object| {
                format!("{resource}/{} at {}", name(object), object["metadata"]["resourceVersion"])
            }));
        }
        versions
    };
    let before = versions().await;
    cluster.watch_a_while().await;
    assert_eq!(versions().await, before, "nothing is written when there is nothing to do");
}
