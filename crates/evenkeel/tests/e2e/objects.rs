//! Objects that the cases create.

use serde_json::{Value, json};

/// Returns the pod spec of one container with this image.
pub(crate) fn pod_spec(image: &str) -> Value {
    json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "app", "image": image}]})
}

/// Returns a Deployment of pods with the label `app: <name>`, and with rolling updates of one surplus pod and none unavailable.
pub(crate) fn deployment(name: &str, replicas: u32, image: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(image)},
        },
    })
}

/// Returns a ReplicaSet of pods with the label `app: <name>`.
pub(crate) fn replica_set(name: &str, replicas: u32, image: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(image)},
        },
    })
}

/// Returns a ReplicationController of pods with the label `app: <name>`.
pub(crate) fn replication_controller(name: &str, replicas: u32, image: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"app": name},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(image)},
        },
    })
}

/// Returns a pod without a controller.
pub(crate) fn pod(name: &str, labels: &Value, image: &str) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "spec": pod_spec(image)})
}

/// Returns a ConfigMap with these owners and finalizers.
pub(crate) fn config_map(name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}})
}

/// Returns a reference to `owner`, which is an object from a response of the server.
pub(crate) fn owned_by(owner: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    })
}

/// Returns a patch of a Deployment's image.
pub(crate) fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": image}]}}}})
}

/// Returns a patch of the number of replicas.
pub(crate) fn replicas(count: u32) -> Value {
    json!({"spec": {"replicas": count}})
}
