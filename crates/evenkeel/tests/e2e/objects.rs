//! Objects that cases make.

use serde_json::{Value, json};

/// Containers of one image.
pub(crate) fn pod_spec(image: &str) -> Value {
    json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "app", "image": image}]})
}

/// A Deployment of pods labelled `app: <name>`, with rolling updates one by one and no pod less.
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

/// A ReplicaSet of pods labelled `app: <name>`.
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

/// A ReplicationController of pods labelled `app: <name>`.
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

/// A pod of its own.
pub(crate) fn pod(name: &str, labels: &Value, image: &str) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "spec": pod_spec(image)})
}

/// A ConfigMap with these owners and finalizers.
pub(crate) fn config_map(name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}})
}

/// A reference to `owner`, as its answer from the server shows it.
pub(crate) fn owned_by(owner: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    })
}

/// A patch of a Deployment's image.
pub(crate) fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": image}]}}}})
}

/// A patch of a count of replicas.
pub(crate) fn replicas(count: u32) -> Value {
    json!({"spec": {"replicas": count}})
}
