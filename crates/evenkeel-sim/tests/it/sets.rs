//! StatefulSets and DaemonSets get a new image under faults.

use crate::fixtures::{
    KINDS, PODS, REST, SILENCE, check_pods, each, every_kind, image, is_ready, ready, repeated,
    several, template, uid, web_pods,
};
use evenkeel_sim::{FaultKind, Faults, Options, PodWatch, World};
use serde_json::{Value, json};

pub(crate) const STATEFUL: &str = "/apis/apps/v1/namespaces/default/statefulsets";
pub(crate) const DAEMONS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

pub(crate) fn stateful(replicas: u32, policy: &str) -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas, "serviceName": "web", "podManagementPolicy": policy,
            "selector": { "matchLabels": { "app": "web" } }, "template": template("a"),
        },
    })
}

pub(crate) fn daemons(surge: u32) -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } }, "template": template("a"),
            "updateStrategy": { "rollingUpdate": { "maxSurge": surge, "maxUnavailable": 1 - surge } },
        },
    })
}

/// Checks that each template has one revision, and that all events are recorded.
async fn check_end(world: &mut World, path: &str, counts: &[&str]) {
    world.settle(REST).await;
    let set = world.get(&format!("{path}/web")).await.expect("it is there");
    check_pods(&world.list(PODS).await, 3, uid(&set), "b");
    let status = &set["status"];
    for count in counts {
        assert_eq!(status[*count], 3, "{count}: {status:#}");
    }
    assert_eq!(status["observedGeneration"], set["metadata"]["generation"], "{status:#}");
    let revisions = world.list(REVISIONS).await;
    assert_eq!(revisions.len(), 2, "{revisions:#?}");
    world.stays_silent(SILENCE).await;
}

/// The controller replaces three pods from the last to the first.
pub(crate) async fn ordered_ready(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let pods = web_pods(world).await;
    world.create(STATEFUL, &stateful(3, "OrderedReady")).await;
    ready(world, &pods, 3).await;
    assert!(pods.max_active() <= 3, "{:?}", pods.counts());
    pods.reset();
    world.merge(&format!("{STATEFUL}/web"), &image("b")).await;
    let counts =
        ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    check_end(world, STATEFUL, &counts).await;
    assert!(pods.min_ready() >= 2, "too few pods: {:?}", pods.counts());
    let mut names: Vec<Value> =
        world.list(PODS).await.iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    names.sort_by_key(Value::to_string);
    assert_eq!(names, ["web-0", "web-1", "web-2"]);
}

/// The controller replaces all pods at once, and then scales the set down.
async fn parallel(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let pods = web_pods(world).await;
    world.create(STATEFUL, &stateful(5, "Parallel")).await;
    ready(world, &pods, 5).await;
    world.merge(&format!("{STATEFUL}/web"), &json!({ "spec": { "replicas": 2 } })).await;
    world.settle(REST).await;
    let left = world.list(PODS).await;
    assert_eq!(left.len(), 2, "{left:#?}");
    assert!(left.iter().all(is_ready));
    world.stays_silent(SILENCE).await;
}

/// Waits until the controller has observed that all pods are ready. It immediately replaces a pod that it observes as
/// unavailable, even beyond `maxUnavailable`.
///
/// Upstream: `DaemonSetsController.rollingUpdate`.
async fn seen_ready(world: &mut World, pods: &PodWatch) {
    world.settle(REST).await;
    pods.reset();
}

async fn daemon_set_max_unavailable(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    let repeated = repeated(&faults);
    world.arm(faults);
    let pods = web_pods(world).await;
    world.create(DAEMONS, &daemons(0)).await;
    ready(world, &pods, 3).await;
    assert!(pods.max_active() <= 3 + repeated, "{:?}", pods.counts());
    seen_ready(world, &pods).await;
    world.merge(&format!("{DAEMONS}/web"), &image("b")).await;
    let counts = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberReady",
        "numberAvailable",
    ];
    check_end(world, DAEMONS, &counts).await;
    assert!(pods.min_ready() >= 2, "too few pods: {:?}", pods.counts());
}

pub(crate) async fn daemon_set_max_surge(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    let repeated = repeated(&faults);
    world.arm(faults);
    let pods = web_pods(world).await;
    world.create(DAEMONS, &daemons(1)).await;
    ready(world, &pods, 3).await;
    seen_ready(world, &pods).await;
    world.merge(&format!("{DAEMONS}/web"), &image("b")).await;
    check_end(world, DAEMONS, &["desiredNumberScheduled", "numberAvailable"]).await;
    assert!(pods.min_ready() >= 3, "too few pods: {:?}", pods.counts());
    assert!(pods.max_active() <= 4 + repeated, "too many pods: {:?}", pods.counts());
}

#[test]
fn ordered_ready_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 7, &ordered_ready);
}

#[test]
fn ordered_ready_with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 7, &ordered_ready);
}

#[test]
fn parallel_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 7, &parallel);
}

#[test]
fn daemon_set_max_unavailable_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 7, &daemon_set_max_unavailable);
}

#[test]
fn daemon_set_max_unavailable_with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 7, &daemon_set_max_unavailable);
}

#[test]
fn daemon_set_max_surge_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 7, &daemon_set_max_surge);
}

#[test]
fn random_faults() {
    several(&Options::default(), 4, (6, 30), &KINDS, &ordered_ready);
    several(&Options::default(), 4, (6, 30), &KINDS, &parallel);
    several(&Options::default(), 4, (6, 30), &KINDS, &daemon_set_max_unavailable);
    several(&Options::default(), 4, (6, 30), &KINDS, &daemon_set_max_surge);
}

#[test]
fn ordered_ready_with_every_kind_of_fault() {
    every_kind(&Options::default(), &ordered_ready);
}

#[test]
fn parallel_with_every_kind_of_fault() {
    every_kind(&Options::default(), &parallel);
}

#[test]
fn daemon_set_max_unavailable_with_every_kind_of_fault() {
    every_kind(&Options::default(), &daemon_set_max_unavailable);
}

#[test]
fn daemon_set_max_surge_with_every_kind_of_fault() {
    every_kind(&Options::default(), &daemon_set_max_surge);
}
