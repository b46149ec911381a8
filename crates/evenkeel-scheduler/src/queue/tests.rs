//! Tests of the order and the requeueing of pods, with plugins that return fixed hints.

use proptest::prelude::*;
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    BackoffPolicy, Event, EventLabel, PluginCall, PluginSet, QueueLengths, Rejectors,
    SchedulingQueue,
};
use crate::{
    fixtures::{at, info, node, series},
    framework::{
        ActionType, Change, ClusterEvent, Delta, EventResource, Plugin, PreEnqueue, Profile,
        QueueingHint, Status, StatusResult,
    },
    metrics::Metrics,
    pod::PodInfo,
    stopwatch::Stopwatch,
};

/// Plugin that registers for new nodes and returns a fixed hint.
struct NodePlugin(QueueingHint);

impl Plugin for NodePlugin {
    fn name(&self) -> &'static str {
        "Nodes"
    }
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(EventResource::Node, &[ActionType::Add])]
    }
    fn queueing_hint(&self, _: &PodInfo, _: &Change) -> QueueingHint {
        self.0
    }
}

/// Plugin that registers for deleted pods.
struct PodPlugin;

impl Plugin for PodPlugin {
    fn name(&self) -> &'static str {
        "Pods"
    }
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::AssignedPod, &[ActionType::Delete]),
            ClusterEvent::new(EventResource::TargetPod, &[ActionType::UpdatePodLabel]),
        ]
    }
}

/// Plugin that gates pods while its flag is set, and registers for new nodes.
#[derive(Default)]
struct GatePlugin(AtomicBool);

impl Plugin for GatePlugin {
    fn name(&self) -> &'static str {
        "Gate"
    }
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(EventResource::Node, &[ActionType::Add])]
    }
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
}

impl PreEnqueue for GatePlugin {
    fn pre_enqueue(&self, _: &PodInfo) -> StatusResult {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Status::unresolvable("closed")),
            false => Ok(()),
        }
    }
}

// Indexes of the plugins in the profile of `queue_with_gate`.
const QUEUE_ON_NODE: usize = 0;
const QUEUE_ON_POD: usize = 1;
const SKIP_ON_NODE: usize = 2;
const ERROR_ON_NODE: usize = 3;
const GATE: usize = 4;

/// Returns a queue with one profile of these plugins, and the profile's gate.
fn queue_with_gate() -> (SchedulingQueue, Arc<GatePlugin>) {
    let gate = Arc::new(GatePlugin::default());
    let profile = Profile::new("default-scheduler")
        .with(Arc::new(NodePlugin(QueueingHint::Queue)), 0)
        .with(Arc::new(PodPlugin), 0)
        .with(Arc::new(NodePlugin(QueueingHint::Skip)), 0)
        .with(Arc::new(NodePlugin(QueueingHint::Error)), 0)
        .with(Arc::clone(&gate) as Arc<dyn Plugin>, 0);
    let backoff_policy = BackoffPolicy {
        initial_backoff: Duration::from_secs(1),
        max_backoff: Duration::from_secs(10),
        pop_from_backoff_q: true,
        pod_max_in_unschedulable_pods: Duration::from_secs(300),
    };
    (SchedulingQueue::new(backoff_policy, [profile].into()), gate)
}

fn queue() -> SchedulingQueue {
    queue_with_gate().0
}

fn plugin_set(plugins: &[usize]) -> PluginSet {
    plugins.iter().copied().collect()
}

fn pod(name: &str) -> PodInfo {
    info(name, &json!({}))
}

fn pod_with_priority(name: &str, priority: i32) -> PodInfo {
    info(name, &json!({ "spec": { "priority": priority } }))
}

/// Pops a pod at this second, and returns its uid.
fn pop(queue: &mut SchedulingQueue, seconds: i64) -> Option<String> {
    queue.pop(at(seconds)).map(|popped| popped.uid.to_string())
}

/// Requeues a popped pod that these plugins rejected.
fn requeue_rejected(queue: &mut SchedulingQueue, uid: &str, rejectors: &[usize], seconds: i64) {
    let rejectors = Rejectors { unschedulable: plugin_set(rejectors), ..Rejectors::default() };
    queue.add_unschedulable_pod(uid, rejectors, at(seconds));
}

