//! Objects of small clusters.

use evenkeel_whatif::{
    Cluster, Nodes, Recording, Report, Scenario, clone::CloneOptions, report, simulate,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Returns a ready node with two CPUs in a zone.
pub(crate) fn node(name: &str, zone: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-05-01T00:00:00Z",
            "labels": {
                "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": "r", "kubernetes.io/os": "linux"
            }
        },
        "status": {
            "capacity": {"cpu": "2", "memory": "4Gi", "pods": "20"},
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "20"},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": "2026-05-01T00:10:00Z",
                "lastTransitionTime": "2026-05-01T00:00:00Z"
            }],
            "nodeInfo": {"kubeletVersion": "v1.35.0"}
        }
    })
}

/// Returns a Deployment whose pods request this CPU.
pub(crate) fn deployment(name: &str, replicas: u32, cpu: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "c", "image": "web:1", "resources": {"requests": {"cpu": cpu}}
                }]}
            }
        }
    })
}

/// Returns the nodes that an option names.
pub(crate) fn nodes(text: &str) -> Vec<Nodes> {
    vec![text.parse().expect("nodes")]
}

/// Returns a ReplicaSet with its pods, which run on these nodes.
pub(crate) fn running(name: &str, on: &[&str]) -> Vec<Value> {
    let labels = json!({"app": name});
    let spec = json!({
        "containers": [{
            "name": "c", "image": "web:1", "resources": {"requests": {"cpu": "500m"}}
        }],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
    });
    let mut objects = vec![json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")},
        "spec": {
            "replicas": on.len(), "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec}
        }
    })];
    for (index, node) in on.iter().enumerate() {
        let mut spec = spec.clone();
        spec["nodeName"] = (*node).into();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-05-01T00:05:00Z"});
        objects.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{name}-{index}"), "namespace": "shop", "labels": labels,
                "uid": format!("uid-{name}-{index}"),
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name,
                    "uid": format!("uid-{name}"), "controller": true
                }]
            },
            "spec": spec,
            "status": {
                "phase": "Running", "startTime": "2026-05-01T00:05:00Z", "podIP": format!("10.9.0.{index}"),
                "conditions": [condition("PodScheduled"), condition("Initialized"),
                    condition("ContainersReady"), condition("Ready")],
                "containerStatuses": [{
                    "name": "c", "image": "web:1", "imageID": "x", "ready": true, "started": true,
                    "restartCount": 3, "state": {"running": {"startedAt": "2026-05-01T00:05:00Z"}}
                }]
            }
        }));
    }
    objects
}

/// Returns a budget that keeps this number of a Deployment's pods.
pub(crate) fn budget(name: &str, min_available: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "minAvailable": min_available,
            "selector": {"matchLabels": {"app": name}}
        }
    })
}

/// Returns a CronJob whose pods request little.
pub(crate) fn cronjob(name: &str, schedule: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-05-01T00:00:00Z"
        },
        "spec": {
            "schedule": schedule,
            "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "c", "image": "job:1", "resources": {"requests": {"cpu": "50m"}}
                }]
            }}}}
        }
    })
}

/// Returns a Behavior.
pub(crate) fn behavior(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "sim.evenkeel.dev/v1alpha1", "kind": "Behavior",
        "metadata": {"name": name, "creationTimestamp": "2026-05-01T00:00:00Z"}, "spec": spec
    })
}

/// Returns a cluster of these objects.
pub(crate) fn cluster(objects: &[Value]) -> Cluster {
    let mut cluster = Cluster::default();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    cluster.add(&list.to_string(), &CloneOptions::default()).expect("objects");
    cluster
}

/// Returns a scenario of this length.
pub(crate) fn scenario(minutes: u64) -> Scenario {
    Scenario { duration: Duration::from_mins(minutes), ..Scenario::default() }
}

/// Runs a scenario.
pub(crate) fn record(objects: &[Value], scenario: &Scenario) -> Recording {
    simulate(&cluster(objects), scenario).expect("a recording")
}

/// Runs a scenario, and returns its report.
pub(crate) fn run(objects: &[Value], scenario: &Scenario) -> Report {
    report(&record(objects, scenario))
}

/// Returns the number of a workload's pods on each node at the end.
pub(crate) fn placed(report: &Report, workload: &str) -> Vec<(String, usize)> {
    let placements = report.placements.iter().filter(|placement| placement.workload == workload);
    placements.map(|placement| (placement.node.clone(), placement.pods)).collect()
}
