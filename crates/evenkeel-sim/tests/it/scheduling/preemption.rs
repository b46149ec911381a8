//! Preemption under faults: the scheduler evicts no more pods of lower priority than necessary, and no pod that a
//! disruption budget protects.

use super::{PodHistory, behind, drawn, each_write, nodes, pod, ready};
use crate::{
    budgets::BUDGETS,
    fixtures::{MINUTE, PODS, REST, SECOND, SETS, SILENCE, is_ready},
};
use evenkeel_sim::{Count, FaultKind, Faults, World, explore, part};
use serde_json::{Value, json};
use std::time::Duration;

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const NODES: &str = "/api/v1/nodes";
const HIGH: i32 = 1000;

const CRASHES: [FaultKind; 2] = [FaultKind::CrashBefore, FaultKind::CrashAfter];
const LOSSES: [FaultKind; 2] = [FaultKind::LoseRequest, FaultKind::LoseAnswer];
const REFUSALS: [FaultKind; 2] = [FaultKind::Refuse(500), FaultKind::BreakWatches];

async fn classes(world: &World) {
    for (name, value) in [("low", -1), ("mid", 500), ("high", HIGH)] {
        world.create(CLASSES, &json!({ "metadata": { "name": name }, "value": value })).await;
    }
}

/// Returns a pod of a priority class, restricted to `node` if one is given.
fn of_class(name: &str, cpu: i64, class: &str, node: Option<u32>) -> Value {
    let mut pod = pod(name, cpu);
    if !class.is_empty() {
        pod["spec"]["priorityClassName"] = class.into();
    }
    if let Some(node) = node {
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": format!("node-{node}") });
    }
    pod
}

/// Creates pods, and waits until they run.
async fn occupied(world: &mut World, pods: &[Value]) {
    for pod in pods {
        world.create(PODS, pod).await;
    }
    let n = pods.len();
    world.until("all run", 10 * MINUTE, async |user| ready(&user.list(PODS).await) == n).await;
    world.settle(REST).await;
}

async fn runs(world: &mut World, name: &str) {
    let path = format!("{PODS}/{name}");
    let is_there = async |user: &evenkeel_sim::Requests| {
        user.get(&path).await.is_some_and(|pod| is_ready(&pod))
    };
    world.until(&format!("{name} runs"), 10 * MINUTE, is_there).await;
}

/// Two nodes are full of pods with low priority when a pod with high priority is created.
async fn preemption(world: &mut World, faults: Faults) {
    let pod_history = PodHistory::open(world).await;
    classes(world).await;
    world.settle(REST).await;
    let low = |n: usize| of_class(&format!("p{n}"), 4, if n == 3 { "low" } else { "" }, None);
    occupied(world, &(0..4).map(low).collect::<Vec<_>>()).await;
    world.arm(faults);
    world.create(PODS, &of_class("high", 4, "high", None)).await;
    runs(world, "high").await;
    world.settle(REST).await;
    let victims = pod_history.check(world, HIGH);
    assert_eq!(victims, ["p3".to_owned()].into(), "only the least important pod is evicted");
    assert_eq!(ready(&world.list(PODS).await), 4);
    world.stays_silent(SILENCE).await;
}

/// The same scenario with delayed watch events of the scheduler.
async fn preemption_with_stale_caches(world: &mut World, faults: Faults) {
    behind(world);
    preemption(world, Faults { max_watch_delay: SECOND, ..faults }).await;
}

/// A pod needs a whole node. The scheduler evicts both pods with low priority from one node, and none from the other.
async fn several_victims(world: &mut World, faults: Faults) {
    let pod_history = PodHistory::open(world).await;
    classes(world).await;
    world.settle(REST).await;
    let there = [("a0", "", 0), ("a1", "low", 0), ("b0", "mid", 1), ("b1", "low", 1)];
    let there = there.map(|(name, class, node)| of_class(name, 4, class, Some(node)));
    occupied(world, &there).await;
    world.arm(faults);
    world.create(PODS, &of_class("high", 8, "high", None)).await;
    runs(world, "high").await;
    world.settle(REST).await;
    let victims = pod_history.check(world, HIGH);
    assert_eq!(victims, ["a0", "a1"].map(str::to_owned).into());
    assert_eq!(ready(&world.list(PODS).await), 3);
    world.stays_silent(SILENCE).await;
}

