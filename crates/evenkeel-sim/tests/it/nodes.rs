//! Nodes stop reporting, return or are deleted, under faults.

use crate::fixtures::{
    KINDS, MINUTE, PODS, REST, deployment, each, each_of, every_kind, is_ready, ready, running,
    several,
};
use evenkeel_sim::{FaultKind, Faults, Options, World, part, simulate};
use serde_json::{Value, json};

const NODES: &str = "/api/v1/nodes";

/// Returns a Deployment whose pods tolerate the taints of an unreachable node for 20 s.
fn leaving(replicas: u32) -> Value {
    let mut deployment = deployment(replicas, "a");
    let bears = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20});
    deployment["spec"]["template"]["spec"]["tolerations"] =
        json!([bears("not-ready"), bears("unreachable")]);
    deployment
}

fn silent(is: bool) -> Value {
    let value = if is { json!("true") } else { Value::Null };
    json!({"metadata": {"annotations": {"sim.evenkeel.dev/silent": value}}})
}

fn condition<'a>(node: &'a Value, type_: &str) -> &'a Value {
    let conditions = node["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|one| one["type"] == type_)).unwrap_or(&Value::Null)
}

fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let mut texts: Vec<String> = taints
        .iter()
        .map(|taint| format!("{}:{}", taint["key"], taint["effect"]).replace('"', ""))
        .collect();
    texts.sort();
    texts
}

/// Returns the node of the first pod.
async fn some_node(world: &World) -> String {
    let pods = world.list(PODS).await;
    pods[0]["spec"]["nodeName"].as_str().expect("it runs").to_owned()
}

/// Checks that every node is Ready, and that each pod runs exactly once.
async fn check_well(world: &World, pods: usize) {
    for node in world.list(NODES).await {
        assert_eq!(condition(&node, "Ready")["status"], "True", "{node:#}");
        assert_eq!(taints(&node), Vec::<String>::new(), "{node:#}");
    }
    let all = world.list(PODS).await;
    assert_eq!(all.len(), pods, "{all:#?}");
    for pod in &all {
        assert!(is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null(), "{pod:#}");
    }
}

/// A node stops reporting, its pods are replaced on other nodes, and it reports again.
pub(crate) async fn silent_node(world: &mut World, faults: Faults) {
    running(world, &leaving(3), 3).await;
    let name = some_node(world).await;
    let path = format!("{NODES}/{name}");
    world.arm(faults);
    world.merge(&path, &silent(true)).await;
    world
        .until("the node is tainted", 10 * MINUTE, async |world| {
            let node = world.get(&path).await.expect("the node");
            let want = ["NoExecute", "NoSchedule"]
                .map(|effect| format!("node.kubernetes.io/unreachable:{effect}"));
            taints(&node) == want
        })
        .await;
    let node = world.get(&path).await.expect("the node");
    for type_ in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&node, type_)["status"], "Unknown", "{type_}");
        assert_eq!(condition(&node, type_)["reason"], "NodeStatusUnknown", "{type_}");
    }
    let elsewhere = |pod: &Value| pod["spec"]["nodeName"] != name.as_str() && is_ready(pod);
    world
        .until("three pods run elsewhere", 10 * MINUTE, async |world| {
            world.list(PODS).await.iter().filter(|pod| elsewhere(pod)).count() == 3
        })
        .await;
    world.settle(REST).await;
    for pod in world.list(PODS).await.iter().filter(|pod| !elsewhere(pod)) {
        assert!(!is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_string(), "{pod:#}");
    }
    world.merge(&path, &silent(false)).await;
    world.settle(REST).await;
    check_well(world, 3).await;
    world.stays_silent(2 * MINUTE).await;
}

