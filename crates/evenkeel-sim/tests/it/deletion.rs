//! Deletions with each propagation policy, under faults.

use crate::fixtures::{
    DEPLOYMENTS, MINUTE, PODS, REST, SETS, SILENCE, controller, deployment, each, every_kind,
    is_ready, running, several, uid, web_pods,
};
use evenkeel_sim::{Count, FaultKind, Faults, Options, World, explore, part};
use serde_json::{Value, json};

/// Creates a Deployment with three pods, lets the world settle, and returns the pods.
async fn prepare(world: &mut World, faults: Faults) -> Vec<Value> {
    let pods = running(world, &deployment(3, "a"), 3).await;
    world.arm(faults);
    pods.reset();
    world.list(PODS).await
}

/// Checks that no dependents are left.
async fn nothing_is_left(world: &mut World) {
    for path in [DEPLOYMENTS, SETS, PODS] {
        let left = world.list(path).await;
        assert!(left.is_empty(), "{left:#?}");
    }
    world.stays_silent(SILENCE).await;
}

async fn background(world: &mut World, faults: Faults) {
    prepare(world, faults).await;
    world.delete(&format!("{DEPLOYMENTS}/web"), "Background").await;
    assert!(world.get(&format!("{DEPLOYMENTS}/web")).await.is_none(), "it goes first");
    world.settle(REST).await;
    nothing_is_left(world).await;
}

/// The garbage collector deletes each owner after its dependents.
pub(crate) async fn foreground(world: &mut World, faults: Faults) {
    prepare(world, faults).await;
    let pods = web_pods(world).await;
    world.delete(&format!("{DEPLOYMENTS}/web"), "Foreground").await;
    world
        .until("the Deployment is gone", 10 * MINUTE, async |user| {
            user.get(&format!("{DEPLOYMENTS}/web")).await.is_none()
        })
        .await;
    assert_eq!(world.list(SETS).await, [Value::Null; 0]);
    assert_eq!(pods.now(), Count { active: 0, ready: 0 });
    world.settle(REST).await;
    nothing_is_left(world).await;
}

/// The ReplicaSet remains without an owner reference, and the pods remain unchanged.
async fn orphan(world: &mut World, faults: Faults) {
    let before = prepare(world, faults).await;
    let pods = web_pods(world).await;
    world.delete(&format!("{DEPLOYMENTS}/web"), "Orphan").await;
    world.settle(REST).await;
    assert!(world.list(DEPLOYMENTS).await.is_empty());
    let sets = world.list(SETS).await;
    let [set] = &sets[..] else { panic!("not one ReplicaSet: {sets:#?}") };
    assert_eq!(controller(set), "", "{set:#}");
    let after = world.list(PODS).await;
    assert_eq!(after.len(), before.len());
    for pod in &after {
        assert!(before.iter().any(|old| uid(old) == uid(pod)), "{pod:#}");
        assert_eq!(controller(pod), uid(set));
        assert!(is_ready(pod), "{pod:#}");
    }
    assert_eq!(pods.counts(), [Count { active: 3, ready: 3 }]);
    world.stays_silent(SILENCE).await;
}

/// The controller deletes all objects in a namespace, and then the namespace.
pub(crate) async fn namespace(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.create("/api/v1/namespaces", &json!({ "metadata": { "name": "short" } })).await;
    let of = |path: &str| path.replace("/default/", "/short/");
    world.create(&of(DEPLOYMENTS), &deployment(2, "a")).await;
    let map = json!({ "metadata": { "name": "map", "finalizers": [] }, "data": { "a": "b" } });
    world.create("/api/v1/namespaces/short/configmaps", &map).await;
    world.settle(REST).await;
    world.arm(faults);
    world.delete("/api/v1/namespaces/short", "Background").await;
    world.settle(2 * MINUTE).await;
    assert!(world.get("/api/v1/namespaces/short").await.is_none(), "{}", world.log().tail(20));
    for path in ["/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/api/v1/pods"] {
        let left = world.list(path).await;
        assert!(left.is_empty(), "{left:#?}");
    }
    world.stays_silent(SILENCE).await;
}

#[test]
fn background_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 2, &background);
}

/// The writes include those of the garbage collector's workers.
#[test]
fn namespace_with_a_panic_at_each_write() {
    each(FaultKind::Panic, 2, &namespace);
}

#[test]
fn background_with_a_panic_at_each_write() {
    each(FaultKind::Panic, 2, &background);
}

#[test]
fn foreground_with_a_panic_at_each_write() {
    each(FaultKind::Panic, 2, &foreground);
}

#[test]
fn foreground_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 2, &foreground);
}

#[test]
fn orphan_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 2, &orphan);
}

#[test]
fn namespace_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 2, &namespace);
}

/// A kubelet that received a conflict still removes its pods.
#[test]
fn conflict_at_each_write_of_the_kubelets() {
    let options = Options::default();
    assert!(explore::each_write(&options, part::NODES, FaultKind::Refuse(409), &background) >= 3);
}

/// Each propagation policy is tested with several faults.
#[test]
fn random_faults() {
    let kinds = [
        FaultKind::CrashAfter,
        FaultKind::Refuse(409),
        FaultKind::Refuse(500),
        FaultKind::LoseAnswer,
        FaultKind::BreakWatches,
    ];
    several(&Options::default(), 4, (4, 12), &kinds, &background);
    several(&Options::default(), 4, (4, 12), &kinds, &foreground);
    several(&Options::default(), 4, (4, 12), &kinds, &orphan);
    several(&Options::default(), 4, (4, 12), &kinds, &namespace);
}

#[test]
fn background_with_every_kind_of_fault() {
    every_kind(&Options::default(), &background);
}

#[test]
fn foreground_with_every_kind_of_fault() {
    every_kind(&Options::default(), &foreground);
}

#[test]
fn orphan_with_every_kind_of_fault() {
    every_kind(&Options::default(), &orphan);
}

#[test]
fn namespace_with_every_kind_of_fault() {
    every_kind(&Options::default(), &namespace);
}
