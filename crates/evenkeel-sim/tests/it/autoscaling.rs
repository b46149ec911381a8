//! The autoscaler scales a Deployment to its load and then stops, despite faults.

use crate::fixtures::{
    KINDS, MINUTE, SILENCE, deployment, each_of, every_kind, repeated, running, several,
};
use evenkeel_sim::{Count, FaultKind, Faults, Options, World, part};
use serde_json::{Value, json};

pub(crate) const AUTOSCALERS: &str =
    "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

/// Returns a Deployment of one pod, whose pods share a load of two CPUs.
pub(crate) fn loaded() -> Value {
    let mut web = deployment(1, "a");
    let template = &mut web["spec"]["template"];
    template["metadata"]["annotations"] = json!({"sim.evenkeel.dev/cpu-load": "2"});
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    web
}

/// Returns an autoscaler of that Deployment. Its target is half a CPU per pod.
pub(crate) fn autoscaler() -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}});
    let metrics = json!([{"type": "Resource", "resource": cpu}]);
    let spec = json!({"maxReplicas": 6, "scaleTargetRef": target, "metrics": metrics});
    json!({"metadata": {"name": "web"}, "spec": spec})
}

/// Returns options that leave the autoscaler's conditions and last scale time out of comparisons. As upstream, the
/// controller does not record a scaling in the status if it crashes between the two.
pub(crate) fn options() -> Options {
    let unknown = "a crash between scaling and status";
    Options::default()
        .ignores("HorizontalPodAutoscaler/status/conditions", unknown)
        .ignores("HorizontalPodAutoscaler/status/lastScaleTime", unknown)
}

/// A load of 2 CPUs at 0.5 CPUs per pod needs 4 pods.
pub(crate) async fn scales_to_load(world: &mut World, faults: Faults) {
    world.serve_metrics().await;
    let pods = running(world, &loaded(), 1).await;
    let repeated = repeated(&faults);
    world.arm(faults);
    pods.reset();
    world.create(AUTOSCALERS, &autoscaler()).await;
    let four = Count { active: 4, ready: 4 };
    world.until("four pods are ready", 30 * MINUTE, async |_| pods.now() == four).await;
    world.settle(6 * MINUTE).await;
    assert_eq!(pods.now(), four);
    assert!(pods.max_active() <= 4 + repeated, "more than it takes: {:?}", pods.counts());
    let hpa = world.get(&format!("{AUTOSCALERS}/web")).await.expect("it is there");
    assert_eq!(hpa["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 50);
    assert_eq!(hpa["status"]["desiredReplicas"], 4);
    // The autoscaler is reconciled every 15 s, and nothing is written.
    world.stays_silent(SILENCE).await;
}

#[test]
fn with_a_crash_after_each_write() {
    each_of(&options(), part::CONTROLLERS, FaultKind::CrashAfter, 6, &scales_to_load);
}

#[test]
fn with_each_answer_lost() {
    each_of(&options(), part::CONTROLLERS, FaultKind::LoseAnswer, 6, &scales_to_load);
}

#[test]
fn scaling_with_every_kind_of_fault() {
    every_kind(&options(), &scales_to_load);
}

#[test]
fn scaling_with_random_faults() {
    several(&options(), 3, (4, 12), &KINDS, &scales_to_load);
}
