//! Scheduling under faults of the scheduler: no pod is bound twice or stays pending, and no node exceeds its capacity.

mod pod_history;
mod preemption;

use crate::fixtures::{
    KINDS, MINUTE, PODS, REST, SECOND, SILENCE, bare_pod, drawn_faults, is_ready,
};
use evenkeel_nodes::{NodeOptions, NodesOptions};
use evenkeel_sim::{FaultKind, Faults, Options, Requests, World, explore, part};
use pod_history::PodHistory;
use serde_json::{Value, json};

/// Resources of each node.
const CPUS: i64 = 8;

/// Options of a cluster with this number of nodes.
fn nodes(count: u32) -> Options {
    let options = Options::default();
    let nodes = NodeOptions::several(count, "node-", &["zone-a", "zone-b"]);
    let options = Options { nodes: NodesOptions { nodes, ..options.nodes }, ..options };
    options.uncompared("which pods get the room, and who yields, is the scheduler's choice")
}

fn pod(name: &str, cpu: i64) -> Value {
    let mut pod = bare_pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu.to_string() } });
    pod
}

fn ready(pods: &[Value]) -> usize {
    pods.iter().filter(|pod| is_ready(pod)).count()
}

async fn are_ready(user: &Requests, n: usize) -> bool {
    ready(&user.list(PODS).await) == n
}

/// Delays the watch events of all parts by up to a second from now on.
fn behind(world: &mut World) {
    world.arm(Faults { max_watch_delay: SECOND, ..Faults::default() });
}

/// Four pods of four CPUs fill two nodes. A fifth pod is pending until one of the four is deleted.
async fn full(world: &mut World, faults: Faults) {
    let pod_history = PodHistory::open(world).await;
    world.settle(REST).await;
    world.arm(faults);
    for n in 0..5 {
        world.create(PODS, &pod(&format!("p{n}"), 4)).await;
    }
    world.until("four are ready", 10 * MINUTE, async |user| are_ready(user, 4).await).await;
    world.settle(REST).await;
    let pods = world.list(PODS).await;
    let waiting: Vec<&Value> =
        pods.iter().filter(|pod| pod["spec"]["nodeName"].is_null()).collect();
    assert_eq!(waiting.len(), 1, "{pods:#?}");
    // The scheduler does not retry the pod before the flush of unschedulable pods.
    world.stays_silent(2 * MINUTE).await;
    let placed = pods.iter().find(|pod| is_ready(pod)).expect("four are");
    let name = placed["metadata"]["name"].as_str().expect("it has a name");
    world.delete(&format!("{PODS}/{name}"), "Background").await;
    let (path, waits) = (format!("{PODS}/{name}"), &waiting[0]["metadata"]["name"]);
    world
        .until("the last one took its place", 10 * MINUTE, async |user| {
            let last = format!("{PODS}/{}", waits.as_str().unwrap_or_default());
            user.get(&path).await.is_none()
                && user.get(&last).await.is_some_and(|pod| is_ready(&pod))
        })
        .await;
    world.settle(REST).await;
    assert!(are_ready(world, 4).await);
    assert!(pod_history.check(world, 0).is_empty(), "nobody has to yield");
    world.stays_silent(SILENCE).await;
}

/// Like [`full`], and checks that the status of the pending pod has the reason.
async fn full_and_reported(world: &mut World, faults: Faults) {
    full(world, faults).await;
    world.create(PODS, &pod("late", 4)).await;
    world.settle(REST).await;
    let late = world.get(&format!("{PODS}/late")).await.expect("it is there");
    let condition = &late["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("PodScheduled"), &json!("Unschedulable"))
    );
    let message = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.";
    assert_eq!(condition["message"], message);
}

/// The same scenario with delayed watch events of the scheduler.
async fn full_and_behind(world: &mut World, faults: Faults) {
    behind(world);
    full(world, Faults { max_watch_delay: SECOND, ..faults }).await;
}

fn each_write(
    kinds: &[FaultKind],
    options: &Options,
    scenario: &impl AsyncFn(&mut World, Faults),
    at_least: u64,
) {
    for what in kinds {
        let writes = explore::each_write(options, part::SCHEDULER, *what, scenario);
        assert!(writes >= at_least, "the scenario has {writes} writes only");
    }
}

/// Runs the scenario once per seed, with several faults of any part. Half of them hit the scheduler.
fn drawn(options: &Options, seeds: u64, scenario: &impl AsyncFn(&mut World, Faults)) {
    for seed in 0..seeds {
        let mut faults = drawn_faults(seed, (6, 12), &KINDS);
        for fault in faults.at_writes.iter_mut().step_by(2) {
            fault.part = part::SCHEDULER;
        }
        explore::with_faults(&Options { seed, ..options.clone() }, faults, scenario);
    }
}

#[test]
fn nodes_are_filled_despite_crashes() {
    each_write(&[FaultKind::CrashBefore, FaultKind::CrashAfter], &nodes(2), &full_and_reported, 5);
}

#[test]
fn nodes_are_filled_despite_refused_bindings() {
    each_write(&[FaultKind::Refuse(500)], &nodes(2), &full, 5);
}

#[test]
fn nodes_are_filled_despite_lost_answers_and_stale_caches() {
    each_write(&[FaultKind::LoseAnswer], &nodes(2), &full_and_behind, 5);
}

#[test]
fn nodes_are_filled_despite_a_partition() {
    each_write(&[FaultKind::Cut], &nodes(2), &full, 5);
}

#[test]
fn nodes_are_filled_despite_random_faults() {
    drawn(&nodes(2), 4, &full_and_behind);
}
