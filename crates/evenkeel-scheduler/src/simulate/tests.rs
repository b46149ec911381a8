//! Tests of dumps, and of the simulated clusters built from them.

use super::*;
use crate::fixtures::merge;
use crate::{SchedulerOptions, explain::Looker};
use evenkeel_runtime::{cache::Caches, client::Client, clock::Clock, tasks::Tasks};

/// Nodes `small` (1 CPU) and `big` (4 CPUs), and the unscheduled pod `waits`, which requests 2 CPUs.
const DUMP: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: small, uid: s}, status: {allocatable: {cpu: 1, memory: 1Gi, pods: 10}}}
- {apiVersion: v1, kind: Node, metadata: {name: big, uid: b}, status: {allocatable: {cpu: 4, memory: 4Gi, pods: 10}}}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: shop, uid: w}
spec: {schedulerName: default-scheduler, containers: [{name: c, resources: {requests: {cpu: 2}}}]}
";

async fn looker(dump: Dump) -> (Looker, Tasks) {
    let (clock, tasks) = (Clock::system(), Tasks::new());
    let client = Client::new(dump.connection(), clock.clone());
    let caches = Caches::new(client.clone(), clock.clone(), &prometheus::Registry::new());
    let mut looker = Looker::new(client, caches.clone(), clock, &SchedulerOptions::default());
    caches.start(&tasks);
    looker.ready().await;
    (looker, tasks)
}

#[tokio::test]
async fn a_dry_run_reports_the_best_node_and_why_others_are_rejected() {
    let mut dump = Dump::default();
    dump.add(DUMP).unwrap();
    assert_eq!(dump.len(), 3);
    let (mut looker, tasks) = looker(dump).await;
    let first = looker.explain("shop", "waits").unwrap();
    assert_eq!((first.feasible(), first.best()), (vec!["big"], vec!["big"]));
    let rejecting_node = first.nodes.last().unwrap();
    assert_eq!(&*rejecting_node.node, "small");
    assert_eq!(rejecting_node.refused.as_ref().unwrap().reasons, ["Insufficient cpu"]);
    let pending = looker.pending();
    assert_eq!(pending.len(), 1);
    // After two copies of the pod, the node has no CPU for a third.
    for copy in ["one", "two"] {
        looker.place(&pending[0], copy, "big");
    }
    let full = looker.explain("shop", "waits").unwrap();
    assert_eq!(
        full.message.unwrap(),
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: \
         1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    );
    assert!(looker.explain("shop", "nobody").is_none());
    tasks.token().cancel();
}

#[tokio::test]
async fn victims_are_reported_but_not_evicted() {
    let mut dump = Dump::default();
    dump.add(DUMP).unwrap();
    let pods = [("low", -5, "1"), ("middle", 5, "1500m"), ("high", 50, "1500m")];
    for (name, priority, cpu) in pods {
        let resources = json!({"requests": {"cpu": cpu}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name}},
            "spec": {"priority": priority, "nodeName": "big", "containers": [{"name": "c", "resources": resources}]},
        });
        dump.add(&pod.to_string()).unwrap();
    }
    let (mut looker, tasks) = looker(dump).await;
    looker.explain("shop", "waits").unwrap();
    let mut pod = looker.pending()[0].as_ref().clone();
    let mut victims = |priority: i32, policy: &str| {
        pod.spec.priority = Some(priority);
        pod.spec.preemption_policy = policy.into();
        let explained = looker.explain_pod(&Arc::new(pod.clone())).unwrap();
        let pods = explained
            .evictions
            .into_iter()
            .map(|workload| (workload.node.to_string(), workload.pods));
        (pods.collect::<Vec<_>>(), explained.message.unwrap())
    };
    let on_big = |pods: &[&str]| {
        vec![("big".to_owned(), pods.iter().map(|pod| (*pod).to_owned()).collect::<Vec<_>>())]
    };
    // Preemption removes all pods of lower priority, then restores those that fit, the most important first. A second
    // dry run has the same result.
    for _ in 0..2 {
        assert_eq!(victims(10, "").0, on_big(&["shop/middle", "shop/low"]));
        assert_eq!(victims(100, "").0, on_big(&["shop/middle", "shop/low"]));
    }
    let (evictions, message) = victims(0, "");
    assert_eq!(evictions, []);
    assert!(message.contains("preemption: 0/2 nodes are available:"), "{message}");
    let (evictions, message) = victims(100, "Never");
    assert_eq!(evictions, []);
    assert!(message.ends_with("not eligible due to preemptionPolicy=Never."), "{message}");
    tasks.token().cancel();
}

