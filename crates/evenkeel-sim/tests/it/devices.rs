//! Under faults, a tainted device evicts its pod exactly once.

use crate::fixtures::{KINDS, MINUTE, PODS, REST, SILENCE, bare_pod, each_of, every_kind, several};
use evenkeel_sim::{FaultKind, Faults, Options, World, part};
use serde_json::{Value, json};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";

/// Returns options that leave fields out of comparisons. As upstream, no controller corrects these fields after some
/// faults.
pub(crate) fn options() -> Options {
    Options::default()
        .ignores(
            "ResourceClaim/metadata/finalizers",
            "a failure to remove it waits for the deletion",
        )
        .ignores("DeviceTaintRule/status/conditions/0/reason", "it is counted since the start")
        .ignores("DeviceTaintRule/status/conditions/0/message", "it is counted since the start")
}

/// A DeviceTaintRule taints the device that a running pod uses.
pub(crate) async fn taint_a_device(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    let slice = json!({"metadata": {"name": "s"}, "spec": {
        "driver": "gpu.test", "allNodes": true, "devices": [{"name": "d"}],
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    }});
    world.create(SLICES, &slice).await;
    world.create(CLASSES, &json!({"metadata": {"name": "c.test"}, "spec": {}})).await;
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "c.test"}}]);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}});
    world.create(CLAIMS, &claim).await;
    let mut pod = bare_pod("p");
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    world.create(PODS, &pod).await;
    let is_bound = |pod: &Value| pod["spec"]["nodeName"].is_string();
    world
        .until("the pod is bound", 10 * MINUTE, async |user| {
            user.get(&format!("{PODS}/p")).await.is_some_and(|pod| is_bound(&pod))
        })
        .await;
    world.settle(REST).await;
    world.arm(faults);
    let rule = json!({"metadata": {"name": "rule"}, "spec": {
        "deviceSelector": {"driver": "gpu.test"}, "taint": {"key": "broken", "effect": "NoExecute"},
    }});
    world.create(RULES, &rule).await;
    world
        .until("the pod is gone", 10 * MINUTE, async |user| user.list(PODS).await.is_empty())
        .await;
    world.settle(REST).await;
    let rule = world.get(&format!("{RULES}/rule")).await.expect("it is there");
    let condition = &rule["status"]["conditions"][0];
    assert_eq!(condition["type"], "EvictionInProgress");
    assert_eq!(condition["status"], "False", "{condition}");
    world.stays_silent(SILENCE).await;
}

#[test]
fn with_a_crash_after_each_write() {
    each_of(&options(), part::CONTROLLERS, FaultKind::CrashAfter, 3, &taint_a_device);
}

#[test]
fn with_each_answer_lost() {
    each_of(&options(), part::CONTROLLERS, FaultKind::LoseAnswer, 3, &taint_a_device);
}

#[test]
fn tainted_device_with_every_kind_of_fault() {
    every_kind(&options(), &taint_a_device);
}

#[test]
fn tainted_device_with_random_faults() {
    several(&options(), 3, (4, 12), &KINDS, &taint_a_device);
}