/// While a pod is nominated for a node, a pod with a higher priority uses all resources of that node.
async fn nomination_is_cleared(world: &mut World, faults: Faults) {
    let pod_history = PodHistory::open(world).await;
    classes(world).await;
    world.settle(REST).await;
    occupied(world, &[0, 1].map(|n| of_class(&format!("p{n}"), 4, "low", None))).await;
    world.arm(faults);
    world.create(PODS, &of_class("mid", 4, "mid", None)).await;
    world.pass(Duration::from_millis(100)).await;
    world.create(PODS, &of_class("high", 8, "high", None)).await;
    runs(world, "high").await;
    world.settle(REST).await;
    let victims = pod_history.check(world, HIGH);
    assert!(victims.contains("p0") && victims.contains("p1"), "{victims:?}");
    let pods = world.list(PODS).await;
    assert_eq!(ready(&pods), 1, "{pods:#?}");
    // The pod may have started in the meantime. In that case, it was evicted too.
    match pods.iter().find(|pod| pod["metadata"]["name"] == "mid") {
        Some(mid) => {
            assert!(mid["spec"]["nodeName"].is_null(), "{mid:#}");
            assert!(mid["status"]["nominatedNodeName"].is_null(), "{mid:#}");
        }
        None => assert!(victims.contains("mid")),
    }
    world.stays_silent(SILENCE / 2).await;
}

/// A budget protects one of two pods with low priority. The first preemptor evicts the other one. The second preemptor
/// evicts a pod with a higher priority on another node.
async fn disruption_budget_is_respected(world: &mut World, faults: Faults) {
    let pod_history = PodHistory::open(world).await;
    let guarded = world.watch_pods("default", ("guarded", "yes")).await;
    classes(world).await;
    let selector = json!({ "matchLabels": { "guarded": "yes" } });
    let spec = json!({ "minAvailable": 1, "selector": selector });
    world.create(BUDGETS, &json!({ "metadata": { "name": "one" }, "spec": spec })).await;
    world.settle(REST).await;
    let there = [("g0", "low", 0), ("g1", "low", 0), ("b0", "mid", 1), ("b1", "", 1)];
    let there = there.map(|(name, class, node)| {
        let mut pod = of_class(name, 4, class, Some(node));
        if class == "low" {
            pod["metadata"]["labels"]["guarded"] = "yes".into();
        }
        pod
    });
    occupied(world, &there).await;
    let two = Count { active: 2, ready: 2 };
    assert_eq!(guarded.now(), two);
    guarded.reset();
    world.arm(faults);
    world.create(PODS, &of_class("first", 4, "high", None)).await;
    runs(world, "first").await;
    world.settle(REST).await;
    world.create(PODS, &of_class("second", 4, "high", None)).await;
    runs(world, "second").await;
    // A pod that got the condition `DisruptionTarget` and was not evicted keeps the condition for two minutes.
    world.settle(2 * MINUTE + REST).await;
    let victims = pod_history.check(world, HIGH);
    assert!(victims.len() == 2 && victims.contains("b1"), "{victims:?}");
    assert!(guarded.min_ready() >= 1, "{:?}", guarded.counts());
    assert_eq!(ready(&world.list(PODS).await), 4);
    world.stays_silent(SILENCE).await;
}

