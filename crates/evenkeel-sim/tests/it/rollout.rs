//! A Deployment gets a new image while something goes wrong.

use crate::fixtures::{
    DEPLOYMENTS, MINUTE, REST, check_deployment, deployment, ready,
};
use evenkeel_sim::{Faults, Options, Part, What, World, explore};
use serde_json::json;

/// Four pods, at most one more and one fewer while they are replaced: upstream's defaults of 25 %.
async fn rollout(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let pods = world.watch_pods("default", ("app", "web")).await;
    world.create(DEPLOYMENTS, &deployment(4, "a")).await;
    ready(world, 4).await;
    assert!(pods.most_active() <= 4, "{:?}", pods.counts());
    pods.reset();
    let image = json!({ "spec": { "template": { "spec": {
        "containers": [{ "name": "web", "image": "b" }],
    } } } });
    world.merge(&format!("{DEPLOYMENTS}/web"), &image).await;
    world.settle(REST).await;
    assert!(pods.most_active() <= 5, "too many pods: {:?}", pods.counts());
    assert!(pods.fewest_ready() >= 3, "too few pods: {:?}", pods.counts());
    check_deployment(world, 4, "b", 2).await;
    world.settle(2 * MINUTE).await;
    rest(world).await;
}

/// Nothing is written any more. Nodes report every five minutes, whatever happens.
async fn rest(world: &mut World) {
    let before = world.log().len();
    world.pass(10 * MINUTE).await;
    let written: Vec<String> = world
        .log()
        .since(before)
        .iter()
        .filter(|write| !write.target.starts_with("/api/v1/nodes/node-"))
        .map(ToString::to_string)
        .collect();
    assert!(written.is_empty(), "{}", written.join("\n"));
}

fn each(what: What) {
    let runs = explore::each_write(&Options::default(), Part::Controllers, what, rollout);
    println!("{runs} runs with {what:?}");
    assert!(runs > 20, "the scenario has {runs} writes only");
}

#[test]
fn with_a_crash_after_each_write() {
    each(What::CrashAfter);
}
