//! Pods get nodes while something goes wrong with the scheduler: none is bound twice, none is left over.

use crate::fixtures::{KINDS, MINUTE, PODS, REST, SILENCE, bare_pod, is_ready};
use evenkeel_sim::{Faults, Options, Part, Requests, What, World, explore};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CPUS: i64 = 8;

fn pod(name: &str, cpu: i64) -> Value {
    let mut pod = bare_pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu.to_string() } });
    pod
}

/// What pods on each node ask for; those on their way out included.
fn load(pods: &[Value]) -> BTreeMap<&str, i64> {
    let mut load = BTreeMap::new();
    for pod in pods {
        let cpu = &pod["spec"]["containers"][0]["resources"]["requests"]["cpu"];
        let cpu: i64 = cpu.as_str().and_then(|cpu| cpu.parse().ok()).unwrap_or_default();
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            *load.entry(node).or_default() += cpu;
        }
    }
    load
}

#[track_caller]
fn check_load(pods: &[Value]) {
    for (node, cpu) in load(pods) {
        assert!(cpu <= CPUS, "{node} holds {cpu} of {CPUS}: {pods:#?}");
    }
}

fn ready(pods: &[Value]) -> usize {
    pods.iter().filter(|pod| is_ready(pod)).count()
}

async fn six_are_ready(user: &Requests) -> bool {
    let pods = user.list(PODS).await;
    check_load(&pods);
    ready(&pods) == 6
}

/// Six pods of four CPUs fill three nodes; one more waits until another is gone.
async fn full(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    for n in 0..7 {
        world.create(PODS, &pod(&format!("p{n}"), 4)).await;
    }
    world.until("six are ready", 10 * MINUTE, async |user| six_are_ready(user).await).await;
    world.settle(REST).await;
    let pods = world.list(PODS).await;
    let waiting: Vec<&Value> =
        pods.iter().filter(|pod| pod["spec"]["nodeName"].is_null()).collect();
    assert_eq!(waiting.len(), 1, "{pods:#?}");
    let condition = &waiting[0]["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("PodScheduled"), &json!("Unschedulable"))
    );
    let message = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.";
    assert_eq!(condition["message"], message);
    // Not until it has waited for so long that it is tried again for that alone.
    world.stays_silent(2 * MINUTE).await;
    let placed = pods.iter().find(|pod| is_ready(pod)).expect("six are");
    let name = placed["metadata"]["name"].as_str().expect("it has a name");
    world.delete(&format!("{PODS}/{name}"), "Background").await;
    world.until("the last one is ready", 10 * MINUTE, async |user| six_are_ready(user).await).await;
    world.settle(REST).await;
    world.stays_silent(SILENCE).await;
}

fn each_write(scenario: &impl AsyncFn(&mut World, Faults), more_than: u64) {
    for what in [What::CrashBefore, What::CrashAfter] {
        let runs = explore::each_write(&Options::default(), Part::Scheduler, what, scenario);
        assert!(runs > more_than, "the scenario has {runs} writes only");
    }
}

fn drawn(scenario: &impl AsyncFn(&mut World, Faults)) {
    for seed in 0..6 {
        let faults = Faults::drawn(seed, 4, 12, &KINDS, MINUTE / 60);
        explore::with(&Options { seed, ..Options::default() }, faults, scenario);
    }
}

#[test]
fn a_scheduler_that_crashes_at_any_write_fills_nodes() {
    each_write(&full, 7);
}

#[test]
fn whatever_goes_wrong_nodes_are_filled() {
    drawn(&full);
}
