//! Pods are adopted, created and deleted under faults.

use crate::fixtures::{
    CONTROLLERS, DEPLOYMENTS, PODS, REST, SILENCE, bare_pod, check_deployment, check_pods,
    deployment, each, every_kind, ready, repeated, running, template, uid, web_pods,
};
use evenkeel_sim::{FaultKind, Faults, Options, World};
use serde_json::{Value, json};

/// Six pods are scaled down to two: no more than necessary are deleted, and none is created.
async fn scale_down(world: &mut World, faults: Faults) {
    let pods = running(world, &deployment(6, "a"), 6).await;
    let before = world.list(PODS).await;
    world.arm(faults);
    pods.reset();
    let scale = json!({ "spec": { "replicas": 2 } });
    world.merge(&format!("{DEPLOYMENTS}/web"), &scale).await;
    world.settle(REST).await;
    assert!(pods.min_ready() >= 2, "too few pods: {:?}", pods.counts());
    check_deployment(world, 2, "a", 1).await;
    let was_there = |pod: &Value| before.iter().any(|old| uid(old) == uid(pod));
    assert!(world.list(PODS).await.iter().all(was_there), "a pod was replaced");
    world.stays_silent(SILENCE).await;
}

/// A ReplicationController with three replicas adopts two pods, and creates one.
pub(crate) async fn adoption(world: &mut World, faults: Faults) {
    let pods = web_pods(world).await;
    world.settle(REST).await;
    world.create(PODS, &bare_pod("one")).await;
    world.create(PODS, &bare_pod("two")).await;
    ready(world, &pods, 2).await;
    world.settle(REST).await;
    let repeated = repeated(&faults);
    world.arm(faults);
    let controller = json!({
        "metadata": { "name": "web" }, "spec": { "replicas": 3, "template": template("a") },
    });
    let controller = world.create(CONTROLLERS, &controller).await;
    world.settle(REST).await;
    let found = world.list(PODS).await;
    check_pods(&found, 3, uid(&controller), "a");
    for name in ["one", "two"] {
        assert!(found.iter().any(|pod| pod["metadata"]["name"] == name), "{name} is gone");
    }
    assert!(pods.max_active() <= 3 + repeated, "too many pods: {:?}", pods.counts());
    let status = world.get(&format!("{CONTROLLERS}/web")).await.expect("it is there");
    assert_eq!(status["status"]["availableReplicas"], 3, "{status:#}");
    world.stays_silent(SILENCE).await;
}

#[test]
fn scale_down_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 7, &scale_down);
}

#[test]
fn scale_down_with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 7, &scale_down);
}

#[test]
fn adoption_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 4, &adoption);
}

#[test]
fn adoption_with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 4, &adoption);
}

#[test]
fn scale_down_with_every_kind_of_fault() {
    every_kind(&Options::default(), &scale_down);
}

#[test]
fn adoption_with_every_kind_of_fault() {
    every_kind(&Options::default(), &adoption);
}
