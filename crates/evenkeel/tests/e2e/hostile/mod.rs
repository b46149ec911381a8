//! A hundred invalid objects do not disturb a cluster: each is reported only once.

mod custom;
mod objects;
mod process;

use crate::{
    cluster::{Cluster, Inside, Namespace, items, name},
    deployment::settled,
    objects::{deployment, image, replica_set, replicas, replication_controller},
};
use objects::{Bad, bad};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// Time for controllers to process all objects: deadlines have passed by then, and failures have long backoffs.
const DIGEST: Duration = Duration::from_secs(900);

pub(crate) async fn a_hundred_bad_objects_harm_nobody(cluster: &Cluster) {
    let namespace = cluster.namespace("hostile").await;
    let healthy = cluster.namespace("healthy").await;
    let quiet = requests_in_a_while(cluster).await;
    custom::define(cluster).await;
    let mut all = bad(&namespace.name);
    all.extend(custom::bad(&namespace.name));
    assert!(all.len() >= 100, "{} objects", all.len());
    let mut admitted = 0;
    for bad in &all {
        admitted += usize::from(write(cluster, bad).await);
    }
    goes_on(&healthy).await;
    if cluster.inside().is_some() {
        cluster.sleep(DIGEST).await;
    }
    let before = state(cluster, &all).await;
    let first = event_counts(&namespace).await;
    let busy = requests_in_a_while(cluster).await;
    let after = state(cluster, &all).await;
    let mut wrong = Vec::new();
    if let Some(inside) = cluster.inside() {
        // Refused writes are retried with growing backoffs, and nothing else is written.
        let changed = before.iter().filter(|(path, version)| after.get(*path) != Some(*version));
        wrong.extend(
            changed.map(|(path, _)| format!("written again though nothing changed: {path}")),
        );
        for (event, n) in event_counts(&namespace).await {
            let was = first.get(&event).copied().unwrap_or(0);
            // As upstream's, an autoscaler without its target is reconciled and reported every 15 s.
            if n > was + 2 && !event.starts_with("HorizontalPodAutoscaler") {
                wrong.push(format!("recorded {n} times, {was} a while ago: {event}"));
            }
        }
        if busy > quiet + 2 * all.len() as u64 + cluster.node_health_requests() {
            wrong.push(format!("{busy} requests in a while, {quiet} without bad objects"));
        }
        bounded(inside, all.len(), &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(admitted > 0, "the API server admits none of them");
    goes_on(&healthy).await;
    clean_up(cluster, &namespace, &all).await;
    custom::undefine(cluster).await;
}

/// Writes an object. If the API server refuses it, writes it directly to the store. Returns whether the server admitted it.
async fn write(cluster: &Cluster, bad: &Bad) -> bool {
    let mut posted = bad.object.clone();
    if let Some(metadata) = posted["metadata"].as_object_mut() {
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "generation"] {
            metadata.remove(field);
        }
    }
    let changed = posted["metadata"] != bad.object["metadata"] && bad.as_it_is;
    if !changed && cluster.ask("POST", &bad.collection, posted).await.is_ok() {
        return true;
    }
    cluster.store(&bad.key, &bad.object).await;
    false
}

/// Checks that other workloads are created, changed and deleted as usual.
async fn goes_on(namespace: &Namespace<'_>) {
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    settled(namespace, "web", 2).await;
    namespace.patch("deployments/web", image("app:v2")).await;
    settled(namespace, "web", 2).await;
    namespace.patch("deployments/web", replicas(3)).await;
    settled(namespace, "web", 3).await;
    namespace.create("replicasets", replica_set("set", 2, "app:v1")).await;
    namespace.create("replicationcontrollers", replication_controller("rc", 2, "app:v1")).await;
    for path in ["replicasets/set", "replicationcontrollers/rc"] {
        namespace.until(path, |owner| owner["status"]["readyReplicas"] == 2).await;
    }
    for path in ["deployments/web", "replicasets/set", "replicationcontrollers/rc"] {
        namespace.delete(path, "Background").await;
        namespace.until_gone(path).await;
    }
    namespace.until_none("pods").await;
}

/// Returns the number of requests that the control plane sends in a certain time.
async fn requests_in_a_while(cluster: &Cluster) -> u64 {
    let before = cluster.inside().map_or(0, requests);
    cluster.watch_a_while().await;
    cluster.inside().map_or(0, requests) - before
}

fn requests(inside: &Inside) -> u64 {
    let families = inside.registry.gather();
    let of_requests =
        families.iter().filter(|family| family.name() == "rest_client_requests_total");
    let metrics = of_requests.flat_map(prometheus::proto::MetricFamily::get_metric);
    metrics.map(|metric| metric.get_counter().get_value() as u64).sum()
}

/// Returns the version of each existing invalid object.
async fn state(cluster: &Cluster, all: &[Bad]) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for bad in all {
        let path = bad.path();
        let object = cluster.get(&path).await;
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or("gone");
        versions.insert(path, version.to_owned());
    }
    versions
}

/// Counts the events of each object.
async fn event_counts(namespace: &Namespace<'_>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for event in namespace.list("events").await {
        let about = &event["involvedObject"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let what = [&about["kind"], &about["name"], &event["reason"]].map(text).join(" ");
        let n = event["count"].as_u64().or(event["series"]["count"].as_u64()).unwrap_or(1);
        *counts.entry(what).or_default() += n;
    }
    counts
}

/// Checks that the controllers' memory is bounded by the number of objects.
fn bounded(inside: &Inside, n_bad: usize, wrong: &mut Vec<String>) {
    let listing = inside.introspection.listing();
    for controller in &listing.controllers {
        let (name, queue) = (&controller.name, &controller.queue);
        let within = queue.is_idle()
            && queue.waiting_for_cache == 0
            && queue.delayed <= n_bad + 20
            && queue.backing_off <= n_bad;
        let report = inside.introspection.controller(name).expect("it runs");
        let remembered = report.errors.len() <= 16
            && report.passes.len() <= 128
            && report.errors.iter().all(|failed| failed.error.len() < 600);
        if !(within && remembered) {
            wrong.push(format!("{name} holds too much: {queue:?} {:#?}", report.errors));
        }
    }
    for cache in &listing.caches {
        // Invalid objects, the default objects of a cluster, and those that healthy workloads left.
        if !cache.synced || cache.trouble.is_some() || cache.objects > n_bad + 200 {
            wrong.push(format!("cache: {cache:?}"));
        }
    }
}

/// Removes the finalizers of the objects, so that the next case has a clean cluster.
async fn clean_up(cluster: &Cluster, namespace: &Namespace<'_>, all: &[Bad]) {
    let free = json!({"metadata": {"finalizers": null, "ownerReferences": null}});
    for bad in all {
        // Many objects are already deleted, and the server may refuse changes of others.
        let _ = cluster.ask("PATCH", &bad.path(), free.clone()).await;
        let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        let _ = cluster.ask("DELETE", &bad.path(), now).await;
    }
    let pods = namespace.get("pods").await;
    for pod in items(&pods) {
        let path = namespace.path(&format!("pods/{}", name(pod)));
        let _ = cluster.ask("DELETE", &path, json!({"gracePeriodSeconds": 0})).await;
    }
}