/// Requeues a popped pod whose attempt ended with an error.
fn requeue_failed(queue: &mut SchedulingQueue, uid: &str, seconds: i64) {
    requeue_rejected(queue, uid, &[], seconds);
}

fn node_added() -> Event {
    Event::new(
        EventResource::Node,
        ActionType::Add,
        Change::Node(Delta::Added(node("n", &json!({})))),
    )
}

fn pod_deleted() -> Event {
    let change = Change::AssignedPod(Delta::Deleted(pod("deleted")));
    Event::new(EventResource::AssignedPod, ActionType::Delete, change)
}

/// Returns a queue with one pod that these plugins rejected at second 0.
fn queue_with_rejected_pod(rejectors: &[usize]) -> SchedulingQueue {
    let mut queue = queue();
    queue.add(pod("p"), 0, at(0));
    pop(&mut queue, 0);
    requeue_rejected(&mut queue, "p", rejectors, 0);
    queue
}

#[test]
fn pods_are_popped_by_priority_then_by_time() {
    let mut queue = queue();
    for (n, (name, priority)) in
        [("old", 0), ("new", 0), ("urgent", 9), ("idle", -1)].into_iter().enumerate()
    {
        queue.add(pod_with_priority(name, priority), 0, at(n as i64));
    }
    queue.update(&pod_with_priority("new", 1), &[ActionType::Update], at(5));
    let order: Vec<String> = std::iter::from_fn(|| pop(&mut queue, 10)).collect();
    assert_eq!(order, ["urgent", "new", "old", "idle"]);
}

#[test]
fn backoff_doubles_from_one_second_to_ten_and_ends_with_its_second() {
    let mut queue = queue();
    queue.add(pod("p"), 0, at(0));
    let mut now = 0;
    for wait in [1, 2, 4, 8, 10, 10] {
        assert_eq!(pop(&mut queue, now).as_deref(), Some("p"));
        requeue_failed(&mut queue, "p", now);
        assert_eq!(queue.next_due(), Some(at(now + wait + 1)));
        assert_eq!(
            pop(&mut queue, now + wait),
            None,
            "a pod whose attempt ended with an error is never popped early"
        );
        now += wait + 1;
    }
}

#[test]
fn an_unschedulable_pod_waits_for_an_event_that_its_rejectors_registered() {
    for (rejectors, event, popped_again) in [
        (&[QUEUE_ON_NODE][..], node_added(), true),
        (&[QUEUE_ON_NODE], pod_deleted(), false),
        (&[QUEUE_ON_POD], pod_deleted(), true),
        (&[QUEUE_ON_POD], node_added(), false),
        (&[SKIP_ON_NODE], node_added(), false),
        (&[SKIP_ON_NODE, QUEUE_ON_NODE], node_added(), true),
        (&[ERROR_ON_NODE], node_added(), true),
        (&[SKIP_ON_NODE, QUEUE_ON_POD], pod_deleted(), true),
        (&[PluginSet::EXTENDERS], pod_deleted(), true),
        (&[PluginSet::NO_NODES], pod_deleted(), false),
        (&[PluginSet::NO_NODES], node_added(), true),
    ] {
        let mut queue = queue_with_rejected_pod(rejectors);
        assert_eq!(pop(&mut queue, 20), None);
        queue.move_all_to_active_or_backoff_queue(&event, at(20), |_| false);
        assert_eq!(pop(&mut queue, 20), None, "the pod does not pass the pre-check");
        queue.move_all_to_active_or_backoff_queue(&event, at(20), |_| true);
        assert_eq!(pop(&mut queue, 20).is_some(), popped_again, "{rejectors:?} {}", event.label());
    }
}

