//! Tests of single scheduling attempts. Property tests with random histories are in `histories`.

use evenkeel_api::time::Timestamp;
use serde_json::{Value, json};

use super::{AssumedPod, AttemptOutcome, AttemptResult, BindingFailure, Core};
use crate::{
    SchedulerOptions,
    fixtures::{at, merge, node, pod, with_requests},
    framework::{
        CycleState, NominatingInfo, Plugin, PluginFuture, PostFilter, PostFilterResult, PreFilter,
        PreFilterResult, Profile, Status,
    },
    nodes::{NodeRef, NodeTable},
    plugins::{DynamicResources, NodeResourcesFit},
    pod::PodInfo,
    schedule::{Cycle, FitError},
};
use futures::FutureExt;
use std::sync::Arc;

/// Message of an attempt whose pod does not fit the only node, without pods of lower priority.
const INSUFFICIENT_CPU: &str = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";

fn core() -> Core {
    Core::new(&SchedulerOptions::default())
}

/// Makes one attempt without extenders.
pub(super) fn attempt(core: &mut Core, now: Timestamp) -> Option<AttemptResult> {
    let attempted = core.schedule_one(now).now_or_never().unwrap();
    attempted.map(|AttemptOutcome { result, .. }| result)
}

/// Returns the failure of a binding whose request failed.
pub(super) fn binding_error() -> BindingFailure {
    BindingFailure::Failed("the API server is away".to_owned())
}

/// Returns the fields of the pod after its binding to the node.
pub(super) fn bound(pod: &Value, node: &str) -> Value {
    let mut bound = pod.clone();
    merge(&mut bound, &json!({ "spec": { "nodeName": node } }));
    bound
}

/// Returns the assumed pod of a successful attempt.
fn expect_assumed_pod(result: Option<AttemptResult>) -> AssumedPod {
    match result {
        Some(AttemptResult::Bind(assumed)) => assumed,
        Some(AttemptResult::Failed(failure)) => panic!("{}", failure.message),
        _ => panic!("no pod was due"),
    }
}

/// Returns the message of a failed attempt.
fn expect_failure(result: Option<AttemptResult>) -> String {
    match result {
        Some(AttemptResult::Failed(failure)) => failure.message,
        _ => panic!("the attempt did not fail"),
    }
}

#[test]
fn an_assumed_pod_uses_resources_until_its_binding_fails() {
    let mut core = core();
    core.add_or_update_node(&node("a", &json!({})), at(0));
    for name in ["p", "q"] {
        core.add_or_update_pod(&pod(name, &with_requests("3", "1Gi")), at(0));
    }
    let first = expect_assumed_pod(attempt(&mut core, at(0)));
    assert_eq!(expect_failure(attempt(&mut core, at(0))), INSUFFICIENT_CPU);
    assert!(core.handle_binding_cycle_error(first, binding_error(), at(1)).is_some());
    // The resources are free again and q is requeued. p backs off.
    let second = expect_assumed_pod(attempt(&mut core, at(1)));
    assert_eq!(&*second.popped.uid, "q");
}

#[test]
fn without_nodes_a_pod_waits_for_the_first_node() {
    let mut core = core();
    core.add_or_update_pod(&pod("p", &json!({})), at(0));
    assert_eq!(expect_failure(attempt(&mut core, at(0))), "no nodes available to schedule pods");
    assert!(attempt(&mut core, at(5)).is_none());
    core.add_or_update_node(&node("a", &json!({})), at(5));
    assert_eq!(&*expect_assumed_pod(attempt(&mut core, at(5))).node, "a");
}

#[test]
fn foreign_deleted_and_gated_pods_are_not_scheduled() {
    let mut core = core();
    core.add_or_update_node(&node("a", &json!({})), at(0));
    core.add_or_update_pod(&pod("p", &json!({ "spec": { "schedulerName": "mine" } })), at(0));
    core.add_or_update_pod(
        &pod("q", &json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } })),
        at(0),
    );
    core.add_or_update_pod(
        &pod("r", &json!({ "spec": { "schedulingGates": [{ "name": "g" }] } })),
        at(0),
    );
    assert!(
        matches!(attempt(&mut core, at(0)), Some(AttemptResult::Deleting(pod)) if pod.uid() == "q")
    );
    assert!(attempt(&mut core, at(0)).is_none());
    core.add_or_update_pod(&pod("r", &json!({ "metadata": { "generation": 2 } })), at(1));
    assert_eq!(&*expect_assumed_pod(attempt(&mut core, at(1))).popped.uid, "r");
}

