//! What follows from an attempt, step by step. Whole histories are in `histories`.

use evenkeel_api::time::Timestamp;
use serde_json::{Value, json};

use super::{Assigned, Attempted, Core, NotBound, Step};
use crate::{
    SchedulerOptions,
    fixtures::{asking, at, merge, node, pod},
    framework::{
        CycleState, Plugin, PluginFuture, PostFilter, PostFilterResult, PreFilter, PreFilterResult,
        Profile, Status,
    },
    nodes::NodeTable,
    plugins::{DynamicResources, NodeResourcesFit},
    pod::PodInfo,
    schedule::{Cycle, Unfit},
};
use futures::FutureExt;
use std::sync::Arc;

const FULL: &str = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";

fn core() -> Core {
    Core::new(&SchedulerOptions::default())
}

/// One attempt; there are no extenders to be waited for.
pub(super) fn attempt(core: &mut Core, now: Timestamp) -> Option<Step> {
    let attempted = core.attempt(now).now_or_never().unwrap();
    attempted.map(|Attempted { step, .. }| step)
}

pub(super) fn went_wrong() -> NotBound {
    NotBound::Failed("the API server is away".to_owned())
}

pub(super) fn bound(pod: &Value, node: &str) -> Value {
    let mut bound = pod.clone();
    merge(&mut bound, &json!({ "spec": { "nodeName": node } }));
    bound
}

fn assigned(step: Option<Step>) -> Assigned {
    match step {
        Some(Step::Bind(assigned)) => assigned,
        Some(Step::Failed(failure)) => panic!("{}", failure.message),
        _ => panic!("nothing was tried"),
    }
}

fn failure(step: Option<Step>) -> String {
    match step {
        Some(Step::Failed(failure)) => failure.message,
        _ => panic!("it was not to be placed"),
    }
}

#[test]
fn an_assumed_pod_takes_its_room_until_the_binding_fails() {
    let mut core = core();
    core.node_seen(&node("a", &json!({})), at(0));
    for name in ["p", "q"] {
        core.pod_seen(&pod(name, &asking("3", "1Gi")), at(0));
    }
    let first = assigned(attempt(&mut core, at(0)));
    assert_eq!(failure(attempt(&mut core, at(0))), FULL);
    assert!(core.not_bound(first, went_wrong(), at(1)).is_some());
    // The room is free again and q was told; p backs off.
    let second = assigned(attempt(&mut core, at(1)));
    assert_eq!(&*second.popped.uid, "q");
}

#[test]
fn without_nodes_a_pod_waits_for_the_first() {
    let mut core = core();
    core.pod_seen(&pod("p", &json!({})), at(0));
    assert_eq!(failure(attempt(&mut core, at(0))), "no nodes available to schedule pods");
    assert!(attempt(&mut core, at(5)).is_none());
    core.node_seen(&node("a", &json!({})), at(5));
    assert_eq!(&*assigned(attempt(&mut core, at(5))).node, "a");
}

#[test]
fn pods_of_other_schedulers_and_deleted_ones_are_left_alone() {
    let mut core = core();
    core.node_seen(&node("a", &json!({})), at(0));
    core.pod_seen(&pod("p", &json!({ "spec": { "schedulerName": "mine" } })), at(0));
    core.pod_seen(
        &pod("q", &json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } })),
        at(0),
    );
    core.pod_seen(&pod("r", &json!({ "spec": { "schedulingGates": [{ "name": "g" }] } })), at(0));
    assert!(matches!(attempt(&mut core, at(0)), Some(Step::Deleting(pod)) if pod.uid() == "q"));
    assert!(attempt(&mut core, at(0)).is_none());
    core.pod_seen(&pod("r", &json!({ "metadata": { "generation": 2 } })), at(1));
    assert_eq!(&*assigned(attempt(&mut core, at(1))).popped.uid, "r");
}

#[test]
fn a_pod_that_ends_makes_room_and_its_own_condition_does_not() {
    let mut core = core();
    core.node_seen(&node("a", &json!({})), at(0));
    let first = bound(&asking("3", "1Gi"), "a");
    core.pod_seen(&pod("first", &first), at(0));
    core.pod_seen(&pod("p", &asking("2", "1Gi")), at(0));
    assert_eq!(failure(attempt(&mut core, at(0))), FULL);
    let mut told = asking("2", "1Gi");
    merge(
        &mut told,
        &json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False" }] } }),
    );
    core.pod_seen(&pod("p", &told), at(20));
    assert!(
        attempt(&mut core, at(20)).is_none(),
        "the condition it was given is no reason to try again"
    );
    let mut ended = first;
    merge(&mut ended, &json!({ "status": { "phase": "Succeeded" } }));
    core.pod_seen(&pod("first", &ended), at(21));
    assert_eq!(&*assigned(attempt(&mut core, at(21))).node, "a");
}

#[test]
fn only_a_node_change_that_helps_wakes_a_pod() {
    let mut core = core();
    let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } });
    core.node_seen(&node("a", &tainted), at(0));
    core.pod_seen(&pod("p", &json!({})), at(0));
    assert_eq!(
        failure(attempt(&mut core, at(0))),
        "0/1 nodes are available: 1 node(s) had untolerated taint(s). preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    let mut relabelled = tainted;
    merge(&mut relabelled, &json!({ "metadata": { "labels": { "x": "y" } } }));
    core.node_seen(&node("a", &relabelled), at(20));
    assert!(attempt(&mut core, at(20)).is_none());
    core.node_seen(&node("a", &json!({})), at(21));
    assert_eq!(&*assigned(attempt(&mut core, at(21))).node, "a");
}