#[test]
fn durations_of_queueing_hints_are_recorded() {
    let registry = prometheus::Registry::new();
    let mut queue = queue();
    let metrics = Metrics::register(&registry);
    queue.set_stopwatch(Stopwatch::start(&evenkeel_runtime::clock::Clock::system()));
    queue.add(pod("p"), 0, at(0));
    queue.add(pod("q"), 0, at(0));
    for _ in 0..2 {
        let uid = pop(&mut queue, 0).unwrap();
        requeue_rejected(&mut queue, &uid, &[SKIP_ON_NODE, QUEUE_ON_POD, ERROR_ON_NODE], 0);
    }
    queue.move_all_to_active_or_backoff_queue(&node_added(), at(20), |_| true);
    queue.update(&pod("p"), &[ActionType::Update], at(20));
    let calls = queue.take_plugin_calls();
    metrics.observe_queue_calls(&calls, &queue.profiles);
    let hint_calls = series(&registry, "scheduler_queueing_hint_execution_duration_seconds");
    let extension_point_runs =
        series(&registry, "scheduler_framework_extension_point_duration_seconds");
    assert_eq!(extension_point_runs, [("PreEnqueue default-scheduler Success".to_owned(), 4)]);
    // The queue called both plugins that registered for nodes for each pod, and not the third.
    let expected = [("NodeAdd Error Nodes", 2), ("NodeAdd QueueSkip Nodes", 2)];
    assert_eq!(hint_calls, expected.map(|(labels, n)| (labels.to_owned(), n)));
}

#[test]
fn a_pod_rejected_as_pending_skips_its_backoff_on_the_event() {
    for (pending, expected) in [
        (&[][..], QueueLengths { backoff: 1, ..QueueLengths::default() }),
        (&[QUEUE_ON_NODE], QueueLengths { active: 1, ..QueueLengths::default() }),
    ] {
        let mut queue = queue();
        queue.add(pod("p"), 0, at(0));
        pop(&mut queue, 0);
        let rejectors = Rejectors {
            unschedulable: plugin_set(&[QUEUE_ON_NODE, ERROR_ON_NODE]),
            pending: plugin_set(pending),
        };
        queue.add_unschedulable_pod("p", rejectors, at(0));
        queue.move_all_to_active_or_backoff_queue(&node_added(), at(0), |_| true);
        assert_eq!(queue.lengths(), expected, "{pending:?}");
    }
}

#[test]
fn events_are_replayed_for_pods_in_flight() {
    for (rejectors, is_done, popped_again) in [
        (&[QUEUE_ON_NODE][..], false, true),
        (&[QUEUE_ON_POD], false, false),
        (&[QUEUE_ON_NODE], true, false),
    ] {
        let mut queue = queue();
        queue.add(pod("p"), 0, at(0));
        queue.move_all_to_active_or_backoff_queue(&node_added(), at(0), |_| true);
        pop(&mut queue, 0);
        if is_done {
            queue.done("p");
        }
        queue.move_all_to_active_or_backoff_queue(&node_added(), at(0), |_| true);
        requeue_rejected(&mut queue, "p", rejectors, 0);
        assert_eq!(pop(&mut queue, 1).is_some(), popped_again, "{rejectors:?}");
        assert_eq!(queue.in_flight_events().count(), 0);
    }
}

#[test]
fn pop_takes_a_pod_from_backoff_q_if_active_q_is_empty() {
    let mut queue = queue();
    for name in ["p", "q"] {
        queue.add(pod(name), 0, at(0));
    }
    pop(&mut queue, 0);
    requeue_rejected(&mut queue, "p", &[QUEUE_ON_NODE], 0);
    queue.move_all_to_active_or_backoff_queue(&node_added(), at(0), |_| true);
    assert_eq!(queue.lengths(), QueueLengths { active: 1, backoff: 1, ..QueueLengths::default() });
    assert_eq!(pop(&mut queue, 0).as_deref(), Some("q"));
    assert_eq!(pop(&mut queue, 0).as_deref(), Some("p"));
    let incoming = queue.take_incoming_pods();
    assert_eq!(incoming[&("active", EventLabel::PopFromBackoffQ)], 1);
    assert_eq!(incoming[&("active", EventLabel::NEW_POD)], 2);
    assert_eq!(incoming[&("backoff", EventLabel::Change(EventResource::Node, ActionType::Add))], 1);
}

#[test]
fn without_pop_from_backoff_q_a_pod_waits_for_its_backoff() {
    let mut queue = queue();
    queue.backoff_policy.pop_from_backoff_q = false;
    queue.add(pod("p"), 0, at(0));
    pop(&mut queue, 0);
    requeue_rejected(&mut queue, "p", &[QUEUE_ON_NODE], 0);
    queue.move_all_to_active_or_backoff_queue(&node_added(), at(0), |_| true);
    assert_eq!((pop(&mut queue, 1), queue.next_due()), (None, Some(at(2))));
    assert_eq!(pop(&mut queue, 2).as_deref(), Some("p"));
}