/// The nominated node is deleted after this write of the scheduler. The remaining pods run on other nodes at the end.
async fn nominated_node_is_deleted(world: &mut World, faults: Faults, after: u64) {
    // As upstream, the scheduler may evict from another node if it observes its eviction after the backoff has ended: a
    // nominated pod only waits for a victim that the scheduler has observed to terminate.
    let most = if faults.max_watch_delay.is_zero() || faults.at_writes.is_empty() { 1 } else { 2 };
    let pod_history = PodHistory::open(world).await;
    classes(world).await;
    world.settle(REST).await;
    let low = |n: u32| of_class(&format!("p{n}"), 8, if n == 0 { "low" } else { "" }, Some(n));
    occupied(world, &(0..3).map(low).collect::<Vec<_>>()).await;
    world.arm(faults);
    let labels = json!({ "app": "high" });
    let high = of_class("", 8, "high", None)["spec"].clone();
    let spec = json!({
        "replicas": 1,
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": high },
    });
    world.create(SETS, &json!({ "metadata": { "name": "high" }, "spec": spec })).await;
    while world.writes(part::SCHEDULER) < after {
        world.pass(Duration::from_millis(1)).await;
    }
    world.delete(&format!("{NODES}/node-0"), "Background").await;
    let runs_on = |pod: &Value, nodes: &[Value]| {
        let node = &pod["spec"]["nodeName"];
        is_ready(pod)
            && pod["metadata"]["deletionTimestamp"].is_null()
            && nodes.iter().any(|other| other["metadata"]["name"] == *node)
    };
    world
        .until("it runs on a node that is there", 20 * MINUTE, async |user| {
            let nodes = user.list(NODES).await;
            let pods = user.list(PODS).await;
            pods.iter()
                .any(|pod| pod["spec"]["priorityClassName"] == "high" && runs_on(pod, &nodes))
        })
        .await;
    world.settle(2 * MINUTE).await;
    let (pods, nodes) = (world.list(PODS).await, world.list(NODES).await);
    let important = pods.iter().filter(|pod| pod["spec"]["priorityClassName"] == "high");
    assert_eq!(important.count(), 1, "{pods:#?}");
    assert!(pods.iter().all(|pod| runs_on(pod, &nodes)), "{pods:#?}");
    let mut victims = pod_history.check(world, HIGH);
    victims.remove("p0");
    match nodes.len() {
        2 => assert!(
            (1..=most).contains(&victims.len()) && pods.len() == 3 - victims.len(),
            "{victims:?} {pods:#?}"
        ),
        // A restarted kubelet registers its node again. Sometimes the victim still runs there.
        _ => assert!(victims.len() <= most && pods.len() + most >= 3, "{victims:?} {pods:#?}"),
    }
    world.stays_silent(SILENCE).await;
}

#[test]
fn preemption_despite_crashes() {
    each_write(&CRASHES, &nodes(2), &preemption, 4);
}

#[test]
fn preemption_despite_lost_requests_and_answers() {
    each_write(&LOSSES, &nodes(2), &preemption_with_stale_caches, 4);
}

#[test]
fn preemption_despite_refused_writes() {
    each_write(&REFUSALS, &nodes(2), &preemption, 4);
}

#[test]
fn preemption_despite_a_partition() {
    each_write(&[FaultKind::Pause, FaultKind::Cut], &nodes(2), &preemption, 4);
}

#[test]
fn preemption_despite_random_faults() {
    drawn(&nodes(2), 4, &preemption_with_stale_caches);
}

#[test]
fn several_victims_despite_crashes() {
    each_write(&[FaultKind::CrashAfter], &nodes(2), &several_victims, 6);
}

#[test]
fn several_victims_despite_lost_answers() {
    each_write(&[FaultKind::LoseAnswer], &nodes(2), &several_victims, 6);
}

#[test]
fn several_victims_despite_random_faults() {
    drawn(&nodes(2), 4, &several_victims);
}

#[test]
fn nomination_is_cleared_despite_crashes() {
    each_write(&[FaultKind::CrashAfter], &nodes(1), &nomination_is_cleared, 6);
}

#[test]
fn nomination_is_cleared_despite_lost_answers() {
    each_write(&[FaultKind::LoseAnswer], &nodes(1), &nomination_is_cleared, 6);
}

#[test]
fn disruption_budget_is_respected_despite_crashes() {
    each_write(&[FaultKind::CrashAfter], &nodes(2), &disruption_budget_is_respected, 8);
}

#[test]
fn disruption_budget_is_respected_despite_lost_answers() {
    each_write(&[FaultKind::LoseAnswer], &nodes(2), &disruption_budget_is_respected, 8);
}

#[test]
fn nominated_node_is_deleted_after_each_write() {
    for after in 0..5 {
        let scenario =
            async |world: &mut World, faults| nominated_node_is_deleted(world, faults, after).await;
        explore::with_faults(&nodes(3), Faults::default(), &scenario);
        let faults = Faults { max_watch_delay: SECOND, ..Faults::default() };
        let late = async |world: &mut World, _| {
            behind(world);
            nominated_node_is_deleted(world, faults.clone(), after).await;
        };
        explore::with_faults(&nodes(3), Faults::default(), &late);
    }
}

#[test]
fn nominated_node_is_deleted_despite_crashes() {
    let scenario =
        async |world: &mut World, faults| nominated_node_is_deleted(world, faults, 3).await;
    each_write(&[FaultKind::CrashAfter], &nodes(3), &scenario, 4);
}

#[test]
fn nominated_node_is_deleted_despite_random_faults() {
    let scenario =
        async |world: &mut World, faults| nominated_node_is_deleted(world, faults, 2).await;
    drawn(&nodes(3), 4, &scenario);
}