#[test]
fn a_finished_pod_requeues_others_and_a_condition_update_requeues_none() {
    let mut core = core();
    core.add_or_update_node(&node("a", &json!({})), at(0));
    let first = bound(&with_requests("3", "1Gi"), "a");
    core.add_or_update_pod(&pod("first", &first), at(0));
    core.add_or_update_pod(&pod("p", &with_requests("2", "1Gi")), at(0));
    assert_eq!(expect_failure(attempt(&mut core, at(0))), INSUFFICIENT_CPU);
    let mut with_condition = with_requests("2", "1Gi");
    merge(
        &mut with_condition,
        &json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False" }] } }),
    );
    core.add_or_update_pod(&pod("p", &with_condition), at(20));
    assert!(attempt(&mut core, at(20)).is_none(), "its own condition does not requeue the pod");
    let mut ended = first;
    merge(&mut ended, &json!({ "status": { "phase": "Succeeded" } }));
    core.add_or_update_pod(&pod("first", &ended), at(21));
    assert_eq!(&*expect_assumed_pod(attempt(&mut core, at(21))).node, "a");
}

#[test]
fn only_a_node_update_that_may_help_requeues_a_pod() {
    let mut core = core();
    let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } });
    core.add_or_update_node(&node("a", &tainted), at(0));
    core.add_or_update_pod(&pod("p", &json!({})), at(0));
    assert_eq!(
        expect_failure(attempt(&mut core, at(0))),
        "0/1 nodes are available: 1 node(s) had untolerated taint(s). preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    let mut relabelled = tainted;
    merge(&mut relabelled, &json!({ "metadata": { "labels": { "x": "y" } } }));
    core.add_or_update_node(&node("a", &relabelled), at(20));
    assert!(attempt(&mut core, at(20)).is_none());
    core.add_or_update_node(&node("a", &json!({})), at(21));
    assert_eq!(&*expect_assumed_pod(attempt(&mut core, at(21))).node, "a");
}

/// Plugin whose PostFilter returns a fixed result.
struct FixedPostFilter {
    name: &'static str,
    result: PostFilterResult,
}

impl Plugin for FixedPostFilter {
    fn name(&self) -> &'static str {
        self.name
    }
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        Some(self)
    }
}

impl PostFilter for FixedPostFilter {
    fn post_filter<'a>(
        &'a self,
        _: &'a mut Cycle<'_>,
        _: &'a CycleState,
        _: &'a FitError,
    ) -> PluginFuture<'a, PostFilterResult> {
        Box::pin(std::future::ready(self.result.clone()))
    }
}

#[test]
fn the_first_final_post_filter_result_decides() {
    let result = |nominating_info: &NominatingInfo, message: &str, done| PostFilterResult {
        nominating_info: nominating_info.clone(),
        message: message.to_owned(),
        done,
    };
    let (keep, clear) = (NominatingInfo::Keep, NominatingInfo::Clear);
    let [node_a, node_b] = ["a", "b"].map(|node| NominatingInfo::Node(node.into()));
    let filter_message = "0/1 nodes are available: 1 Insufficient cpu.";
    for (first, second, message, nominating_info) in [
        (result(&clear, "no", false), result(&keep, "nor here", false), "no, nor here", &clear),
        (result(&node_a, "no", false), result(&node_b, "b", true), "b", &node_b),
        (result(&node_a, "no", false), result(&keep, "broken", true), "broken", &keep),
        (result(&node_a, "a", true), result(&node_b, "b", true), "a", &node_a),
    ] {
        let profile = Profile::new("default-scheduler")
            .with(Arc::new(NodeResourcesFit::default()), 0)
            .with(Arc::new(FixedPostFilter { name: "First", result: first }), 0)
            .with(Arc::new(FixedPostFilter { name: "Second", result: second }), 0);
        let mut core =
            Core::new(&SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() });
        core.add_or_update_node(&node("a", &json!({})), at(0));
        core.add_or_update_pod(&pod("p", &with_requests("9", "1Gi")), at(0));
        let Some(AttemptResult::Failed(failure)) = attempt(&mut core, at(0)) else {
            panic!("the attempt did not fail")
        };
        assert_eq!(failure.message, format!("{filter_message} {message}"));
        assert_eq!(failure.nominating_info, *nominating_info, "{message}");
    }
}