#[test]
fn an_unschedulable_pod_is_retried_after_five_minutes() {
    let mut queue = queue_with_rejected_pod(&[QUEUE_ON_POD]);
    assert_eq!(pop(&mut queue, 299), None);
    let popped = queue.pop(at(331)).unwrap();
    assert!(popped.flushed);
    requeue_rejected(&mut queue, "p", &[QUEUE_ON_POD], 331);
    queue.move_all_to_active_or_backoff_queue(&pod_deleted(), at(340), |_| true);
    assert!(!queue.pop(at(340)).unwrap().flushed);
}

#[test]
fn a_gated_pod_waits_for_an_event_of_its_gating_plugin() {
    let (mut queue, gate) = queue_with_gate();
    gate.0.store(true, Ordering::Relaxed);
    queue.add(pod("p"), 0, at(0));
    queue.move_all_to_active_or_backoff_queue(&node_added(), at(1), |_| true);
    assert_eq!((pop(&mut queue, 100), queue.lengths().gated), (None, 1));
    assert_eq!(queue.rejected_pods()[&(0, GATE)], 1);
    gate.0.store(false, Ordering::Relaxed);
    queue.move_all_to_active_or_backoff_queue(&pod_deleted(), at(101), |_| true);
    assert_eq!(pop(&mut queue, 101), None, "the gating plugin did not register for the event");
    queue.move_all_to_active_or_backoff_queue(&node_added(), at(102), |_| true);
    assert_eq!(pop(&mut queue, 102).as_deref(), Some("p"));
    assert_eq!(queue.rejected_pods()[&(0, GATE)], 0);
}

#[test]
fn one_run_in_ten_times_each_plugin_although_the_pod_stays_gated() {
    let (mut queue, gate) = queue_with_gate();
    queue.set_stopwatch(Stopwatch::start(&evenkeel_runtime::clock::Clock::system()));
    gate.0.store(true, Ordering::Relaxed);
    for run in 0..30 {
        queue.add(pod("p"), 0, at(run));
    }
    let calls = queue.take_plugin_calls();
    let count =
        |is_counted: fn(&PluginCall) -> bool| calls.iter().filter(|call| is_counted(call)).count();
    assert_eq!(count(|call| matches!(call, PluginCall::AllPreEnqueue { .. })), 30);
    assert_eq!(count(|call| matches!(call, PluginCall::PreEnqueue { .. })), 3);
}

#[test]
fn own_updates_requeue_a_pod_if_a_plugin_registered_for_them() {
    let mut queue = queue_with_rejected_pod(&[QUEUE_ON_POD]);
    let labelled = info("p", &json!({ "metadata": { "labels": { "a": "b" } } }));
    queue.update(&labelled, &[ActionType::Update], at(20));
    assert_eq!(pop(&mut queue, 20), None);
    queue.update(&labelled, &[ActionType::UpdatePodScaleDown, ActionType::UpdatePodLabel], at(20));
    assert_eq!(pop(&mut queue, 20).as_deref(), Some("p"));
}

#[test]
fn activate_moves_a_pod_to_active_q_at_once() {
    let mut queue = queue_with_rejected_pod(&[QUEUE_ON_POD]);
    queue.activate("p", at(0));
    assert_eq!(queue.lengths(), QueueLengths { active: 1, ..QueueLengths::default() });
    pop(&mut queue, 0);
    queue.activate("p", at(0));
    requeue_rejected(&mut queue, "p", &[QUEUE_ON_POD], 0);
    assert_eq!(queue.lengths(), QueueLengths { backoff: 1, ..QueueLengths::default() });
}

#[test]
fn a_removed_pod_leaves_nothing_behind() {
    let mut queue = queue();
    for name in ["active", "backoff", "failed", "unschedulable", "in-flight"] {
        queue.add(pod(name), 0, at(0));
        if name == "active" {
            continue;
        }
        while pop(&mut queue, 0).is_some_and(|popped| popped != name) {}
        match name {
            "backoff" => {
                queue.move_all_to_active_or_backoff_queue(&node_added(), at(0), |_| true);
                requeue_rejected(&mut queue, name, &[QUEUE_ON_NODE], 0);
            }
            "failed" => requeue_failed(&mut queue, name, 0),
            "unschedulable" => requeue_rejected(&mut queue, name, &[QUEUE_ON_POD], 0),
            _ => {}
        }
    }
    for name in ["active", "backoff", "failed", "unschedulable", "in-flight"] {
        queue.remove(name);
    }
    assert_eq!(queue.lengths(), QueueLengths::default());
    assert_eq!((queue.in_flight_events().count(), queue.n_in_flight()), (0, 0));
    assert_eq!(pop(&mut queue, 1000), None);
}