#[test]
fn objects_without_an_api_version_are_rejected() {
    let mut dump = Dump::default();
    let error = dump.add("{kind: Pod}").unwrap_err();
    let shown = "object 1 has no apiVersion: each has apiVersion, kind and metadata.name, such as `apiVersion: v1`";
    assert_eq!(error.to_string(), shown);
    assert!(dump.add("{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}]}").is_ok());
    assert_eq!(plural("StorageClass"), "storageclasses");
    assert_eq!(plural("CSIStorageCapacity"), "csistoragecapacities");
    assert!(!dump.is_empty());
}

/// Returns a workload whose pods request 2 CPUs and are labelled with its name, with `more` merged into it.
fn workload(kind: &str, name: &str, more: &Value) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let resources = json!({"limits": {"cpu": "2"}});
    let template = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    });
    let mut workload = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop"},
        "spec": {"template": template},
    });
    if kind != "Job" {
        workload["spec"]["selector"] = json!({"matchLabels": {"app": name}});
    }
    merge(&mut workload, more);
    workload
}

/// Returns a pod on node `big` with the label of a workload, with `more` merged into it.
fn pod_of(app: &str, name: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": app}},
        "spec": {"nodeName": "big"},
    });
    merge(&mut pod, more);
    pod
}

/// Returns the workloads with missing pods, and all pods after the missing ones were added.
fn complete_dump(objects: &[Value]) -> (Vec<Workload>, Vec<Value>) {
    let mut dump = Dump::default();
    dump.add(DUMP).unwrap();
    objects.iter().for_each(|object| dump.add(&object.to_string()).unwrap());
    let workloads = dump.complete();
    (workloads, dump.objects["/api/v1/pods"].clone())
}

/// Returns the names of the added pods, by workload.
fn added_pods(objects: &[Value]) -> Vec<(String, Vec<String>)> {
    let (workloads, pods) = complete_dump(objects);
    let name = |uid: &String| {
        let pod = pods.iter().find(|pod| pod["metadata"]["uid"] == **uid).unwrap();
        pod["metadata"]["name"].as_str().unwrap().to_owned()
    };
    workloads
        .iter()
        .map(|workload| {
            let pods = workload.pods.iter().map(name).collect();
            (format!("{} {}", workload.kind, workload.name), pods)
        })
        .collect()
}