/// Plugin that rejects every pod in PreFilter.
struct RejectsAll;

impl Plugin for RejectsAll {
    fn name(&self) -> &'static str {
        "RejectsAll"
    }
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
}

impl PreFilter for RejectsAll {
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
fn dynamic_resources_reports_not_found_if_its_pre_filter_did_not_run() {
    let rejects_all = Arc::new(RejectsAll);
    let dynamic_resources = Arc::new(DynamicResources::default());
    let rejected_first = Profile::new("default-scheduler")
        .with(rejects_all.clone(), 0)
        .with(dynamic_resources.clone(), 0);
    let rejected_last =
        Profile::new("default-scheduler").with(dynamic_resources, 0).with(rejects_all, 0);
    for (profile, message) in [
        (rejected_first, "0/1 nodes are available: it is refused. not found"),
        (rejected_last, "0/1 nodes are available: it is refused. it ends here"),
    ] {
        let result =
            PostFilterResult { message: "it ends here".into(), ..PostFilterResult::default() };
        let profile = profile.with(Arc::new(FixedPostFilter { name: "Last", result }), 0);
        let mut core =
            Core::new(&SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() });
        core.add_or_update_node(&node("a", &json!({})), at(0));
        core.add_or_update_pod(&pod("p", &with_requests("1", "1Gi")), at(0));
        let Some(AttemptResult::Failed(failure)) = attempt(&mut core, at(0)) else {
            panic!("the attempt did not fail")
        };
        assert_eq!(failure.message, message);
    }
}

/// Plugin that panics in PostFilter after it has removed a pod, and in PreFilter's `add_pod`.
struct Panics;

impl Plugin for Panics {
    fn name(&self) -> &'static str {
        "Panics"
    }
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        Some(self)
    }
}

impl PreFilter for Panics {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        _: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        Ok(PreFilterResult::All)
    }

    fn add_pod(&self, _: &mut CycleState, _: &PodInfo, other: &PodInfo, _: NodeRef<'_>) {
        panic!("{} is nominated", other.uid());
    }
}

impl PostFilter for Panics {
    fn post_filter<'a>(
        &'a self,
        cycle: &'a mut Cycle<'_>,
        state: &'a CycleState,
        _: &'a FitError,
    ) -> PluginFuture<'a, PostFilterResult> {
        Box::pin(async move {
            let node = cycle.nodes().get("a").expect("a node");
            let (slot, pods) = (node.slot(), node.pods().to_vec());
            let mut state = state.clone();
            pods.iter().for_each(|pod| cycle.remove_pod(&mut state, pod, slot));
            cycle.restore_pod(&pods[0], slot);
            panic!("half way");
        })
    }
}

#[test]
fn nodes_are_restored_when_a_post_filter_plugin_panics() {
    let profile = Profile::new("default-scheduler")
        .with(Arc::new(NodeResourcesFit::default()), 0)
        .with(Arc::new(Panics), 0);
    let mut core =
        Core::new(&SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() });
    core.add_or_update_node(&node("a", &json!({})), at(0));
    for name in ["first", "second"] {
        core.add_or_update_pod(&pod(name, &bound(&with_requests("2", "1Gi"), "a")), at(0));
    }
    for name in ["p", "q"] {
        core.add_or_update_pod(&pod(name, &with_requests("1", "1Gi")), at(0));
        let message = expect_failure(attempt(&mut core, at(0)));
        assert_eq!(
            message,
            "0/1 nodes are available: 1 Insufficient cpu. running PostFilter plugin \"Panics\": panic: half way",
            "both pods are on the node"
        );
    }
}