/// Says this, and nominates that.
struct Says(&'static str, PostFilterResult);

impl Plugin for Says {
    fn name(&self) -> &'static str {
        self.0
    }
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        Some(self)
    }
}

impl PostFilter for Says {
    fn post_filter<'a>(
        &'a self,
        _: &'a mut Cycle<'_>,
        _: &'a CycleState,
        _: &'a Unfit,
    ) -> PluginFuture<'a, PostFilterResult> {
        Box::pin(std::future::ready(self.1.clone()))
    }
}

#[test]
fn who_finds_a_way_out_settles_what_others_said() {
    let said = |node: Option<&str>, message: &str, done| PostFilterResult {
        nominated: node.map(Into::into),
        message: message.to_owned(),
        done,
    };
    let told = "0/1 nodes are available: 1 Insufficient cpu.";
    for (first, second, message, nominated) in [
        (said(Some(""), "no", false), said(None, "nor here", false), "no, nor here", Some("")),
        (said(Some("a"), "no", false), said(Some("b"), "b", true), "b", Some("b")),
        (said(Some("a"), "no", false), said(None, "broken", true), "broken", None),
        (said(Some("a"), "a", true), said(Some("b"), "b", true), "a", Some("a")),
    ] {
        let profile = Profile::new("default-scheduler")
            .with(Arc::new(NodeResourcesFit::default()), 0)
            .with(Arc::new(Says("First", first)), 0)
            .with(Arc::new(Says("Second", second)), 0);
        let mut core =
            Core::new(&SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() });
        core.node_seen(&node("a", &json!({})), at(0));
        core.pod_seen(&pod("p", &asking("9", "1Gi")), at(0));
        let Some(Step::Failed(failure)) = attempt(&mut core, at(0)) else { panic!("it fits") };
        assert_eq!(failure.message, format!("{told} {message}"));
        assert_eq!(failure.nominated.as_deref(), nominated, "{message}");
    }
}

/// Refuses every pod before any node is looked at.
struct Refuses;

impl Plugin for Refuses {
    fn name(&self) -> &'static str {
        "Refuses"
    }
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
}

impl PreFilter for Refuses {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        _: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        Err(Status::unresolvable("it is refused"))
    }
}

#[test]
fn devices_are_not_found_where_a_pod_was_refused_before_they_were_looked_for() {
    let (refuses, devices) = (Arc::new(Refuses), Arc::new(DynamicResources::default()));
    let first = Profile::new("default-scheduler").with(refuses.clone(), 0).with(devices.clone(), 0);
    let last = Profile::new("default-scheduler").with(devices, 0).with(refuses, 0);
    for (profile, told) in [
        (first, "0/1 nodes are available: it is refused. not found"),
        (last, "0/1 nodes are available: it is refused. it ends here"),
    ] {
        let answer =
            PostFilterResult { message: "it ends here".into(), ..PostFilterResult::default() };
        let profile = profile.with(Arc::new(Says("Last", answer)), 0);
        let mut core =
            Core::new(&SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() });
        core.node_seen(&node("a", &json!({})), at(0));
        core.pod_seen(&pod("p", &asking("1", "1Gi")), at(0));
        let Some(Step::Failed(failure)) = attempt(&mut core, at(0)) else { panic!("it fits") };
        assert_eq!(failure.message, told);
    }
}

/// As upstream labels the time that it takes to take something in.
#[test]
fn what_was_taken_in_is_told_in_upstreams_words() {
    let mut core = core();
    let mut seen = |what: &dyn Fn(&mut Core)| {
        what(&mut core);
        let seen = core.take_seen();
        let names = seen.iter().map(|(of, how)| format!("{}{}", of.as_str(), how.as_str()));
        names.collect::<Vec<_>>().join(" ")
    };
    let labelled = json!({ "metadata": { "labels": { "x": "y" }, "resourceVersion": "2" } });
    let version = |n: &str| json!({ "metadata": { "resourceVersion": n } });
    assert_eq!(seen(&|core| core.node_seen(&node("a", &json!({})), at(0))), "NodeAdd");
    assert_eq!(seen(&|core| core.node_seen(&node("a", &labelled), at(0))), "NodeUpdateNodeLabel");
    assert_eq!(seen(&|core| core.node_seen(&node("a", &labelled), at(0))), "");
    assert_eq!(seen(&|core| core.pod_seen(&pod("p", &version("1")), at(0))), "UnscheduledPodAdd");
    let changed = seen(&|core| core.pod_seen(&pod("p", &labelled), at(0)));
    assert_eq!(changed, "UnscheduledPodUpdate UnscheduledPodUpdatePodLabel");
    let placed = seen(&|core| core.pod_seen(&pod("p", &bound(&labelled, "a")), at(0)));
    assert_eq!(placed, "UnscheduledPodDelete AssignedPodAdd");
    let changed = seen(&|core| core.pod_seen(&pod("p", &bound(&version("3"), "a")), at(0)));
    assert_eq!(changed, "AssignedPodUpdate AssignedPodUpdatePodLabel");
    assert_eq!(seen(&|core| core.pod_gone("p", at(0))), "AssignedPodDelete");
    assert_eq!(seen(&|core| core.pod_gone("p", at(0))), "");
}