/// Random operation on the queue. Numbers are those of pods, except for `Rejected`, which has the index of a plugin.
#[derive(Debug, Clone, Copy)]
enum QueueOp {
    Added(u8),
    Popped,
    Rejected(u8),
    Failed,
    Done,
    NodeAdded,
    PodDeleted,
    Updated(u8),
    Activated(u8),
    Removed(u8),
    Gate(bool),
}

/// Generates an operation on the queue.
fn queue_op() -> impl Strategy<Value = QueueOp> {
    prop_oneof![
        3 => (0u8..6).prop_map(QueueOp::Added),
        6 => Just(QueueOp::Popped),
        4 => (0u8..4).prop_map(QueueOp::Rejected),
        2 => Just(QueueOp::Failed),
        1 => Just(QueueOp::Done),
        2 => Just(QueueOp::NodeAdded),
        2 => Just(QueueOp::PodDeleted),
        1 => (0u8..6).prop_map(QueueOp::Updated),
        1 => (0u8..6).prop_map(QueueOp::Activated),
        1 => (0u8..6).prop_map(QueueOp::Removed),
        1 => any::<bool>().prop_map(QueueOp::Gate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// After every operation each pod is in exactly one queue. Once all gates are open, each pod is tried again.
    #[test]
    fn every_pod_is_in_one_queue_and_is_popped_again(queue_ops in proptest::collection::vec(queue_op(), 0..80)) {
        let (mut queue, gate) = queue_with_gate();
        let (mut pods, mut in_flight) = (std::collections::BTreeSet::new(), Vec::new());
        for (now, queue_op) in (0..).zip(queue_ops) {
            match queue_op {
                QueueOp::Added(n) => {
                    let name = format!("p{n}");
                    in_flight.retain(|uid| *uid != name);
                    queue.add(pod(&name), 0, at(now));
                    pods.insert(name);
                }
                QueueOp::Popped => in_flight.extend(pop(&mut queue, now)),
                QueueOp::Rejected(n) => {
                    if let Some(uid) = in_flight.pop() {
                        requeue_rejected(&mut queue, &uid, &[n as usize], now);
                    }
                }
                QueueOp::Failed => {
                    if let Some(uid) = in_flight.pop() {
                        requeue_failed(&mut queue, &uid, now);
                    }
                }
                QueueOp::Done => in_flight.iter().for_each(|uid| queue.done(uid)),
                QueueOp::NodeAdded => queue.move_all_to_active_or_backoff_queue(&node_added(), at(now), |_| true),
                QueueOp::PodDeleted => queue.move_all_to_active_or_backoff_queue(&pod_deleted(), at(now), |_| true),
                QueueOp::Updated(n) => {
                    let new = pod_with_priority(&format!("p{n}"), i32::from(n));
                    queue.update(&new, &[ActionType::UpdatePodLabel], at(now));
                }
                QueueOp::Activated(n) => queue.activate(&format!("p{n}"), at(now)),
                QueueOp::Removed(n) => {
                    let name = format!("p{n}");
                    queue.remove(&name);
                    in_flight.retain(|uid| *uid != name);
                    pods.remove(&name);
                }
                QueueOp::Gate(closed) => gate.0.store(closed, Ordering::Relaxed),
            }
            let QueueLengths { active, backoff, unschedulable, gated } = queue.lengths();
            prop_assert_eq!(active + backoff + unschedulable + gated + in_flight.len(), pods.len());
            prop_assert!(queue.rejected_pods().values().all(|count| *count >= 0));
        }
        gate.0.store(false, Ordering::Relaxed);
        for uid in std::mem::take(&mut in_flight) {
            requeue_failed(&mut queue, &uid, 1000);
        }
        let mut popped_again = std::collections::BTreeSet::new();
        for now in (1000..2000).step_by(10) {
            popped_again.extend(pop(&mut queue, now));
        }
        prop_assert_eq!(popped_again, pods);
    }
}