/// A node is deleted. Its pods are deleted too, and the controller replaces them.
pub(crate) async fn deleted_node(world: &mut World, faults: Faults) {
    let pods = running(world, &leaving(3), 3).await;
    let name = some_node(world).await;
    world.arm(faults);
    world.delete(&format!("{NODES}/{name}"), "Background").await;
    world
        .until("no pod is on the node", 10 * MINUTE, async |world| {
            let pods = world.list(PODS).await;
            pods.iter().all(|pod| pod["spec"]["nodeName"] != name.as_str())
        })
        .await;
    ready(world, &pods, 3).await;
    world.settle(REST).await;
    assert_eq!(world.list(NODES).await.len(), 2);
    check_well(world, 3).await;
    world.stays_silent(2 * MINUTE).await;
}

/// One node is already tainted when all other nodes stop reporting, too. The controller then evicts no pod, and removes the
/// first node's taint.
async fn one_and_then_all_silent(world: &mut World, faults: Faults) {
    running(world, &leaving(3), 3).await;
    let path = format!("{NODES}/{}", some_node(world).await);
    world.merge(&path, &silent(true)).await;
    world
        .until("the node is tainted", 10 * MINUTE, async |world| {
            taints(&world.get(&path).await.expect("the node"))
                .contains(&"node.kubernetes.io/unreachable:NoExecute".to_owned())
        })
        .await;
    world.settle(REST).await;
    world.arm(faults);
    world.kill(part::NODES).await;
    world.pass(2 * MINUTE).await;
    for node in world.list(NODES).await {
        assert_eq!(condition(&node, "Ready")["status"], "Unknown");
        assert_eq!(taints(&node), ["node.kubernetes.io/unreachable:NoSchedule"]);
    }
}

#[test]
fn one_and_then_all_silent_with_each_write_refused() {
    each(FaultKind::Refuse(409), 5, &one_and_then_all_silent);
}

#[test]
fn silent_node_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 5, &silent_node);
}

#[test]
fn silent_node_with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 5, &silent_node);
}

/// The writes include those of the node monitor.
#[test]
fn silent_node_with_a_panic_at_each_write() {
    each(FaultKind::Panic, 5, &silent_node);
}

/// The node monitor and all other controllers continue even if the kubelets' tasks panic.
#[test]
fn silent_node_with_a_panic_at_each_kubelet_write() {
    each_of(&Options::default(), part::NODES, FaultKind::Panic, 5, &silent_node);
}

#[test]
fn deleted_node_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 5, &deleted_node);
}

#[test]
fn random_faults() {
    several(&Options::default(), 3, (6, 20), &KINDS, &silent_node);
    several(&Options::default(), 3, (6, 20), &KINDS, &deleted_node);
}

/// If all nodes stop reporting, the network counts as broken, and no pod is evicted.
#[test]
fn all_nodes_silent() {
    simulate(Options::default(), async |world| {
        let pods = running(world, &leaving(3), 3).await;
        let uids = |pods: Vec<Value>| -> Vec<Value> {
            let mut uids: Vec<_> = pods.iter().map(|pod| pod["metadata"]["uid"].clone()).collect();
            uids.sort_by_key(Value::to_string);
            uids
        };
        let before = uids(world.list(PODS).await);
        world.kill(part::NODES).await;
        world.pass(10 * MINUTE).await;
        for node in world.list(NODES).await {
            assert_eq!(condition(&node, "Ready")["status"], "Unknown");
            assert_eq!(taints(&node), ["node.kubernetes.io/unreachable:NoSchedule"]);
        }
        assert!(!world.list(PODS).await.iter().any(is_ready));
        world.stays_silent(20 * MINUTE).await;
        world.start(part::NODES);
        ready(world, &pods, 3).await;
        world.settle(REST).await;
        check_well(world, 3).await;
        assert_eq!(uids(world.list(PODS).await), before);
    });
}

#[test]
fn silent_node_with_every_kind_of_fault() {
    every_kind(&Options::default(), &silent_node);
}

#[test]
fn deleted_node_with_every_kind_of_fault() {
    every_kind(&Options::default(), &deleted_node);
}