#[test]
fn a_panic_about_a_nominated_pod_fails_the_attempt() {
    let profile = Profile::with_defaults("default-scheduler").with(Arc::new(Panics), 0);
    let mut core =
        Core::new(&SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() });
    core.add_or_update_node(&node("a", &json!({})), at(0));
    let gated = json!({
        "spec": { "schedulingGates": [{ "name": "g" }] },
        "status": { "nominatedNodeName": "a" },
    });
    core.add_or_update_pod(&pod("boss", &gated), at(0));
    core.add_or_update_pod(&pod("p", &with_requests("1", "1Gi")), at(0));
    assert_eq!(
        expect_failure(attempt(&mut core, at(0))),
        "running \"Panics\" filter plugin: panic: boss is nominated"
    );
    core.delete_pod("boss", at(1));
    assert_eq!(&*expect_assumed_pod(attempt(&mut core, at(20))).popped.uid, "p");
}

/// Events are counted under upstream's labels of `scheduler_event_handling_duration_seconds`.
#[test]
fn handled_events_have_upstreams_labels() {
    let mut core = core();
    let mut labels_after = |step: &dyn Fn(&mut Core)| {
        step(&mut core);
        let handled = core.take_handled_events();
        let labels = handled
            .iter()
            .map(|(resource, action)| format!("{}{}", resource.as_str(), action.as_str()));
        labels.collect::<Vec<_>>().join(" ")
    };
    let labelled = json!({ "metadata": { "labels": { "x": "y" }, "resourceVersion": "2" } });
    let version = |n: &str| json!({ "metadata": { "resourceVersion": n } });
    assert_eq!(
        labels_after(&|core| core.add_or_update_node(&node("a", &json!({})), at(0))),
        "NodeAdd"
    );
    assert_eq!(
        labels_after(&|core| core.add_or_update_node(&node("a", &labelled), at(0))),
        "NodeUpdateNodeLabel"
    );
    assert_eq!(labels_after(&|core| core.add_or_update_node(&node("a", &labelled), at(0))), "");
    assert_eq!(
        labels_after(&|core| core.add_or_update_pod(&pod("p", &version("1")), at(0))),
        "UnscheduledPodAdd"
    );
    let changed = labels_after(&|core| core.add_or_update_pod(&pod("p", &labelled), at(0)));
    assert_eq!(changed, "UnscheduledPodUpdate UnscheduledPodUpdatePodLabel");
    let placed =
        labels_after(&|core| core.add_or_update_pod(&pod("p", &bound(&labelled, "a")), at(0)));
    assert_eq!(placed, "UnscheduledPodDelete AssignedPodAdd");
    let changed =
        labels_after(&|core| core.add_or_update_pod(&pod("p", &bound(&version("3"), "a")), at(0)));
    assert_eq!(changed, "AssignedPodUpdate AssignedPodUpdatePodLabel");
    assert_eq!(labels_after(&|core| core.delete_pod("p", at(0))), "AssignedPodDelete");
    assert_eq!(labels_after(&|core| core.delete_pod("p", at(0))), "");
}

#[test]
fn resources_of_whole_pods_count_with_their_feature_gates() {
    let level = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    let resized = json!({
        "spec": { "nodeName": "a", "resources": level("1") },
        "status": { "resources": level("3"), "allocatedResources": { "cpu": "3" } },
    });
    // Gates of pod-level resources and of their resize, and the millicores that the pod uses.
    for (pod_level_resources, pod_level_resize, expected) in
        [(true, true, 3000), (true, false, 1000), (false, false, 0)]
    {
        let mut core = Core::new(&SchedulerOptions {
            pod_level_resources,
            pod_level_resize,
            ..SchedulerOptions::default()
        });
        core.add_or_update_node(&node("a", &json!({})), at(0));
        core.add_or_update_pod(&pod("resized", &resized), at(0));
        let used = core.nodes().get("a").map(NodeRef::requested_cpu);
        assert_eq!(used, Some(expected), "{pod_level_resources} {pod_level_resize}");
        // A pod whose pod-level requests exceed the capacity of the node fits if these requests do not count.
        core.add_or_update_pod(
            &pod("large", &json!({ "spec": { "resources": level("5") } })),
            at(0),
        );
        match attempt(&mut core, at(0)) {
            Some(AttemptResult::Bind(_)) => assert!(!pod_level_resources),
            Some(AttemptResult::Failed(failure)) => {
                assert!(pod_level_resources, "{}", failure.message);
            }
            _ => panic!("no pod was due"),
        }
    }
}
