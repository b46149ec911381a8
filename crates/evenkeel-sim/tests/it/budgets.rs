//! Under faults, no disruption budget is violated, and each allows its disruptions again at the end.

use crate::fixtures::{
    KINDS, MINUTE, PODS, SECOND, SILENCE, deployment, each, every_kind, running, several, uid,
};
use evenkeel_sim::{Count, FaultKind, Faults, Options, World};
use http::Method;
use serde_json::{Value, json};

pub(crate) const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn status(world: &World) -> Value {
    let budget = world.get(&format!("{BUDGETS}/web")).await.expect("it is there");
    budget["status"].clone()
}

/// A user requests the eviction of all pods repeatedly, until all of the first pods are evicted.
pub(crate) async fn drain(world: &mut World, faults: Faults) {
    let pods = running(world, &deployment(3, "a"), 3).await;
    let first: Vec<Value> = world.list(PODS).await;
    world.arm(faults);
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"minAvailable": "60%", "selector": selector});
    world.create(BUDGETS, &json!({"metadata": {"name": "web"}, "spec": spec})).await;
    pods.reset();
    let is_first = |pod: &Value| first.iter().any(|old| uid(old) == uid(pod));
    for _ in 0..600 {
        let left: Vec<Value> = world.list(PODS).await.into_iter().filter(is_first).collect();
        if left.is_empty() {
            break;
        }
        for pod in left {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let eviction = json!({"metadata": {"name": name}});
            // The budget refuses some of these evictions.
            let path = format!("{PODS}/{name}/eviction");
            let _ = world.send(Method::POST, &path, "application/json", &eviction).await;
        }
        world.pass(SECOND).await;
    }
    let all = Count { active: 3, ready: 3 };
    world.until("three other pods are ready", 10 * MINUTE, async |_| pods.now() == all).await;
    assert!(!world.list(PODS).await.iter().any(is_first), "nobody left");
    assert!(pods.min_ready() >= 2, "too few pods: {:?}", pods.counts());
    world.settle(3 * MINUTE).await;
    let status = status(world).await;
    assert_eq!(status["disruptionsAllowed"], 1, "{status:#}");
    assert_eq!((&status["currentHealthy"], &status["desiredHealthy"]), (&json!(3), &json!(2)));
    assert!(status["disruptedPods"].is_null(), "{status:#}");
    world.stays_silent(SILENCE).await;
}

#[test]
fn with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 6, &drain);
}

#[test]
fn with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 6, &drain);
}

#[test]
fn drain_with_every_kind_of_fault() {
    every_kind(&Options::default(), &drain);
}

#[test]
fn drain_with_random_faults() {
    several(&Options::default(), 3, (4, 12), &KINDS, &drain);
}