#[test]
fn missing_pods_of_workloads_are_added() {
    let three = json!({"spec": {"replicas": 3}});
    let existing_pod = |more: Value| pod_of("w", "w-1", &more);
    for (objects, expected) in [
        (
            vec![workload("Deployment", "w", &three)],
            &["w-simulated-0", "w-simulated-1", "w-simulated-2"][..],
        ),
        (vec![workload("Deployment", "w", &json!({}))], &["w-simulated-0"]),
        (vec![workload("Deployment", "w", &json!({"spec": {"replicas": 0}}))], &[]),
        (
            vec![workload("Deployment", "w", &three), existing_pod(json!({}))],
            &["w-simulated-0", "w-simulated-1"],
        ),
        // The existing pod has ended, is terminating, or belongs to another workload.
        (
            vec![
                workload("ReplicaSet", "w", &json!({})),
                existing_pod(json!({"status": {"phase": "Failed"}})),
            ],
            &["w-simulated-0"],
        ),
        (
            vec![
                workload("ReplicaSet", "w", &json!({})),
                existing_pod(json!({"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}})),
            ],
            &["w-simulated-0"],
        ),
        (
            vec![
                workload("ReplicaSet", "w", &json!({})),
                existing_pod(json!({"metadata": {"namespace": "x"}})),
            ],
            &["w-simulated-0"],
        ),
        (vec![workload("StatefulSet", "w", &three), existing_pod(json!({}))], &["w-0", "w-2"]),
        (
            vec![workload("StatefulSet", "w", &json!({"spec": {"ordinals": {"start": 5}}}))],
            &["w-5"],
        ),
        (vec![workload("Job", "w", &json!({}))], &["w-0"]),
        (vec![workload("Job", "w", &json!({"spec": {"parallelism": 3}}))], &["w-0", "w-1", "w-2"]),
        (
            vec![workload(
                "Job",
                "w",
                &json!({"spec": {"parallelism": 3, "completions": 5}, "status": {"succeeded": 3}}),
            )],
            &["w-3", "w-4"],
        ),
        // After a success, a work queue gets no more pods.
        (
            vec![workload(
                "Job",
                "w",
                &json!({"spec": {"parallelism": 3}, "status": {"succeeded": 1}}),
            )],
            &[],
        ),
        // Index 2 has an active pod; 0, 4, 5 and 6 have finished.
        (
            vec![
                workload(
                    "Job",
                    "w",
                    &json!({
                        "spec": {"parallelism": 5, "completions": 9, "completionMode": "Indexed"},
                        "status": {"succeeded": 3, "completedIndexes": "0,4-5", "failedIndexes": "6"},
                    }),
                ),
                existing_pod(json!({"metadata": {
                    "annotations": {"batch.kubernetes.io/job-completion-index": "2"},
                    "ownerReferences": [{"kind": "Job", "name": "w", "controller": true}],
                }})),
            ],
            &["w-1", "w-3", "w-7", "w-8"],
        ),
        (
            vec![workload(
                "Job",
                "w",
                &json!({
                    "spec": {"parallelism": 5, "completions": 3, "completionMode": "Indexed"},
                    "status": {"succeeded": 1, "completedIndexes": "1", "failedIndexes": "2"},
                }),
            )],
            &["w-0"],
        ),
        (vec![workload("Job", "w", &json!({"spec": {"suspend": true}}))], &[]),
        (
            vec![workload(
                "Job",
                "w",
                &json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
            )],
            &[],
        ),
        (vec![workload("DaemonSet", "w", &json!({}))], &["w-small", "w-big"]),
        (vec![workload("DaemonSet", "w", &json!({})), existing_pod(json!({}))], &["w-small"]),
    ] {
        let added_pods: Vec<String> =
            added_pods(&objects).into_iter().flat_map(|(_, pods)| pods).collect();
        assert_eq!(added_pods, expected, "{objects:?}");
    }
}

#[test]
fn pods_of_a_workload_with_an_existing_owner_belong_to_the_owner() {
    let deployment =
        workload("Deployment", "w", &json!({"metadata": {"uid": "d"}, "spec": {"replicas": 2}}));
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "w", "uid": "d", "controller": true}]);
    let set = workload(
        "ReplicaSet",
        "w-1",
        &json!({"metadata": {"ownerReferences": owner}, "spec": {"replicas": 9}}),
    );
    let names: Vec<String> =
        added_pods(&[deployment, set.clone()]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Deployment w"]);
    let names: Vec<String> = added_pods(&[set]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["ReplicaSet w-1"], "the owner does not exist");
}

#[test]
fn added_pods_equal_those_of_the_controller_and_the_api_server() {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7});
    let storage = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "x",
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    });
    let claims =
        json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let spec = json!({"volumeClaimTemplates": claims, "template": {"spec": {"priorityClassName": "high"}}});
    let set = workload("StatefulSet", "db", &json!({"spec": spec}));
    let mut dump = Dump::default();
    for object in [class, storage, set] {
        dump.add(&object.to_string()).unwrap();
    }
    let workloads = dump.complete();
    assert!(!workloads[0].alike, "each pod has its own claim");
    let pod = &dump.objects["/api/v1/pods"][0];
    assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "0");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    let spec = &pod["spec"];
    assert_eq!(
        (&spec["priority"], &spec["schedulerName"]),
        (&7.into(), &"default-scheduler".into())
    );
    assert_eq!(
        spec["containers"][0]["resources"]["requests"]["cpu"], "2",
        "requests default to limits"
    );
    assert_eq!(spec["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-0");
    let claim = &dump.objects["/api/v1/persistentvolumeclaims"][0];
    assert_eq!(
        (&claim["metadata"]["name"], &claim["spec"]["storageClassName"]),
        (&"data-db-0".into(), &"fast".into())
    );
}

#[tokio::test]
async fn daemon_pods_run_on_cordoned_but_not_on_tainted_nodes() {
    let mut dump = Dump::default();
    dump.add(DUMP).unwrap();
    let tainted = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine", "uid": "m"},
        "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]},
    });
    let cordoned = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "out", "uid": "o"},
        "spec": {"unschedulable": true, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
    });
    for object in [tainted, cordoned, workload("DaemonSet", "agent", &json!({}))] {
        dump.add(&object.to_string()).unwrap();
    }
    let added_pods = dump.complete().remove(0).pods;
    assert_eq!(added_pods, ["shop/agent-small", "shop/agent-big", "shop/agent-out"]);
    let (mut looker, tasks) = looker(dump).await;
    let mut best_node = |name: &str| {
        let explained = looker.explain("shop", name).unwrap();
        explained.best().first().map(|node| (*node).to_owned())
    };
    assert_eq!(best_node("agent-big").as_deref(), Some("big"));
    assert_eq!(best_node("agent-out").as_deref(), Some("out"), "the pod tolerates the cordon");
    assert_eq!(best_node("agent-small"), None, "the node has one CPU");
    tasks.token().cancel();
}
