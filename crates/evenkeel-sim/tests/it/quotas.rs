//! Under faults, a quota is never exceeded, and its usage is correct at the end.

use crate::fixtures::{
    KINDS, MINUTE, PODS, REST, SECOND, SETS, SILENCE, each, every_kind, several, template, web_pods,
};
use evenkeel_sim::{Count, FaultKind, Faults, Options, World};
use serde_json::{Value, json};

pub(crate) const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

async fn used(world: &World) -> Value {
    let quota = world.get(&format!("{QUOTAS}/few")).await.expect("it is there");
    quota["status"].clone()
}

/// A quota first admits one of a ReplicaSet's two pods, and the second one after it is raised. Later it counts no pod.
pub(crate) async fn filled_and_emptied(world: &mut World, faults: Faults) {
    let pods = web_pods(world).await;
    world.settle(REST).await;
    world.arm(faults);
    let hard = json!({"pods": "1", "count/replicasets.apps": "1"});
    world.create(QUOTAS, &json!({"metadata": {"name": "few"}, "spec": {"hard": hard}})).await;
    world
        .until("the quota is counted", MINUTE, async |user| {
            let quota = user.get(&format!("{QUOTAS}/few")).await.expect("it is there");
            quota["status"]["used"] == json!({"pods": "0", "count/replicasets.apps": "0"})
        })
        .await;
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("a")},
    });
    world.create(SETS, &set).await;
    let full = Count { active: 1, ready: 1 };
    world.until("one pod is ready", 10 * MINUTE, async |_| pods.now() == full).await;
    world.pass(SECOND).await;
    assert_eq!(pods.now(), full);
    assert_eq!(used(world).await["used"], json!({"pods": "1", "count/replicasets.apps": "1"}));
    world.merge(&format!("{QUOTAS}/few"), &json!({"spec": {"hard": {"pods": "2"}}})).await;
    let all = Count { active: 2, ready: 2 };
    world.until("two pods are ready", 10 * MINUTE, async |_| pods.now() == all).await;
    assert!(pods.max_active() <= 2, "{:?}", pods.counts());
    world.merge(&format!("{SETS}/web"), &json!({"spec": {"replicas": 0}})).await;
    world.settle(REST).await;
    assert_eq!(world.list(PODS).await, [Value::Null; 0]);
    let left = json!({"hard": {"pods": "2", "count/replicasets.apps": "1"}, "used": {"pods": "0", "count/replicasets.apps": "1"}});
    assert_eq!(used(world).await, left);
    world.stays_silent(SILENCE).await;
}

#[test]
fn with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 9, &filled_and_emptied);
}

#[test]
fn with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 9, &filled_and_emptied);
}

#[test]
fn quota_with_every_kind_of_fault() {
    every_kind(&Options::default(), &filled_and_emptied);
}

#[test]
fn quota_with_random_faults() {
    several(&Options::default(), 3, (4, 12), &KINDS, &filled_and_emptied);
}
